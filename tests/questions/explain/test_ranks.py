"""Slow ranks: which, how slow, since when, and why: cores that they do not get whole, clocks that something limits.

Step times and CPU shares of missing cores are those of real trials on two cores.
"""

import random
from collections.abc import Sequence

import pytest
from planted import change_rank, explain_only, give_cores, run, shares, small_config, trials

from trainscale.questions.explain import explain
from trainscale.questions.explain.causes import COMMUNICATION, CONTENTION, SERVERS, STRAGGLERS
from trainscale.questions.explain.explain import explain_records
from trainscale.questions.explain.ranks import (
    ANOTHER_PROGRAM,
    LIMIT,
    SLOW_CLOCK,
    SLOW_DEVICE,
    LimitedGpu,
    find_limited_gpus,
    find_slow_ranks,
)
from trainscale.questions.explain.text import render_document
from trainscale.record.trial import GpuState, MachineLoad, TrialRecord
from trainscale.spec.config import Config, remove_exchange

CONFIG = small_config()
APART = small_config(strategy="independent")
GPU = small_config(device="cuda")
Shares = Sequence[float]


def with_steps(records: list[TrialRecord], seconds: Sequence[float]) -> list[TrialRecord]:
    """Return the trials, in which rank 1 took these seconds a step."""
    return [change_rank(record, 1, window_seconds=step * 40) for record, step in zip(records, seconds, strict=True)]


@pytest.mark.parametrize(
    ("records", "slow"),
    [
        (trials(APART, 1, 0.05), []),
        (trials(APART, 4, 0.05), []),
        (with_steps(trials(APART, 2, (0.05, 0.08)), (0.08, 0.08, 0.05, 0.08, 0.08)), []),  # not in every repeat
        (with_steps(trials(APART, 2, (0.05, 0.08), repeats=3), (0.055, 0.11, 0.06)), []),  # it varies much
        (trials(APART, 5, (0.05, 0.07, 0.05, 0.1, 0.05)), [(3, 2.0), (1, 1.4)]),  # the slowest first
    ],
)
def test_ranks_that_are_slow_in_every_repeat_are_named(
    records: list[TrialRecord], slow: list[tuple[int, float]]
) -> None:
    assert [(entry.rank, round(entry.factor, 2)) for entry in find_slow_ranks(records)] == slow


def test_a_rank_that_becomes_slow_is_dated_and_one_that_was_slow_from_the_start_is_not() -> None:
    steps = (0.05,) * 25 + (0.1,) * 15
    records = [
        change_rank(record, 1, step_seconds=steps, window_seconds=sum(steps)) for record in trials(APART, 2, 0.05)
    ]
    (slow,) = find_slow_ranks(records)
    assert (slow.since_step, slow.since_seconds) == (26, pytest.approx(25 * 0.05))
    numbers = random.Random(5)
    records = []
    for record in trials(APART, 2, 0.05):
        steps = tuple(0.08 * numbers.uniform(0.9, 1.1) for _ in range(40))
        records.append(change_rank(record, 1, step_seconds=steps, window_seconds=sum(steps)))
    (slow,) = find_slow_ranks(records)
    assert slow.since_step is None


@pytest.mark.parametrize(
    ("cpu_seconds", "core_wait", "reason"),
    [(2.0, 1.9, ANOTHER_PROGRAM), (2.0, 0.1, LIMIT), (4.0, 0.1, SLOW_DEVICE), (4.0, None, None)],
)
def test_the_share_of_its_core_and_waiting_for_it_are_evidence(
    cpu_seconds: float, core_wait: float | None, reason: str | None
) -> None:
    records = trials(APART, 2, (0.05, 0.1), machine=MachineLoad(other_cores=0.97))
    records = [change_rank(record, 0, cpu_seconds=2.0) for record in records]
    records = [change_rank(r, 1, cpu_seconds=cpu_seconds, core_wait_seconds=core_wait) for r in records]
    (slow,) = find_slow_ranks(records)
    assert slow.core_share == pytest.approx(cpu_seconds / 4, rel=0.02)
    assert slow.others_core_share == pytest.approx(1.0, rel=0.02)
    assert slow.other_cores == 0.97
    assert slow.reason == reason


# ---- cores


def measure(
    work: float,
    apart: Sequence[float],
    apart_cores: tuple[Shares, Shares],
    step: float,
    cores: tuple[Shares, Shares],
    config: Config = CONFIG,
) -> list[TrialRecord]:
    """One device and several apart and together; a pair is the shares of their cores and of the waits for them."""
    independent = remove_exchange(config)
    return [
        *trials(independent, 1, work),
        *give_cores(trials(independent, len(apart), apart), *apart_cores),
        *give_cores(trials(config, len(apart), step), *cores),
    ]


@pytest.mark.parametrize(("wait", "reason"), [(0.5, ANOTHER_PROGRAM), (0.03, LIMIT)])
def test_a_rank_with_half_a_core_is_named_though_its_steps_apart_are_not_longer(wait: float, reason: str) -> None:
    """In windows of 0.2 s, ranks that exchange nothing took 6.5 and 6.8 ms a step, and 17 ms together."""
    lacking = ((1.0, 0.5), (0.0, wait))
    point = explain_only(measure(0.0048, (0.0065, 0.0068), lacking, 0.017, ((0.43, 0.48), (0.14, wait))))
    assert point.verdict == explain.SLOW_RANK
    (slow,) = point.slow_ranks
    assert (slow.rank, slow.reason, slow.has_longer_steps) == (1, reason, False)
    # The CPU time of a step, 0.48 of 17 ms, takes twice as long on half a core: 8.2 ms longer.
    assert shares(point)[STRAGGLERS] == pytest.approx(0.48, abs=0.005)
    assert shares(point)[COMMUNICATION] == pytest.approx(1 - 0.48 - 6.5 / 17, abs=0.01)


def test_the_interval_of_a_missing_core_is_that_of_cpu_time_and_not_of_varying_steps() -> None:
    """Without exchange, the steps of a rank that was stopped half of the time took 15 or 22 ms."""
    records = measure(0.008, (0.0077, 0.0225), ((1.0, 0.55), (0.0, 0.1)), 0.0257, ((0.5, 0.55), (0.0, 0.1)))
    slower = [record for record in records if record.trial.devices == 2 and record.trial.repeat != 2]
    other = measure(0.008, (0.0077, 0.0149), ((1.0, 0.55), (0.0, 0.1)), 0.0257, ((0.5, 0.55), (0.0, 0.1)))
    faster = [record for record in other if record.trial.devices == 2 and record.trial.repeat == 2]
    point = explain_only([*records[:5], *slower, *faster])
    waiting = next(part for part in point.parts if part.causes == (STRAGGLERS,))
    assert waiting.measured.low is not None
    assert waiting.measured.low > 0.3
    assert point.verdict == explain.SLOW_RANK


def test_ranks_that_share_a_core_contend_also_in_the_exchange() -> None:
    """On one core two ranks took 12.2 and 7.9 ms apart in every repeat, but neither core is slow."""
    both = ((0.5, 0.5), (0.5, 0.5))
    point = explain_only(measure(0.0049, (0.0122, 0.0079), both, 0.0159, both))
    assert point.verdict == CONTENTION
    assert shares(point)[CONTENTION] == pytest.approx(0.5, abs=0.005)
    assert [slow.reason for slow in point.slow_ranks] == [None]


def test_a_rank_with_half_a_core_behind_a_slow_link_waits_for_the_link() -> None:
    lacking = ((1.0, 0.5), (0.0, 0.5))
    point = explain_only(measure(0.03, (0.03, 0.06), lacking, 0.58, ((0.06, 0.06), (0.0, 0.06))))
    assert point.verdict == COMMUNICATION
    assert shares(point)[STRAGGLERS] == pytest.approx(0.03 / 0.58, abs=0.005)


def test_workers_that_share_cores_but_wait_for_their_server_do_not_contend_more() -> None:
    config = small_config(strategy="ps", servers=1)
    apart, together = ((0.5,) * 4, (0.5,) * 4), ((0.23,) * 4, (0.2,) * 4)
    records = measure(0.006, (0.0135,) * 4, apart, 0.052, together, config)
    point = explain_only([*records, *trials(config, 1, 0.021)])
    assert point.verdict == SERVERS
    assert shares(point)[CONTENTION] == pytest.approx(0.0075 / 0.052, abs=0.005)


@pytest.mark.parametrize("changes", [{"device": "cuda"}, {"data": "mnist"}])
def test_little_cpu_time_is_no_missing_core_where_ranks_wait_for_gpus_or_samples(changes: dict[str, str]) -> None:
    lacking = ((1.0, 0.5), (0.0, 0.0))
    point = explain_only(measure(0.05, (0.05, 0.05), lacking, 0.1, lacking, small_config(**changes)))
    assert point.slow_ranks == ()
    assert shares(point)[STRAGGLERS] == 0


def test_ranks_whose_cpu_time_was_not_counted_are_judged_by_their_steps() -> None:
    point = explain_only(run(CONFIG, 0.05, (0.05, 0.1), 0.105, rank={"cpu_seconds": None}))
    assert point.verdict == explain.SLOW_RANK
    assert shares(point)[STRAGGLERS] == pytest.approx(0.05 / 0.105, abs=0.005)


def test_without_one_device_the_other_ranks_show_what_a_whole_core_is() -> None:
    records = measure(0.05, (0.05, 0.06), ((1.0, 0.5), (0.0, 0.5)), 0.12, ((0.5, 0.5), (0.1, 0.5)))
    point = explain_only([record for record in records if record.trial.devices == 2])
    assert shares(point)[STRAGGLERS] == pytest.approx(0.5, abs=0.005)


# ---- clocks of GPUs


def gpu(mhz: float, share: float = 0.0, **reasons: float) -> GpuState:
    by = {name.replace("_", " "): value for name, value in reasons.items()}
    return GpuState(8, sm_mhz_mean=mhz, sm_mhz_min=int(mhz), sm_mhz_limit=1980, limited_share=share, limited_by=by)


CAPPED = gpu(1200.0, 0.6, temperature=0.1, power_cap=0.6)
FREE = gpu(1950.0, 0.05, power_cap=0.05)


def with_gpus(records: list[TrialRecord], first: GpuState | None, second: GpuState | None) -> list[TrialRecord]:
    return [change_rank(change_rank(record, 0, gpu=first), 1, gpu=second) for record in records]


def text_of(records: list[TrialRecord]) -> str:
    return " ".join(render_document(explain_records(records), "", "text").replace("\u202f", " ").split())


def test_a_gpu_that_was_limited_is_named_with_its_clock_and_the_reasons() -> None:
    (limited,) = find_limited_gpus(with_gpus(trials(GPU, 2, 0.05), FREE, CAPPED))
    assert limited == LimitedGpu(1, "localhost", 1200.0, 1980, 0.6, ("power cap", "temperature"))
    short, high = gpu(1500.0, 0.05, power_cap=0.05), gpu(1960.0, 1.0, application_clocks=1.0)
    assert find_limited_gpus(with_gpus(trials(GPU, 2, 0.05), short, high)) == (), "moments, and a clock that is high"
    assert find_limited_gpus(trials(GPU, 2, 0.05)) == (), "no samples"
    assert "GPU" not in text_of(run(GPU, 0.05, 0.05, 0.1))


LIMIT_OF_CAPPED = "1,200 MHz of 1,980 (power cap, temperature in 60 % of the window)"


def test_a_note_of_the_explanation_names_the_gpu() -> None:
    text = text_of(with_gpus(run(GPU, 0.05, 0.05, 0.1), FREE, CAPPED))
    assert f"note: the GPU of rank 1 on localhost ran at {LIMIT_OF_CAPPED}" in text
    assert "of rank 0" not in text


def test_many_limited_gpus_are_one_note() -> None:
    records = []
    for record in run(GPU, 0.05, 0.05, 0.1, devices=8):
        for rank in range(8):
            record = change_rank(record, rank, gpu=gpu(1200.0 + 10 * rank, 0.6, power_cap=0.6))
        records.append(record)
    assert (
        "the GPUs of 8 of 8 ranks ran below their highest clock of 1,980 MHz, from 1,200 MHz (rank 0 on localhost) to"
        " 1,270 MHz; limited by power cap"
    ) in text_of(records)


def test_the_clock_of_its_gpu_is_the_reason_of_a_slow_rank_unless_it_is_equal() -> None:
    records = with_gpus(run(GPU, 0.05, (0.05, 0.08), 0.085), FREE, CAPPED)
    (slow,) = find_slow_ranks([record for record in records if len(record.ranks) == 2][:5])
    assert (slow.reason, slow.gpu_mhz, slow.others_gpu_mhz) == (SLOW_CLOCK, 1200.0, 1950.0)
    assert f"Its GPU ran at {LIMIT_OF_CAPPED}, those of the others at 1,950 MHz" in text_of(records)
    text = text_of(with_gpus(run(GPU, 0.05, (0.05, 0.08), 0.085), FREE, FREE))
    assert "Its GPU ran at 1,950 MHz and those of the others at 1,950 MHz, so it is not the clock" in text


def test_contention_says_whether_the_clocks_of_gpus_that_train_together_are_lower() -> None:
    slower = [
        change_rank(change_rank(record, 0, gpu=FREE if len(record.ranks) == 1 else CAPPED), 1, gpu=CAPPED)
        for record in run(GPU, 0.05, 0.09, 0.095)
    ]
    text = text_of(slower)
    assert "is contention" in text
    assert "Their GPUs ran at 1,200 MHz on average, one alone at 1,950 MHz; without it" in text
    equal = with_gpus(run(GPU, 0.05, 0.09, 0.095), FREE, FREE)
    assert "one alone at 1,950 MHz, so it is not the clock; without it" in text_of(equal)
