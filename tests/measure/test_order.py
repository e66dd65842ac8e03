"""Which trial comes next, by a fixed number of repeats, by a time budget and by the width of intervals."""

import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from this_machine import cpus

from trainscale.analyse.series import build_series
from trainscale.analyse.statistics import Estimate, mean_interval
from trainscale.measure.context import make_spec
from trainscale.measure.order import (
    LEAST_STEPS,
    MOST_REPEATS,
    NextTrial,
    Repeated,
    TrialTimes,
    choose_counts,
    choose_next_trial,
    choose_point,
    compute_variance_ratio,
    find_hopeless_points,
)
from trainscale.record.run import RunInfo
from trainscale.record.trial import CRASH, HANG, LOST, OUT_OF_MEMORY, TIMEOUT, Failure, RankSample, TrialRecord
from trainscale.spec.config import Config, Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.job import Measure


def a_plan(devices: int = 2, **settings: Any) -> Plan:
    return make_plan(Experiment.of(**{"models": ("mnist:8",), **settings}), cpus(devices))


def good(trial: Trial, speed: float = 100.0, seconds: float = 12.0, window: float = 2.0) -> TrialRecord:
    """A good trial of a given images/s, cluster-wide."""
    images = int(speed * window)
    ranks = tuple(RankSample(rank, "here", images // trial.devices, window, (window,)) for rank in range(trial.devices))
    return TrialRecord(trial, "ok", "2026", seconds, warmup=1, steps=1, ranks=ranks)


def bad(trial: Trial, status: str, seconds: float = 5.0) -> TrialRecord:
    return TrialRecord(trial, status, "2026", seconds, failure=Failure(status, "for a test", 0))


def play(
    plan: Plan, outcome: Callable[[Trial], TrialRecord] = good, records: Sequence[TrialRecord] = (), most: int = 200
) -> tuple[list[NextTrial], list[TrialRecord]]:
    """Run to the end with made-up outcomes: the steps taken, and all records."""
    steps: list[NextTrial] = []
    done = list(records)
    while (step := choose_next_trial(plan, done)) is not None:
        steps.append(step)
        done.append(outcome(step.trial))
        assert len(steps) < most, "a run that never ends"
    return steps, done


def shape(steps: list[NextTrial]) -> list[tuple[int, int]]:
    return [(step.trial.devices, step.trial.repeat) for step in steps]


# ---- a fixed number of repeats


def test_the_fixed_order_is_that_of_the_plan_with_its_counts_and_no_time_limit() -> None:
    plan = a_plan(4, repeats=2, warmup=3, steps=7)
    steps, done = play(plan)
    assert [step.trial for step in steps] == plan.list_trials()
    assert shape(steps) == [(1, 0), (2, 0), (4, 0), (4, 1), (2, 1), (1, 1)]
    assert {step.measure for step in steps} == {Measure(3, 7, None)}
    rest, _ = play(plan, records=[done[0], done[2]])
    assert [step.trial for step in rest] == [steps[n].trial for n in (1, 3, 4, 5)]


@pytest.mark.parametrize("settings", [{"repeats": 4}, {"budget": 600.0}], ids=["repeats", "budget"])
@pytest.mark.parametrize(("status", "tries"), [(OUT_OF_MEMORY, 1), (TIMEOUT, 1), (HANG, 1), (CRASH, 2), (LOST, 2)])
def test_points_that_fail_are_given_up(status: str, tries: int, settings: dict[str, Any]) -> None:
    plan = a_plan(**settings)
    steps, done = play(plan, lambda trial: bad(trial, status) if trial.devices == 2 else good(trial))
    assert [step.trial.repeat for step in steps if step.trial.devices == 2] == [0, 1][:tries]
    assert len([step for step in steps if step.trial.devices == 1]) >= 2
    assert find_hopeless_points(done) == {(plan.configs[0], 2)}
    everything, _ = play(plan, lambda trial: bad(trial, status))
    assert sorted(shape(everything)) == [(devices, repeat) for devices in (1, 2) for repeat in range(tries)]


def test_one_crash_among_good_trials_gives_nothing_up() -> None:
    plan = a_plan(repeats=3)
    crashed = plan.list_trials()[1].key
    steps, done = play(plan, lambda trial: bad(trial, CRASH) if trial.key == crashed else good(trial))
    assert len(steps) == 6
    assert find_hopeless_points(done) == set()


# ---- a time budget


def test_a_budget_is_spent_on_wide_intervals_after_four_rounds() -> None:
    steps, _ = play(a_plan(4, budget=600.0), good)
    forward, backward = [1, 2, 4], [4, 2, 1]
    rounds = [forward, backward, forward, backward]
    assert shape(steps) == [(devices, repeat) for repeat, ladder in enumerate(rounds) for devices in ladder]
    steps, done = play(a_plan(budget=3600.0), lambda trial: good(trial, speed=1000 + trial.repeat % 2))
    assert len(steps) == 8  # ±1 % after four repeats of each point
    assert sum(record.seconds for record in done) < 3600
    plan = a_plan(budget=3600.0)
    speeds = {1: [100, 101, 103, 102], 2: [180, 220, 200, 190]}
    records = [good(Trial(plan.configs[0], n, r), speeds[n][r]) for r in range(4) for n in (1, 2)]
    step = choose_next_trial(plan, records)
    assert (step.trial.devices, step.trial.repeat) == (2, 4)
    plan = a_plan(1, budget=3600.0)
    speeds = [994.0, 1000.0, 1006.0, 1000.0]  # Student's interval is ±0.78 %, that of the report ±1.09 %
    assert mean_interval(speeds).relative == pytest.approx(0.0078, abs=5e-5)
    records = [good(Trial(plan.configs[0], 1, repeat), speed) for repeat, speed in enumerate(speeds)]
    (series,) = build_series(records, by_budget=True)
    shown = series.points[0].samples_per_second
    assert shown.relative == pytest.approx(0.0109, abs=5e-5)
    assert choose_next_trial(plan, records) is not None


def test_a_failed_repeat_is_replaced_under_a_number_of_its_own() -> None:
    plan = a_plan(1, budget=3600.0)
    records = [good(Trial(plan.configs[0], 1, repeat)) for repeat in range(3)]
    records.append(bad(Trial(plan.configs[0], 1, 3), CRASH))
    step = choose_next_trial(plan, records)
    assert step.trial.repeat == 4
    assert choose_next_trial(plan, [*records, good(step.trial)]) is None
    # --retry-failed forgets the failed repeat 0 and keeps the good repeat 1. In the journal the last record of a trial
    # counts, so a second repeat 1 would make the first one vanish.
    plan = a_plan(1, budget=600.0)
    kept = good(Trial(plan.configs[0], 1, 1))
    steps, done = play(plan, noisy, records=[kept])
    assert kept.trial.key not in {step.trial.key for step in steps}
    assert len({record.trial.key for record in done}) == len(done)


def noisy(trial: Trial) -> TrialRecord:
    return good(trial, 1000.0 * (1.0 + 0.3 * (trial.repeat % 3)))


def test_a_budget_ends_when_it_is_used_also_by_a_run_that_is_continued() -> None:
    plan = a_plan(budget=120.0)
    whole, done = play(plan, noisy)
    used = sum(record.seconds for record in done)
    assert 120.0 - 12.0 <= used <= 120.0  # nothing is begun that cannot end within it, and no trial's time is wasted
    assert choose_next_trial(plan, done) is None
    rest, _ = play(plan, noisy, records=done[:3])
    assert [step.trial for step in rest] == [step.trial for step in whole[3:]]
    plan = a_plan(budget=120.0)
    with_failure, _ = play(plan, noisy, records=[bad(Trial(plan.configs[0], 1, 0), CRASH, seconds=100.0)])
    without, _ = play(plan, noisy)
    assert len(with_failure) < len(without)
    steps, _ = play(a_plan(budget=600.0, warmup=4, steps=50), noisy)
    assert {(step.measure.warmup, step.measure.steps) for step in steps} == {(4, 50)}
    assert all(step.measure.seconds is not None and 1.0 <= step.measure.seconds <= 100.0 for step in steps)


def test_a_window_is_a_points_share_of_the_budget_less_what_a_trial_takes_besides() -> None:
    plan = a_plan(budget=800.0)  # two points, four trials of each: 100 s for a trial
    first = choose_next_trial(plan, [])
    assert first.measure.seconds == pytest.approx(92.0)  # eight seconds besides, until one has been seen
    seen = good(Trial(plan.configs[0], 1, 0), seconds=24.0, window=2.0)  # one warm-up and one measured step: 20 besides
    second = choose_next_trial(plan, [seen])
    assert second.measure.seconds == pytest.approx(80.0)
    # A budget far too small still leaves a window, and every point is measured once
    assert choose_next_trial(a_plan(budget=1.0), []).measure.seconds == 1.0
    steps, _ = play(a_plan(4, budget=10.0), noisy)
    assert shape(steps) == [(1, 0), (2, 0), (4, 0)]


# ---- points beside the ladder


def test_points_beside_the_ladder_have_fewer_steps_and_come_last() -> None:
    steps, _ = play(a_plan(models=("alexnet:8",), explain=True))
    measured = {step.trial.config.strategy: step.measure for step in steps}
    assert measured == {"allreduce": Measure(10, 100), "independent": Measure(10, 50)}
    plan = a_plan(models=("alexnet:8",))
    _, records = play(plan)
    steps, _ = play(a_plan(models=("alexnet:8",), explain=True), records=records)
    assert {step.trial.config.strategy for step in steps} == {"independent"}
    assert len(steps) == 6
    plain, _ = play(a_plan(budget=300.0))
    steps, _ = play(a_plan(budget=300.0, explain=True))
    assert [step.trial for step in steps[: len(plain)]] == [step.trial for step in plain]
    further = steps[len(plain) :]
    assert {step.trial.config.strategy for step in further} == {"independent"}
    assert all(step.measure.seconds is not None for step in further)


# ---- how many steps a window has

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


def test_the_number_of_steps_is_the_square_root_of_costs_times_variances() -> None:
    ratio = compute_variance_ratio([trials(400, 0.05, 0.01)])
    assert ratio == pytest.approx(25.0, rel=0.2)
    assert compute_variance_ratio([trials(200, 0.05, 0.01, seed) for seed in (2, 3)]) == pytest.approx(25.0, rel=0.25)
    own = trials(400, 0.05, 0.02)
    counts = choose_counts(own, [own], Measure(10, 10_000))
    assert counts.steps == pytest.approx((10.0 / 0.1 * 6.25) ** 0.5, rel=0.1)
    # but neither tiny nor more than --steps says
    for within, between, steps in ((0.001, 0.05, LEAST_STEPS), (0.3, 0.0001, 100)):
        own = trials(50, within, between)
        assert choose_counts(own, [own], MOST) == Measure(10, steps)
    slow = trials(50, 0.03, 0.02, step=2.0, steps=20)
    counts = choose_counts(slow, [slow], MOST)
    assert counts.warmup == 2
    fast = trials(50, 0.03, 0.02, step=0.01)
    counts = choose_counts(fast, [fast], MOST)
    assert counts.warmup == 10
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
    calm, rough = (compute_variance_ratio([[TrialTimes(20.0, 10.0, steps)] * 4]) for steps in (alternating, waves))
    assert calm is not None
    assert rough is not None
    assert rough > 50 * calm
    assert compute_variance_ratio([[TrialTimes(1.0, 0.1, [0.1])] * 4]) is None


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
    assert (step.measure.warmup, step.measure.steps, step.measure.seconds) == (10, 100, None)


# ---- --until-interval: which point is repeated, and when the run is done

CONFIG = Config("torch", "mnist", 8, "allreduce", 28, 10)
ONE, MANY = (CONFIG, 1), (CONFIG, 64)


def repeated(cv: float, repeats: int, cost: float) -> Repeated:
    return Repeated(Estimate(100.0, repeats, cv / repeats**0.5, is_sequential=True), cost)


WIDE = {(CONFIG, n): repeated(0.01, 8, 10) for n in (2, 4, 8)}


@pytest.mark.parametrize(
    ("points", "chosen"),
    [
        ({ONE: repeated(0.001, 4, 10), MANY: repeated(0.001, 4, 640)}, None),
        # A speed that is wide by itself is repeated whatever it costs
        ({ONE: repeated(0.001, 4, 10), MANY: repeated(0.05, 4, 640)}, MANY),
        # A baseline that is part of more wide intervals gains more
        ({ONE: repeated(0.01, 8, 25), **WIDE}, ONE),
        ({ONE: repeated(0.01, 8, 25), (CONFIG, 2): WIDE[CONFIG, 2]}, (CONFIG, 2)),
        # Nothing is repeated for ever
        ({ONE: repeated(0.9, MOST_REPEATS, 10)}, None),
        ({ONE: repeated(0.9, MOST_REPEATS - 1, 10)}, ONE),
    ],
)
def test_the_point_is_repeated_where_time_narrows_most(points: dict[Any, Repeated], chosen: Any) -> None:
    assert choose_point(points, 0.01) == chosen


def test_the_cheap_baseline_gets_its_share() -> None:
    """Repeats tend to CV/√cost: beside a point of 64 devices the baseline has eight times its repeats."""
    repeats = {ONE: 4, MANY: 4}
    while (
        point := choose_point({ONE: repeated(0.02, repeats[ONE], 10), MANY: repeated(0.02, repeats[MANY], 640)}, 0.012)
    ) is not None:
        repeats[point] += 1
    assert 5 < repeats[ONE] / repeats[MANY] < 9


def make_noise(cv: float, seed: int = 1) -> Callable[[Trial], TrialRecord]:
    source = random.Random(seed)

    def outcome(trial: Trial) -> TrialRecord:
        return good(trial, 1e6 * trial.devices * source.gauss(1, cv), 12.0)

    return outcome


def test_an_interval_is_a_rule_of_the_run() -> None:
    steps, _ = play(a_plan(4, until_interval=0.01, warmup=3, steps=7), make_noise(0.0005))
    assert Counter(step.trial.devices for step in steps) == {1: 4, 2: 4, 4: 4}
    assert [step.trial.devices for step in steps[:6]] == [1, 2, 4, 4, 2, 1]
    assert {step.measure for step in steps} == {Measure(3, 7, 8.0, 20)}  # trials of 12 s cost 8 s besides their steps
    spec = make_spec(a_plan(2, until_interval=0.01))
    assert spec["until_interval"] == 0.01
    assert "repeats" not in spec
    assert RunInfo(spec).is_sequential
    assert not RunInfo(make_spec(a_plan(2))).is_sequential


@pytest.mark.parametrize("target", [0.01, 0.02])
def test_in_the_end_all_intervals_of_the_report_are_narrow(target: float) -> None:
    plan = a_plan(4, until_interval=target)
    steps, records = play(plan, make_noise(0.012))
    (series,) = build_series(records, by_budget=RunInfo(make_spec(plan)).is_sequential)
    for point in series.points:
        assert (point.samples_per_second.relative or 1) <= target  # type: ignore[union-attr]
        assert point.devices == 1 or (point.efficiency.relative or 1) <= target  # type: ignore[union-attr]
    counts = Counter(step.trial.devices for step in steps)
    assert counts[1] > counts[4] >= 4


def test_a_point_that_cannot_run_does_not_hold_up_the_others_and_a_budget_limits_all() -> None:
    steps, _ = play(
        a_plan(4, until_interval=0.01),
        lambda trial: bad(trial, OUT_OF_MEMORY) if trial.devices == 4 else make_noise(0.0005)(trial),
    )
    assert Counter(step.trial.devices for step in steps) == {1: 4, 2: 4, 4: 1}
    steps, _ = play(a_plan(1, until_interval=0.01), lambda trial: bad(trial, OUT_OF_MEMORY))
    assert len(steps) == 1
    steps, _ = play(a_plan(2, until_interval=0.001, budget=12.0 * 14), make_noise(0.02))
    assert len(steps) == 14
    assert all(step.measure.seconds is not None for step in steps)


def test_under_a_budget_all_devices_wait_so_the_baseline_costs_as_much() -> None:
    shares = []
    for further in ({}, {"budget": 12.0 * 2000}):
        counts: Counter[int] = Counter()
        for seed in range(5):
            steps, _ = play(a_plan(4, until_interval=0.01, **further), make_noise(0.012, seed))
            counts.update(step.trial.devices for step in steps)
        shares.append(counts[1] / counts[4])
    assert shares[0] > 1.2 * shares[1]
