"""Every cause, planted in numbers: the parts say how large it is, the verdict names it; and the exchange itself."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from planted import change_rank, explain_only, run, shares, small_config, trials

from trainscale.questions.explain import explain
from trainscale.questions.explain.causes import COMMUNICATION, CONTENTION, CROSSING, INPUT, SERVERS, STRAGGLERS, WORK
from trainscale.questions.explain.explain import explain_records, fit_line
from trainscale.record.trial import BatchTime, ExchangeTime, ServerResult, TrialRecord
from trainscale.spec.config import remove_exchange

CONFIG = small_config()
STRONG = small_config(scaling="strong")
PS = small_config(strategy="ps", servers=1)
LARGE = {"parameters": 61_100_840}  # they take 0.2 s in a ring of two at 10 Gbit/s
SEPARATE = (WORK, CONTENTION, STRAGGLERS, COMMUNICATION, SERVERS)
AFTER_WORK = f"{CONTENTION} and {STRAGGLERS} and {COMMUNICATION}"


def several(records: list[TrialRecord]) -> list[TrialRecord]:
    return [record for record in records if record.trial.devices > 1]


def parts(*values: float) -> dict[str, float]:
    return dict(zip(SEPARATE, values, strict=False))


@pytest.mark.parametrize(
    ("records", "verdict", "expected"),
    [
        (run(CONFIG, 0.06, 0.09, 0.1), CONTENTION, parts(0.6, 0.3, 0, 0.1)),
        (run(CONFIG, 0.06, 0.061, 0.1), COMMUNICATION, parts(0.6, 0.01, 0, 0.39)),
        ([*run(PS, 0.05, 0.05, 0.1, devices=4), *trials(PS, 1, 0.06)], SERVERS, parts(0.5, 0, 0, 0.1, 0.4)),
        (run(STRONG, 0.1, 0.06, 0.1), COMMUNICATION, parts(0.5, 0.1, 0, 0.4)),  # the work is divided
        (  # local serves as the one-device point, too
            [*trials(replace(CONFIG, strategy="local"), 1, 0.05), *trials(CONFIG, 1, 0.07), *trials(CONFIG, 2, 0.1)],
            explain.TOGETHER,
            {WORK: 0.5, AFTER_WORK: 0.5},
        ),
        ([*trials(CONFIG, 1, 0.06), *trials(CONFIG, 2, 0.1)], explain.TOGETHER, {WORK: 0.6, AFTER_WORK: 0.4}),
        (
            several(run(CONFIG, 0.05, 0.06, 0.1)),
            COMMUNICATION,
            {f"{WORK} and {CONTENTION}": 0.6, STRAGGLERS: 0, COMMUNICATION: 0.4},
        ),
        (  # one worker with its server is not the work alone
            [*several(run(PS, 0.05, 0.06, 0.1)), *trials(PS, 1, 0.07)],
            explain.TOGETHER,
            {f"{WORK} and {CONTENTION}": 0.6, STRAGGLERS: 0, f"{COMMUNICATION} and {SERVERS}": 0.4},
        ),
        (trials(CONFIG, 2, 0.1), explain.UNKNOWN, {f"{WORK} and {AFTER_WORK}": 1}),
        (run(CONFIG, 0.05, 0.0501, 0.0505), explain.NOTHING, parts(0.99, 0, 0, 0.01)),
        (run(CONFIG, 0.3, 0.3, 1.2, **LARGE), explain.TOO_SMALL, parts(0.25, 0, 0, 0.75)),
        (run(CONFIG, 0.5, 0.5, 1.2, **LARGE), COMMUNICATION, parts(0.417, 0, 0, 0.583)),
        # Links that are much faster still: the exchange is a part of the loss, and smaller than the work.
        (run(CONFIG, 0.03, 0.03, 0.04, **LARGE), COMMUNICATION, parts(0.75, 0, 0, 0.25)),
    ],
)
def test_parts_are_what_each_cause_adds_and_the_largest_is_the_verdict(
    records: list[TrialRecord], verdict: str, expected: dict[str, float]
) -> None:
    point = explain_only(records)
    assert point.verdict == verdict
    assert shares(point) == pytest.approx(expected, abs=0.005)
    work = shares(point).get(WORK)
    assert (point.loss.mean if point.loss else None) == (None if work is None else pytest.approx(1 - work, abs=0.005))


def test_what_was_not_measured_is_named() -> None:
    on_one, on_two = trials(CONFIG, 1, 0.06), trials(CONFIG, 2, 0.1)
    apart = "the strategy independent on 2 devices"
    assert explain_only([*on_one, *on_two]).missing == (apart,)
    assert explain_only(on_two).missing == ("the same work on one device", apart)
    with_server = [*several(run(PS, 0.05, 0.06, 0.1)), *trials(PS, 1, 0.07)]
    assert explain_only(with_server).missing == ("the strategy independent on 1 device",)


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


# ---- negative parts


@pytest.mark.parametrize(
    ("work", "apart", "repeats", "is_impossible"),
    [
        (0.05, 0.0499, 5, False),  # by chance
        (0.06, 0.05, 5, True),
        (0.06, 0.055, 1, False),  # without an interval, only a large one is flagged
        (0.06, 0.045, 1, True),
    ],
)
def test_a_part_that_is_negative_by_more_than_chance_is_flagged(
    work: float, apart: float, repeats: int, is_impossible: bool
) -> None:
    point = explain_only(run(CONFIG, work, apart, 0.1, repeats=repeats))
    contention = next(part for part in point.parts if part.causes == (CONTENTION,))
    assert contention.measured.mean < 0
    assert (contention.share, contention.is_impossible) == (0, is_impossible)
    assert shares(point)[WORK] == pytest.approx(10 * work, abs=0.005)


def test_a_point_that_is_faster_than_one_device_is_all_work() -> None:
    point = explain_only(run(CONFIG, work=0.06, apart=0.06, step=0.05))
    assert shares(point)[WORK] == 1
    assert point.loss is not None
    assert point.loss.mean < 0


def test_asynchronous_points_are_not_explained() -> None:
    assert explain_records(trials(small_config(strategy="ps-async", servers=1), 2, 0.1)) == []


def test_intervals_are_the_same_every_time_contain_the_truth_and_need_repeats() -> None:
    records = run(CONFIG, work=0.06, apart=0.07, step=0.1)
    first, second = explain_records(records), explain_records(records)
    assert first == second
    for part, truth in zip(first[0].parts, (0.6, 0.1, 0.0, 0.3), strict=True):
        assert part.measured.low is not None
        assert part.measured.high is not None
        assert part.measured.low <= truth + 1e-9
        assert truth - 1e-9 <= part.measured.high
    point = explain_only(run(CONFIG, 0.06, 0.061, 0.1, repeats=1))
    assert all(part.measured.low is None for part in point.parts)
    assert point.has_few_repeats
    assert point.verdict == COMMUNICATION


def vary(records: list[TrialRecord], factors: Sequence[float], is_varied: Callable[[TrialRecord], bool]) -> None:
    for index, record in enumerate(records):
        if is_varied(record):
            factor = factors[record.trial.repeat]
            ranks = [replace(r, window_seconds=r.window_seconds * factor, step_seconds=()) for r in record.ranks]
            records[index] = replace(record, ranks=tuple(ranks))


def test_a_loss_that_is_not_larger_than_chance_is_called_noise() -> None:
    noisy = run(CONFIG, work=0.05, apart=0.05, step=0.056)
    vary(noisy, (0.8, 1.25, 0.9, 1.2, 0.85), lambda record: record.trial.devices == 2)
    assert explain_only(noisy).verdict == explain.NOISE
    # Ranks that exchange nothing are steady and slow; those that exchange gradients vary, and may be as fast.
    varied = run(CONFIG, work=0.05, apart=0.056, step=0.058)
    vary(varied, (0.75, 1.25, 0.8, 1.3, 0.9), lambda record: record.trial.config == CONFIG)
    point = explain_only(varied)
    assert next(part for part in point.parts if part.causes == (CONTENTION,)).stands_out
    assert point.verdict == explain.NOISE


# ---- what the exchange moves, how fast it is alone, and from which batch on a point would be efficient

SIZES = (4096, 65536, 1_048_576, 16_777_216)


def sweep(latency: float, rate: float) -> tuple[ExchangeTime, ...]:
    return tuple(ExchangeTime(size, 5, 5 * (latency + size / rate)) for size in SIZES)


def test_latency_and_rate_are_fitted_to_the_slowest_rank() -> None:
    records = trials(CONFIG, 2, 0.05)
    for index, record in enumerate(records):
        fast, slow = record.ranks
        ranks = (replace(fast, exchanges=sweep(1e-4, 4e9)), replace(slow, exchanges=sweep(2e-4, 1e9)))
        records[index] = replace(record, ranks=ranks)

    def latency_and_rate(records: list[TrialRecord]) -> tuple[float | None, float | None]:
        exchange = explain_records(records)[0].exchange
        assert exchange is not None
        return exchange.latency_seconds, exchange.bytes_per_second

    assert latency_and_rate(records) == pytest.approx((2e-4, 1e9))
    one_size = trials(CONFIG, 2, 0.05, rank={"exchanges": sweep(0.0, 1e9)[:1]})
    assert latency_and_rate(one_size) == pytest.approx((0.0, 1e9)), "a rate without latency"
    assert latency_and_rate(trials(CONFIG, 2, 0.05)) == (None, None)


def test_a_line_never_has_a_negative_intercept_or_slope() -> None:
    assert fit_line([(1, 2.0), (2, 1.0)])[1] == 0
    intercept, slope = fit_line([(1, 0.5), (2, 2.0), (4, 6.0)])
    assert intercept == 0
    assert slope > 0


def test_what_the_exchange_takes_alone_beyond_what_is_exposed_is_hidden() -> None:
    # 4.8 MB at 100 MB/s take 48 ms, of which 30 are exposed.
    point = explain_only(run(CONFIG, 0.07, 0.07, 0.1, rank={"exchanges": sweep(0.0, 1e8)}))
    assert point.exchange is not None
    assert point.exchange.bytes == 4 * 1_199_882
    assert point.exchange.alone_seconds == pytest.approx(0.048, rel=0.01)
    assert point.exchange.hidden_seconds == pytest.approx(0.018, rel=0.03)


# A step takes 10 ms and 1 ms more for each sample: 64 samples 74 ms.
FURTHER = {"rank": {"further_batches": (BatchTime(32, 10, 10 * 0.042), BatchTime(128, 10, 10 * 0.138))}}
OTHER_SERIES = trials(replace(CONFIG, batch=128, strategy="independent"), 1, 0.1)


@pytest.mark.parametrize(
    ("records", "efficiency", "batch", "measured"),
    [
        # 30 ms are exposed: 0.95 needs 0.95 · 30 / 0.05 = 570 ms of work, 560 samples.
        (run(CONFIG, 0.074, 0.074, 0.104, **FURTHER), 0.95, 560, 3),
        # Proportional: 0.9 needs 0.9 · 64 / 0.1 = 576 ms; 0.95 would need more than 16 times the batch.
        (run(CONFIG, 0.064, 0.064, 0.128), 0.9, 576, 1),
        ([*run(CONFIG, 0.064, 0.064, 0.128), *OTHER_SERIES], 0.9, 974, 2),
    ],
)
def test_a_larger_batch_is_advised_from_the_times_of_several_batches(
    records: list[TrialRecord], efficiency: float, batch: int, measured: int
) -> None:
    advice = explain_only(records).advice
    assert advice is not None
    assert advice.measured_batches == measured
    assert (advice.efficiency, advice.batch) == (efficiency, pytest.approx(batch, abs=12))


@pytest.mark.parametrize(("seconds", "equal"), [((0.73, 0.74), 16), ((0.42, 0.26), None)])
def test_a_step_that_takes_as_long_with_fewer_samples_has_no_batch_to_advise_but_says_so(
    seconds: tuple[float, float], equal: int | None
) -> None:
    further = tuple(BatchTime(batch, 10, of_ten) for batch, of_ten in zip((32, 16), seconds, strict=True))
    point = explain_only(run(CONFIG, 0.074, 0.074, 0.104, rank={"further_batches": further}))
    assert point.equal_batch == equal
    assert (point.advice is None) == (equal is not None)


def test_no_batch_helps_against_contention() -> None:
    assert explain_only(run(CONFIG, 0.05, 0.1, 0.101)).advice is None
