"""Ladders by work, the knee of each, and the cost of a training."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import failed_record, make_config, make_run
from studied_runs import (
    JOULES,
    STRONG_CONFIG,
    STRONG_SPEEDS,
    WEAK_CONFIG,
    WEAK_SPEEDS,
    both_ladders,
    ladder_records,
    with_energy,
)

from trainscale.analyse.series import build_series
from trainscale.questions.predict import select_ladders
from trainscale.questions.study.study import (
    GOOD_EFFICIENCY,
    Knee,
    Study,
    Training,
    find_knee,
    find_window_seconds,
    make_studies,
)
from trainscale.record.run import RunInfo
from trainscale.record.trial import TrialRecord
from trainscale.runs import Run
from trainscale.spec.config import STRONG, WEAK

IMAGENET = Training(90, 1_281_167)


def studies(records: list[TrialRecord], training: Training | None = None) -> list[Study]:
    return make_studies(Run.from_records(make_run(), records), 8, training=training)


def test_the_ladders_of_the_same_work_are_one_study_with_the_weak_one_first() -> None:
    (study,) = studies(both_ladders()[::-1])
    assert [ladder.scaling for ladder in study.ladders] == [WEAK, STRONG]
    assert study.missing == ()
    assert studies(ladder_records(WEAK_CONFIG, WEAK_SPEEDS))[0].missing == (STRONG,)
    assert studies(ladder_records(STRONG_CONFIG, STRONG_SPEEDS))[0].missing == (WEAK,)


def test_other_work_is_another_study_and_a_series_on_one_device_none() -> None:
    gpu = {"device": "cuda", "cores_per_device": 0}
    other = ladder_records(make_config(model="vgg16", **gpu), WEAK_SPEEDS)
    local = ladder_records(make_config(strategy="local", **gpu), {1: 100.0})
    assert [study.config.model for study in studies([*both_ladders(), *other, *local])] == ["alexnet", "vgg16"]


# ---- the knee


@pytest.mark.parametrize(
    ("speeds", "least", "expected"),
    [
        (STRONG_SPEEDS, 0.7, Knee(4)),
        (STRONG_SPEEDS, 0.8, Knee(2)),
        (STRONG_SPEEDS, 0.4, Knee(8, is_largest=True)),
        (WEAK_SPEEDS, 0.7, Knee(8, is_largest=True)),  # it may be larger
        ({1: 100.0, 2: 110.0}, 0.7, Knee(None)),
        ({1: 100.0, 2: 120.0, 4: 300.0, 8: 300.0}, 0.7, Knee(4, below=(2,))),
        ({2: 180.0, 4: 300.0}, 0.7, None),  # without one device there is no efficiency
    ],
)
def test_the_knee_is_the_largest_size_that_reaches_the_efficiency(
    speeds: dict[int, float], least: float, expected: Knee | None
) -> None:
    (series,) = build_series(ladder_records(WEAK_CONFIG, speeds))
    assert find_knee(series.good, least) == expected


def test_a_knee_whose_interval_contains_the_share_is_uncertain() -> None:
    spread = (0.9, 0.95, 1.0, 1.05, 1.1)
    (series,) = build_series(ladder_records(WEAK_CONFIG, {1: 100.0, 2: 142.0, 4: 150.0}, spread))
    assert find_knee(series.good, GOOD_EFFICIENCY) == Knee(2, is_uncertain=True)


# ---- cost and energy


def test_the_cost_of_a_training_follows_from_the_speed_and_the_hosts() -> None:
    (study,) = studies(both_ladders(), training=IMAGENET)
    point = study.ladders[0].find_point(8)
    assert point is not None
    cost, speed = study.compute_cost(point), point.samples_per_second
    assert cost is not None
    hours = 90 * 1_281_167 / 720.0 / 3600
    assert cost.hours.mean == pytest.approx(hours, rel=1e-5)
    assert cost.node_hours.mean == pytest.approx(2 * hours, rel=1e-5)
    assert cost.device_hours.mean == pytest.approx(8 * hours, rel=1e-5)
    assert cost.kilowatt_hours is None
    assert speed is not None
    assert speed.high is not None
    assert cost.hours.low == pytest.approx(90 * 1_281_167 / speed.high / 3600)
    (study,) = studies(both_ladders())
    assert all(study.compute_cost(point) is None for point in study.ladders[0].series.points)


def test_energy_is_that_of_a_sample_over_all_devices() -> None:
    (study,) = studies(list(map(with_energy, both_ladders())), training=IMAGENET)
    point = study.ladders[1].find_point(4)
    assert point is not None
    energy, cost = study.measure_energy(point), study.compute_cost(point)
    assert energy is not None
    assert energy.mean == pytest.approx(JOULES)
    assert cost is not None
    assert cost.kilowatt_hours is not None
    assert cost.kilowatt_hours.mean == pytest.approx(JOULES * IMAGENET.total / 3.6e6)
    assert study.energy_sources == ("nvml",)
    records = [record if record.trial.repeat else with_energy(record) for record in both_ladders()]
    (study,) = studies(records)
    assert all(study.measure_energy(point) is None for point in study.ladders[0].series.points), "not every repeat"


def test_a_failed_point_stays_in_its_ladder() -> None:
    records = [record for record in both_ladders() if record.trial.point != (STRONG_CONFIG, 8)]
    (study,) = studies([*records, failed_record(STRONG_CONFIG, 8)], training=IMAGENET)
    point = study.ladders[1].find_point(8)
    assert point is not None
    assert (point.ok, study.compute_cost(point), find_window_seconds(point)) == (False, None, None)
    assert study.ladders[1].knee == Knee(4, is_largest=True)


# ---- what is studied


def test_trials_beside_a_ladder_are_left_out() -> None:
    independent = replace(WEAK_CONFIG, strategy="independent")
    records = [*both_ladders(), *ladder_records(independent, {2: 200.0})]
    explained = RunInfo({"series": [{"strategy": "allreduce"}]})
    assert select_ladders(Run.from_records(explained, records)).records == both_ladders()
    asked_for = RunInfo({"series": [{"strategy": "allreduce"}, {"strategy": "independent"}]})
    assert select_ladders(Run.from_records(asked_for, records)).records == records
    short = [replace(record, trial=replace(record.trial, short=True)) for record in both_ladders()]
    searched = Run.from_records(RunInfo({}), [*short, *both_ladders()])
    assert select_ladders(searched).records == both_ladders()
