"""How many steps a window has, by the cost of a start and by how steps vary within and between processes."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from test_order import a_plan

from trainscale.measure.order import (
    LEAST_STEPS,
    TrialTimes,
    choose_counts,
    choose_next_trial,
    compute_variance_ratio,
    compute_within_variance,
)
from trainscale.record.trial import RankSample, TrialRecord
from trainscale.spec.config import Trial
from trainscale.worker.job import Measure

MOST = Measure(10, 100)


def trials(count: int, within: float, between: float, seed: int = 1, **values: float) -> list[TrialTimes]:
    """Trials with steps of ``step`` seconds that cost ``overhead`` besides."""
    source = random.Random(seed)
    step, overhead, steps = values.get("step", 0.1), values.get("overhead", 10.0), int(values.get("steps", 100))
    made = []
    for _ in range(count):
        own = step * source.gauss(1, between)
        seconds = [own * source.gauss(1, within) for _ in range(steps)]
        made.append(TrialTimes(overhead + sum(seconds), sum(seconds), seconds))
    return made


def test_the_ratio_is_that_of_the_variances() -> None:
    ratio = compute_variance_ratio([trials(400, 0.05, 0.01)])
    assert ratio == pytest.approx(25.0, rel=0.2)
    assert compute_variance_ratio([trials(200, 0.05, 0.01, seed) for seed in (2, 3)]) == pytest.approx(25.0, rel=0.25)


def test_the_number_of_steps_is_the_square_root_of_costs_times_variances() -> None:
    own = trials(400, 0.05, 0.02)
    counts = choose_counts(own, [own], Measure(10, 10_000))
    assert counts is not None
    assert counts.steps == pytest.approx((10.0 / 0.1 * 6.25) ** 0.5, rel=0.1)


@pytest.mark.parametrize(("within", "between", "steps"), [(0.001, 0.05, LEAST_STEPS), (0.3, 0.0001, 100)])
def test_windows_are_neither_tiny_nor_longer_than_steps_says(within: float, between: float, steps: int) -> None:
    own = trials(50, within, between)
    assert choose_counts(own, [own], MOST) == Measure(10, steps)


def test_a_warm_up_that_costs_much_is_shortened_with_its_window() -> None:
    slow = trials(50, 0.03, 0.02, step=2.0, steps=20)
    counts = choose_counts(slow, [slow], MOST)
    assert counts is not None
    assert counts.warmup == 2
    fast = trials(50, 0.03, 0.02, step=0.01)
    counts = choose_counts(fast, [fast], MOST)
    assert counts is not None
    assert counts.warmup == 10


def test_too_few_repeats_or_no_steps_tell_nothing() -> None:
    assert compute_variance_ratio([trials(3, 0.05, 0.01)]) is None
    assert compute_variance_ratio([trials(2, 0.05, 0.01), trials(2, 0.05, 0.01, 2)]) is None
    assert compute_variance_ratio([trials(2, 0.05, 0.01, seed) for seed in range(3)]) is not None
    own = trials(4, 0.05, 0.01)
    assert choose_counts([], [own], MOST) is None
    assert choose_counts([replace(own[0], steps=())], [own], MOST) is None


def test_steps_that_drift_vary_more_than_their_neighbours_show() -> None:
    """Alternating steps cancel out in a block, slow waves do not."""
    alternating = [0.1 + 0.01 * (-1) ** number for number in range(100)]
    waves = [0.1 + 0.01 * (-1) ** (number // 20) for number in range(100)]
    calm, rough = compute_within_variance(alternating), compute_within_variance(waves)
    assert calm is not None
    assert rough is not None
    assert rough > 50 * calm
    assert compute_within_variance([0.1]) is None


# ---- as the order of a run


def record_of(trial: Trial, times: TrialTimes) -> TrialRecord:
    samples = 8 * len(times.steps)
    ranks = tuple(
        RankSample(rank, "here", samples, times.window_seconds, tuple(times.steps)) for rank in range(trial.devices)
    )
    return TrialRecord(trial, "ok", "2026", times.seconds, warmup=10, steps=len(times.steps), ranks=ranks)


@pytest.mark.parametrize("settings", [{"until_interval": 0.01}, {"until_interval": 0.01, "budget": 9000.0}])
def test_a_run_shortens_windows_of_slow_steps_as_soon_as_it_knows_how_they_vary(settings: dict[str, float]) -> None:
    plan = a_plan(2, **settings)
    source = random.Random(4)
    records: list[TrialRecord] = []
    counts = []
    for _ in range(8):
        step = choose_next_trial(plan, records)
        assert step is not None
        counts.append(step.measure.steps)
        (times,) = trials(1, 0.02, 0.03, source.randrange(1000), step=1.0, steps=min(20, step.measure.steps))
        records.append(record_of(step.trial, times))
    assert counts[:5] == [100] * 5  # a ladder of two points has three repeats beyond the first after five trials
    assert set(counts[6:]) == {LEAST_STEPS}


def test_without_a_stopping_rule_all_windows_are_as_long_as_steps_says() -> None:
    plan = a_plan(1, repeats=8)
    records = [
        record_of(Trial(plan.configs[0], 1, repeat), times) for repeat, times in enumerate(trials(6, 0.01, 0.05))
    ]
    step = choose_next_trial(plan, records)
    assert step is not None
    assert (step.measure.warmup, step.measure.steps, step.measure.seconds) == (10, 100, None)
