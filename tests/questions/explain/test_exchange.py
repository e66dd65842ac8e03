"""What the exchange moves, how fast it is alone, and from which batch on a point would be efficient."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted import explain_only, run, small_config, trials

from trainscale.questions.explain.explain import fit_exchanges, fit_line
from trainscale.record.trial import BatchTime, ExchangeTime, TrialRecord

CONFIG = small_config()
SIZES = (4096, 65536, 1_048_576, 16_777_216)


def sweep(latency: float, rate: float) -> tuple[ExchangeTime, ...]:
    return tuple(ExchangeTime(size, 5, 5 * (latency + size / rate)) for size in SIZES)


def test_latency_and_rate_are_fitted_to_the_slowest_rank() -> None:
    records = trials(CONFIG, 2, 0.05)
    for index, record in enumerate(records):
        fast, slow = record.ranks
        ranks = (replace(fast, exchanges=sweep(1e-4, 4e9)), replace(slow, exchanges=sweep(2e-4, 1e9)))
        records[index] = replace(record, ranks=ranks)
    assert fit_exchanges(records) == pytest.approx((2e-4, 1e9))
    one_size = trials(CONFIG, 2, 0.05, rank={"exchanges": sweep(0.0, 1e9)[:1]})
    assert fit_exchanges(one_size) == pytest.approx((0.0, 1e9)), "a rate without latency"
    assert fit_exchanges(trials(CONFIG, 2, 0.05)) is None


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
