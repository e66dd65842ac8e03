"""What the exchange moves, how fast it is alone, and from which batch on a point would be efficient."""

from __future__ import annotations

from dataclasses import replace

import pytest
from planted import explain_only, run, small_config, trials

from trainscale.questions.explain.explain import fit_exchanges, fit_line
from trainscale.record.trial import BatchTime, ExchangeTime

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


def test_one_size_gives_a_rate_without_latency() -> None:
    assert fit_exchanges(trials(CONFIG, 2, 0.05, rank={"exchanges": sweep(0.0, 1e9)[:1]})) == pytest.approx((0.0, 1e9))


def test_without_exchanges_there_is_no_rate() -> None:
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


def test_a_larger_batch_is_advised_from_the_times_of_several_batches() -> None:
    # A step takes 10 ms and 1 ms more for each sample: 64 samples 74 ms, and 30 ms are exposed.
    further = (BatchTime(32, 10, 10 * 0.042), BatchTime(128, 10, 10 * 0.138))
    advice = explain_only(run(CONFIG, 0.074, 0.074, 0.104, rank={"further_batches": further})).advice
    assert advice is not None
    assert advice.measured_batches == 3
    # 0.95 needs 0.95 · 30 / 0.05 = 570 ms of work: 560 samples.
    assert (advice.efficiency, advice.batch) == (0.95, pytest.approx(560, abs=11))


def test_a_step_that_takes_as_long_with_fewer_samples_has_no_batch_to_advise_but_says_so() -> None:
    further = (BatchTime(32, 10, 0.73), BatchTime(16, 10, 0.74))
    point = explain_only(run(CONFIG, 0.074, 0.074, 0.104, rank={"further_batches": further}))
    assert point.advice is None
    assert point.equal_batch == 16
    further = (BatchTime(32, 10, 0.42), BatchTime(16, 10, 0.26))
    assert explain_only(run(CONFIG, 0.074, 0.074, 0.104, rank={"further_batches": further})).equal_batch is None


def test_without_other_batches_a_step_is_taken_to_be_proportional_to_its_batch() -> None:
    advice = explain_only(run(CONFIG, 0.064, 0.064, 0.128)).advice
    assert advice is not None
    assert advice.measured_batches == 1
    # 0.9 needs 0.9 · 64 / 0.1 = 576 ms: 576 samples; 0.95 would need more than 16 times the batch.
    assert (advice.efficiency, advice.batch) == (0.9, pytest.approx(576, abs=12))


def test_batches_of_other_series_count_too() -> None:
    other = replace(CONFIG, batch=128, strategy="independent")
    advice = explain_only([*run(CONFIG, 0.064, 0.064, 0.128), *trials(other, 1, 0.1)]).advice
    assert advice is not None
    assert advice.measured_batches == 2


def test_no_batch_helps_against_contention() -> None:
    assert explain_only(run(CONFIG, 0.05, 0.1, 0.101)).advice is None
