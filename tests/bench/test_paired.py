"""`bench/overhead.py --paired`: both sides train alike, and its statistics say what they claim."""

import math
import random

import pytest

import paired
from case import Case

slow = pytest.mark.slow
SMALL = {"device": "cpu", "depth": 18, "size": 32, "batch": 2, "warmup": 2, "steps": 2}


def test_a_steady_drift_of_the_machine_cancels_out() -> None:
    drift = [{"seconds": 1 + 0.1 * number, "cpu_seconds": 1.0} for number in range(4)]
    assert [paired.Comparison.of(order, drift).wall for order in ("ABBA", "BAAB")] == pytest.approx([1, 1])


def test_a_ratio_is_the_time_of_the_bare_blocks_over_that_of_ours() -> None:
    seconds = {"A": {"seconds": 3.0, "cpu_seconds": 1.0}, "B": {"seconds": 2.0, "cpu_seconds": 4.0}}
    for order in ("ABBA", "BAAB"):
        result = paired.Comparison.of(order, [seconds[side] for side in order])
        assert (result.wall, result.cpu) == (1.5, 0.25)


def test_comparisons_that_another_program_disturbed_do_not_count() -> None:
    calm = [0.99, 1.0, 1.0, 1.0, 1.01, 1.01, 0.99, 1.0]
    interval = paired.ratio_of_ratios([*calm, 2.0, 0.4])
    assert interval.mean == pytest.approx(1.0, abs=0.002)
    assert interval.half_width < 0.02


def test_swapping_the_sides_gives_the_inverse_ratio_and_limits() -> None:
    ratios = [1.01, 1.03, 0.98, 1.02, 1.05, 1.0, 0.99]
    there, back = (paired.ratio_of_ratios(values) for values in (ratios, [1 / ratio for ratio in ratios]))
    assert (there.mean, there.low, there.high) == pytest.approx((1 / back.mean, 1 / back.high, 1 / back.low))


@pytest.mark.parametrize("deviation", [0.008, 0.015, 0.03])
def test_the_interval_covers_the_true_ratio_although_it_decides_when_to_stop(deviation: float) -> None:
    draw, runs = random.Random(deviation), 600
    covered = 0
    for _ in range(runs):
        ratios: list[float] = []
        for count in paired.check_counts():
            ratios += [0.99 * math.exp(draw.gauss(0, deviation)) for _ in range(count - len(ratios))]
            interval = paired.ratio_of_ratios(ratios)
            if interval.half_width <= paired.WANTED_HALF_WIDTH:
                break
        covered += interval.low <= 0.99 <= interval.high
    assert covered / runs >= 0.93  # 95 % less two standard errors of this simulation


@pytest.mark.framework
@pytest.mark.parametrize(
    ("framework", "processes"),
    [
        pytest.param(framework, processes, marks=[] if (framework, processes) == ("torch", 1) else slow)
        for framework in ("torch", "tensorflow", "jax", "keras-torch", "keras-tensorflow", "keras-jax", "mxnet")
        for processes in (1, 2)
    ],
)
def test_the_bare_loop_and_the_harness_make_the_same_updates(framework: str, processes: int) -> None:
    small = Case(framework, **SMALL)
    digests = {}
    for order in ("BBB", "ABA"):  # each side takes over from the other
        with paired.PairedRanks.of(small, processes) as ranks:
            blocks = ranks.blocks(order, 2)
            assert len(blocks) == len(order)
            assert all(block["seconds"] > 0 for block in blocks)
            digests[order] = ranks.finish()
    assert digests["ABA"] == digests["BBB"]


@pytest.mark.framework
def test_a_row_of_the_table_has_the_ratio_its_interval_and_the_number_of_blocks(
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = Case("torch", **SMALL)
    paired.measure([(small, 1)], seconds=0)
    lines = capsys.readouterr().out.splitlines()
    header, row = ([cell.strip() for cell in line.split("|")[1:-1]] for line in (lines[-3], lines[-1]))
    cells = dict(zip(header, row, strict=True))
    assert (cells["framework"], cells["processes"], cells["blocks"]) == ("`torch`", "1", "4")
    assert float(cells["ratio harness / bare"]) > 0


@slow
@pytest.mark.framework
def test_a_process_that_fails_ends_the_bench_with_its_last_lines() -> None:
    too_small = Case("torch", **{**SMALL, "batch": 1})
    with (
        paired.PairedRanks.of(too_small, 1) as ranks,
        pytest.raises(SystemExit, match="ValueError: Expected more than"),
    ):
        ranks.blocks("A", 1)


@slow
@pytest.mark.framework
@pytest.mark.parametrize("processes", [1, 2])
def test_blocks_follow_the_work_of_a_witness_or_none_of_it(processes: int) -> None:
    small = Case("torch", **SMALL)
    plan, trial = small.make_trial(processes)
    digests = []
    for order in ("A", "B"):
        with paired.PairedRanks(plan, trial, small.python, paired.WITNESS) as ranks:
            assert all(block["seconds"] > 0 for block in ranks.blocks(order, 2))
            digests.append(ranks.finish())
    assert digests[0] != digests[1]  # the closing steps began from the initial weights again
