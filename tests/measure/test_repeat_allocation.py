"""Which point is repeated next with --until-interval, and when the run is done."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from test_order import a_plan, bad, good, play

from trainscale.analyse.series import build_series
from trainscale.analyse.statistics import Estimate
from trainscale.errors import InputError
from trainscale.measure.context import make_spec
from trainscale.measure.order import MOST_REPEATS, Repeated, choose_point, list_intervals
from trainscale.record.run import RunInfo
from trainscale.record.trial import OUT_OF_MEMORY, TrialRecord
from trainscale.spec.config import Config, Trial
from trainscale.spec.experiment import make_experiment
from trainscale.worker.job import Measure

CONFIG = Config("torch", "mnist", 8, "allreduce", 28, 10)
ONE, MANY = (CONFIG, 1), (CONFIG, 64)


def repeated(cv: float, repeats: int, cost: float, baseline: tuple[Config, int] | None = None) -> Repeated:
    error = cv / repeats**0.5
    return Repeated(Estimate(100.0, repeats, error, is_sequential=True), cost, baseline)


def test_a_narrow_ladder_is_done() -> None:
    points = {ONE: repeated(0.001, 4, 10), MANY: repeated(0.001, 4, 640, ONE)}
    assert choose_point(points, 0.01) is None
    assert 0.001 < max(width for _, width in list_intervals(points)) < 0.01


def test_the_cheap_baseline_gets_its_share() -> None:
    """Repeats tend to CV/√cost: beside a point of 64 devices the baseline has eight times its repeats."""
    repeats = {ONE: 4, MANY: 4}
    while (
        point := choose_point(
            {ONE: repeated(0.02, repeats[ONE], 10), MANY: repeated(0.02, repeats[MANY], 640, ONE)}, 0.012
        )
    ) is not None:
        repeats[point] += 1
    assert 5 < repeats[ONE] / repeats[MANY] < 9


def test_a_speed_that_is_wide_by_itself_is_repeated_whatever_it_costs() -> None:
    points = {ONE: repeated(0.001, 4, 10), MANY: repeated(0.05, 4, 640, ONE)}
    assert choose_point(points, 0.01) == MANY


def test_a_baseline_that_is_part_of_more_wide_intervals_gains_more() -> None:
    others = {(CONFIG, n): repeated(0.01, 8, 10, ONE) for n in (2, 4, 8)}
    assert choose_point({ONE: repeated(0.01, 8, 25), **others}, 0.01) == ONE
    assert choose_point({ONE: repeated(0.01, 8, 25), (CONFIG, 2): others[CONFIG, 2]}, 0.01) == (CONFIG, 2)


def test_nothing_is_repeated_for_ever() -> None:
    assert choose_point({ONE: repeated(0.9, MOST_REPEATS, 10)}, 0.01) is None
    assert choose_point({ONE: repeated(0.9, MOST_REPEATS - 1, 10)}, 0.01) == ONE


# ---- as the order of a run


def noisy(cv: float, seed: int = 1) -> Any:
    source = random.Random(seed)

    def outcome(trial: Trial) -> TrialRecord:
        return good(trial, 1e6 * trial.devices * source.gauss(1, cv), 12.0)

    return outcome


def test_a_quiet_ladder_takes_four_rounds() -> None:
    steps, _ = play(a_plan(4, until_interval=0.01, warmup=3, steps=7), noisy(0.0005))
    assert Counter(step.trial.devices for step in steps) == {1: 4, 2: 4, 4: 4}
    assert [step.trial.devices for step in steps[:6]] == [1, 2, 4, 4, 2, 1]
    assert {step.measure for step in steps} == {Measure(3, 7, 8.0, 20)}  # trials of 12 s cost 8 s besides their steps


@pytest.mark.parametrize("target", [0.01, 0.02])
def test_in_the_end_all_intervals_of_the_report_are_narrow(target: float) -> None:
    plan = a_plan(4, until_interval=target)
    steps, records = play(plan, noisy(0.012))
    (series,) = build_series(records, by_budget=RunInfo(make_spec(plan)).is_sequential)
    for point in series.points:
        assert (point.samples_per_second.relative or 1) <= target  # type: ignore[union-attr]
        assert point.devices == 1 or (point.efficiency.relative or 1) <= target  # type: ignore[union-attr]
    counts = Counter(step.trial.devices for step in steps)
    assert counts[1] > counts[4] >= 4


def test_a_point_that_cannot_run_does_not_hold_up_the_others() -> None:
    steps, _ = play(
        a_plan(4, until_interval=0.01),
        lambda trial: bad(trial, OUT_OF_MEMORY) if trial.devices == 4 else noisy(0.0005)(trial),
    )
    assert Counter(step.trial.devices for step in steps) == {1: 4, 2: 4, 4: 1}
    steps, _ = play(a_plan(1, until_interval=0.01), lambda trial: bad(trial, OUT_OF_MEMORY))
    assert len(steps) == 1


def test_a_budget_limits_it() -> None:
    steps, _ = play(a_plan(2, until_interval=0.001, budget=12.0 * 14), noisy(0.02))
    assert len(steps) == 14
    assert all(step.measure.seconds is not None for step in steps)


def test_the_setting_is_part_of_the_run() -> None:
    spec = make_spec(a_plan(2, until_interval=0.01))
    assert spec["until_interval"] == 0.01
    assert "repeats" not in spec
    assert RunInfo(spec).is_sequential
    assert not RunInfo(make_spec(a_plan(2))).is_sequential


@pytest.mark.parametrize("other", ["repeats", "epochs", "until_accuracy", "search"])
def test_it_excludes_what_decides_the_repeats_otherwise(other: str) -> None:
    with pytest.raises(InputError, match="exclude each other"):
        make_experiment({"until_interval": 0.01, other: 3})


def test_under_a_budget_all_devices_wait_so_the_baseline_costs_as_much() -> None:
    shares = []
    for further in ({}, {"budget": 12.0 * 2000}):
        counts: Counter[int] = Counter()
        for seed in range(5):
            steps, _ = play(a_plan(4, until_interval=0.01, **further), noisy(0.012, seed))
            counts.update(step.trial.devices for step in steps)
        shares.append(counts[1] / counts[4])
    assert shares[0] > 1.2 * shares[1]
