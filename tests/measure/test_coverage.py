"""The intervals of a run with a time budget contain the true speed as often as docs/method.md promises.

bench/intervals.py simulates many runs at once. The first tests show that it follows the rule of measure/order.py and
computes the intervals of analyse/statistics.py; the last ones use it with fixed seeds.
"""

import math
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from test_order import a_plan, good

import intervals as coverage
from trainscale.analyse.statistics import mean_interval, ratio_interval
from trainscale.measure.order import choose_next_trial
from trainscale.record.trial import TrialRecord

_TRIAL_SECONDS = 12.0


def follow_the_plan(speeds: Any, trials: int) -> dict[int, list[float]]:
    """Let measure/order.py choose trials whose speeds are given (point, repeat). Return the speeds of every point."""
    plan = a_plan(4, budget=_TRIAL_SECONDS * trials)
    rows = {devices: row for row, (_, devices) in enumerate(plan.points)}
    measured: dict[int, list[float]] = defaultdict(list)
    records: list[TrialRecord] = []
    while (step := choose_next_trial(plan, records)) is not None:
        devices = step.trial.devices
        speed = float(speeds[rows[devices], step.trial.repeat])
        records.append(good(step.trial, 1e9 * speed, _TRIAL_SECONDS))  # a record counts whole images
        measured[devices].append(speed)
    return measured


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("repeats", [4, 6, 30])
def test_the_simulation_repeats_points_as_a_run_does(seed: int, repeats: int) -> None:
    speeds = coverage.DISTRIBUTIONS["normal"](np.random.default_rng(seed), 0.008, (1, 3, 40))
    simulated = coverage.Runs.of(speeds, coverage.NEW).stop([repeats])[repeats]
    measured = follow_the_plan(speeds[0], repeats * 3)
    assert [len(values) for _, values in sorted(measured.items())] == simulated[0].tolist()


def test_the_simulation_has_the_intervals_of_the_report() -> None:
    speeds = coverage.DISTRIBUTIONS["outliers"](np.random.default_rng(7), 0.02, (200, 2, 60))
    runs = coverage.Runs.of(speeds, coverage.NEW)
    counts = runs.stop([20])[20]
    points, ratios = coverage.covered(runs, counts)
    assert (~points).sum() > 0
    for run in range(len(speeds)):
        first, second = (speeds[run, point, : counts[run, point]].tolist() for point in (0, 1))
        for values, is_covered in zip((first, second), points[run], strict=True):
            interval = mean_interval(values, sequential=True)
            assert (interval.low <= 1 <= interval.high) == is_covered  # type: ignore[operator]
        ratio = ratio_interval(second, first, sequential=True)
        assert (ratio.low <= 1 <= ratio.high) == ratios[run, 0]  # type: ignore[operator]


def least_allowed(samples: int) -> float:
    """Return the promised share, less what chance may take from the worst of the simulations below.

    A simulated share p of n samples has a standard error of √(p(1 - p)/n). A share that equals the promise lies more
    than 4 errors below it with a probability of 3·10⁻⁵: one of the 320 shares below, with a probability of 1 %.
    """
    return float(coverage.PROMISED - 4 * math.sqrt(coverage.PROMISED * (1 - coverage.PROMISED) / samples))


@pytest.mark.parametrize("name", coverage.DISTRIBUTIONS)
@pytest.mark.parametrize("cv", [0.003, 0.01, 0.02, 0.03])
def test_intervals_cover_whenever_the_budget_ends(name: str, cv: float) -> None:
    samples = 8000
    results = coverage.simulate(coverage.DISTRIBUTIONS[name], cv, 2, samples, seed=11)
    for budget, result in results.items():
        assert result.mean >= least_allowed(samples), f"{budget} repeats"
        # Two points have one ratio.
        assert result.ratio >= least_allowed(samples // 2), f"ratios, {budget} repeats"


def test_the_rule_of_earlier_versions_does_not_cover() -> None:
    results = coverage.simulate(coverage.DISTRIBUTIONS["normal"], 0.02, 1, 4000, seed=11, rule=coverage.OLD)
    assert results[coverage.MOST_REPEATS].mean < least_allowed(4000)
