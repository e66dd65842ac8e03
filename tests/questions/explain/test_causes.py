"""Every cause, planted in numbers: the parts say how large it is, and the verdict names it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted import REPEATS, change_rank, explain_only, run, shares, small_config, trials

from trainscale.questions.explain import explain
from trainscale.questions.explain.causes import (
    COMMUNICATION,
    CONTENTION,
    CROSSING,
    INPUT,
    SERVERS,
    STRAGGLERS,
    WORK,
)
from trainscale.questions.explain.explain import explain_records
from trainscale.record.trial import ServerResult, TrialRecord
from trainscale.spec.config import remove_exchange

CONFIG = small_config()


INDEPENDENT = "the strategy independent on {}"
PS = small_config(strategy="ps", servers=1)
LARGE = {"parameters": 61_100_840}  # they take 0.2 s in a ring of two at 10 Gbit/s


def without_one_device(records: list[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.trial.devices > 1]


@pytest.mark.parametrize(
    ("records", "verdict", "parts"),
    [
        (
            run(CONFIG, work=0.06, apart=0.09, step=0.1),
            CONTENTION,
            {WORK: 0.6, CONTENTION: 0.3, STRAGGLERS: 0, COMMUNICATION: 0.1},
        ),
        (
            run(CONFIG, work=0.06, apart=0.061, step=0.1),
            COMMUNICATION,
            {WORK: 0.6, CONTENTION: 0.01, STRAGGLERS: 0, COMMUNICATION: 0.39},
        ),
        (
            [*run(PS, work=0.05, apart=0.05, step=0.1, devices=4), *trials(PS, 1, 0.06)],
            SERVERS,
            {WORK: 0.5, CONTENTION: 0, STRAGGLERS: 0, COMMUNICATION: 0.1, SERVERS: 0.4},
        ),
        (  # under strong scaling the work is divided
            run(small_config(scaling="strong"), work=0.1, apart=0.06, step=0.1),
            COMMUNICATION,
            {WORK: 0.5, CONTENTION: 0.1, STRAGGLERS: 0, COMMUNICATION: 0.4},
        ),
        (  # local serves as the one-device point, too
            [*trials(replace(CONFIG, strategy="local"), 1, 0.05), *trials(CONFIG, 1, 0.07), *trials(CONFIG, 2, 0.1)],
            explain.TOGETHER,
            {WORK: 0.5, f"{CONTENTION} and {STRAGGLERS} and {COMMUNICATION}": 0.5},
        ),
        (
            [*trials(CONFIG, 1, 0.06), *trials(CONFIG, 2, 0.1)],
            explain.TOGETHER,
            {WORK: 0.6, f"{CONTENTION} and {STRAGGLERS} and {COMMUNICATION}": 0.4},
        ),
        (
            without_one_device(run(CONFIG, 0.05, 0.06, 0.1)),
            COMMUNICATION,
            {f"{WORK} and {CONTENTION}": 0.6, STRAGGLERS: 0, COMMUNICATION: 0.4},
        ),
        (  # one worker with its server is not the work alone
            [*without_one_device(run(PS, 0.05, 0.06, 0.1)), *trials(PS, 1, 0.07)],
            explain.TOGETHER,
            {f"{WORK} and {CONTENTION}": 0.6, STRAGGLERS: 0, f"{COMMUNICATION} and {SERVERS}": 0.4},
        ),
        (
            trials(CONFIG, 2, 0.1),
            explain.UNKNOWN,
            {f"{WORK} and {CONTENTION} and {STRAGGLERS} and {COMMUNICATION}": 1},
        ),
        (
            run(CONFIG, work=0.05, apart=0.0501, step=0.0505),
            explain.NOTHING,
            {WORK: 0.99, CONTENTION: 0, STRAGGLERS: 0, COMMUNICATION: 0.01},
        ),
        (run(CONFIG, work=0.3, apart=0.3, step=1.2, **LARGE), explain.TOO_SMALL, None),
        (run(CONFIG, work=0.5, apart=0.5, step=1.2, **LARGE), COMMUNICATION, None),
        # Links that are much faster still: the exchange is a part of the loss, and smaller than the work.
        (run(CONFIG, work=0.03, apart=0.03, step=0.04, **LARGE), COMMUNICATION, None),
    ],
)
def test_parts_are_what_each_cause_adds_and_the_largest_is_the_verdict(
    records: list[TrialRecord], verdict: str, parts: dict[str, float] | None
) -> None:
    point = explain_only(records)
    assert point.verdict == verdict
    assert parts is None or shares(point) == pytest.approx(parts, abs=0.005)
    work = shares(point).get(WORK)
    assert (point.loss.mean if point.loss else None) == (None if work is None else pytest.approx(1 - work, abs=0.005))


def test_what_was_not_measured_is_named() -> None:
    alone, several = trials(CONFIG, 1, 0.06), trials(CONFIG, 2, 0.1)
    assert explain_only([*alone, *several]).missing == (INDEPENDENT.format("2 devices"),)
    assert explain_only(several).missing == ("the same work on one device", INDEPENDENT.format("2 devices"))
    with_server = [*without_one_device(run(PS, 0.05, 0.06, 0.1)), *trials(PS, 1, 0.07)]
    assert explain_only(with_server).missing == (INDEPENDENT.format("1 device"),)


def test_the_server_that_holds_most_is_known() -> None:
    servers = (ServerResult(updates=50, bytes=5_000_000),)
    exchange = explain_only([*run(PS, 0.05, 0.05, 0.1, devices=4, servers=servers), *trials(PS, 1, 0.06)]).exchange
    assert exchange is not None
    assert (exchange.servers, exchange.server_bytes) == (1, 5_000_000)


def test_a_slow_rank_is_named_and_its_slowness_is_no_contention() -> None:
    point = explain_only(run(CONFIG, work=0.05, apart=(0.05, 0.1), step=0.105))
    assert shares(point)[STRAGGLERS] == pytest.approx(0.05 / 0.105, abs=0.005)
    assert shares(point)[CONTENTION] == pytest.approx(0, abs=0.005)
    assert point.verdict == explain.SLOW_RANK
    (slow,) = point.slow_ranks
    assert (slow.rank, slow.host) == (1, "localhost")
    assert slow.factor == pytest.approx(2)
    assert slow.since_step is None


def test_ranks_that_take_turns_in_being_slow_are_stragglers() -> None:
    records = run(CONFIG, work=0.05, apart=0.05, step=0.105)
    turns = {0: [0.04, 0.1] * 20, 1: [0.1, 0.04] * 20}
    for index, record in enumerate(records):
        if record.trial.config.strategy == "independent" and record.trial.devices == 2:
            for rank, steps in turns.items():
                window = sum(steps)
                record = change_rank(record, rank, step_seconds=tuple(steps), window_seconds=window, cpu_seconds=window)
            records[index] = record
    point = explain_only(records)
    assert point.verdict == STRAGGLERS
    assert shares(point)[STRAGGLERS] == pytest.approx(0.03 / 0.105, abs=0.005)
    assert shares(point)[CONTENTION] == pytest.approx(0.02 / 0.105, abs=0.005)


def test_input_is_what_resident_samples_save() -> None:
    config = small_config(data="mnist")
    rank = {"resident_steps": 20, "resident_seconds": 20 * 0.05, "waited_seconds": 1.0}
    records = run(config, work=0.05, apart=0.1, step=0.1, rank=rank)
    point = explain_only(records)
    assert shares(point)[INPUT] == pytest.approx(0.5, abs=0.005)
    assert shares(point)[WORK] == pytest.approx(0.5, abs=0.005)
    assert point.verdict == INPUT
    assert point.waited_share == pytest.approx(1.0 / (40 * 0.1), rel=0.02)


def test_crossing_hosts_is_what_the_exchange_takes_longer_than_on_one_host() -> None:
    records = run(CONFIG, work=0.05, apart=0.05, step=0.06, devices=2)
    independent = remove_exchange(CONFIG)
    records += trials(independent, 4, 0.05, hosts=2) + trials(CONFIG, 4, 0.1, hosts=2)
    near, far = explain_records(records)
    assert CROSSING not in shares(near)
    # On two devices half of a ring's traffic is sent, on four three quarters: 10 ms become 15.
    assert shares(far)[COMMUNICATION] == pytest.approx(0.15, abs=0.005)
    assert shares(far)[CROSSING] == pytest.approx(0.35, abs=0.005)
    assert far.verdict == CROSSING


def test_a_loss_that_is_not_larger_than_chance_is_called_noise() -> None:
    records = run(CONFIG, work=0.05, apart=0.05, step=0.056)
    noisy = []
    for record in records:
        if record.trial.devices == 2:
            factor = (0.8, 1.25, 0.9, 1.2, 0.85)[record.trial.repeat]
            ranks = tuple(
                replace(rank, window_seconds=rank.window_seconds * factor, step_seconds=()) for rank in record.ranks
            )
            record = replace(record, ranks=ranks)
        noisy.append(record)
    assert explain_only(noisy).verdict == explain.NOISE


def test_one_repeat_has_no_intervals() -> None:
    point = explain_only(run(CONFIG, 0.06, 0.061, 0.1, repeats=1))
    assert all(part.measured.low is None for part in point.parts)
    assert point.has_few_repeats
    assert point.verdict == COMMUNICATION


# ---- negative parts


def test_a_part_that_chance_made_negative_is_shown_as_nothing() -> None:
    point = explain_only(run(CONFIG, work=0.0500, apart=0.0499, step=0.1))
    contention = next(part for part in point.parts if part.causes == (CONTENTION,))
    assert contention.share == 0
    assert contention.measured.mean < 0
    assert not contention.is_impossible


def test_a_part_that_is_negative_by_more_than_chance_is_flagged() -> None:
    point = explain_only(run(CONFIG, work=0.06, apart=0.05, step=0.1))
    contention = next(part for part in point.parts if part.causes == (CONTENTION,))
    assert contention.is_impossible
    assert shares(point)[WORK] == pytest.approx(0.6, abs=0.005)


@pytest.mark.parametrize(("apart", "is_impossible"), [(0.055, False), (0.045, True)])
def test_without_an_interval_only_a_large_negative_part_is_flagged(apart: float, is_impossible: bool) -> None:
    point = explain_only(run(CONFIG, work=0.06, apart=apart, step=0.1, repeats=1))
    contention = next(part for part in point.parts if part.causes == (CONTENTION,))
    assert contention.is_impossible == is_impossible


def test_a_point_that_is_faster_than_one_device_is_all_work() -> None:
    point = explain_only(run(CONFIG, work=0.06, apart=0.06, step=0.05))
    assert shares(point)[WORK] == 1
    assert point.loss is not None
    assert point.loss.mean < 0


def test_asynchronous_points_are_not_explained() -> None:
    assert explain_records(trials(small_config(strategy="ps-async", servers=1), 2, 0.1)) == []


def test_intervals_are_the_same_every_time_and_contain_the_truth() -> None:
    records = run(CONFIG, work=0.06, apart=0.07, step=0.1)
    first, second = explain_records(records), explain_records(records)
    assert first == second
    for part, truth in zip(first[0].parts, (0.6, 0.1, 0.0, 0.3), strict=True):
        assert part.measured.low is not None
        assert part.measured.high is not None
        assert part.measured.low <= truth + 1e-9
        assert truth - 1e-9 <= part.measured.high
    assert len(records) == 3 * REPEATS


def test_a_part_that_looks_large_while_the_loss_may_be_nothing_is_noise() -> None:
    """Ranks that exchange nothing are steady and slow; those that exchange gradients vary, and may be as fast."""
    records = run(CONFIG, work=0.05, apart=0.056, step=0.058)
    varied = []
    for record in records:
        if record.trial.config == CONFIG:
            factor = (0.75, 1.25, 0.8, 1.3, 0.9)[record.trial.repeat]
            ranks = tuple(replace(rank, window_seconds=rank.window_seconds * factor) for rank in record.ranks)
            record = replace(record, ranks=ranks)
        varied.append(record)
    point = explain_only(varied)
    assert next(part for part in point.parts if part.causes == (CONTENTION,)).stands_out
    assert point.verdict == explain.NOISE
