"""What is measured beside the ladder for an explanation, and how long that takes."""

from __future__ import annotations

from typing import Any

import pytest
from this_machine import cpus, plan

from trainscale.errors import InputError
from trainscale.spec.plan import MOST_TIME, Plan


def a_plan(devices: int = 8, ladder: tuple[int, ...] = (), **settings: Any) -> Plan:
    settings |= {"devices": ladder} if ladder else {}
    return plan(cpus(devices), **{"models": ("alexnet:8",), "explain": True, **settings})


def points(made: Plan) -> list[tuple[str, int]]:
    return [(further.config.strategy, further.devices) for further in made.further_points]


def test_without_the_setting_nothing_is_added() -> None:
    made = a_plan(explain=False)
    assert made.further_points == ()
    assert len(made.list_trials()) == 4 * 5


def test_ranks_that_exchange_nothing_are_measured_on_the_same_ladder() -> None:
    assert points(a_plan()) == [("independent", n) for n in (8, 1, 4, 2)]


def test_it_takes_at_most_40_percent_of_the_ladder() -> None:
    for settings in ({}, {"steps": 20}, {"models": ("mnist:8",)}, {"budget": 300.0}, {"repeats": 3}):
        made = a_plan(**settings)
        assert 0 < made.further_seconds <= MOST_TIME * made.ladder_seconds * (1 + 1e-9), settings
        assert made.seconds == made.ladder_seconds + made.further_seconds


def test_what_does_not_fit_is_left_out_but_never_the_most_devices() -> None:
    made = a_plan(models=("mnist:1",), repeats=3, steps=20)
    assert points(made)[0] == ("independent", 8)
    assert len(points(made)) < 4


@pytest.mark.parametrize("settings", [{}, {"steps": 20}, {"models": ("mnist:1",), "steps": 5}])
@pytest.mark.parametrize("repeats", [5, 4, 3, 2])
def test_a_ladder_of_two_points_keeps_the_limit(repeats: int, settings: dict[str, Any]) -> None:
    made = a_plan(devices=2, repeats=repeats, **settings)
    assert points(made)[0] == ("independent", 2)
    assert made.further_seconds <= MOST_TIME * made.ladder_seconds


@pytest.mark.parametrize(("repeats", "further"), [(5, 3), (3, 2), (2, 1), (1, 1)])
def test_short_trials_beside_a_ladder_of_two_points_have_fewer_repeats(repeats: int, further: int) -> None:
    (point,) = a_plan(devices=2, models=("mnist:1",), steps=5, repeats=repeats).further_points
    assert (point.devices, point.repeats) == (2, further)


def test_servers_need_one_device_without_them_and_have_fewer_repeats_for_it() -> None:
    """One worker with its server exchanges gradients too, so its step is not the work alone."""
    made = a_plan(devices=2, models=("mnist:1",), steps=5, repeats=3, strategies=("ps:1",))
    assert [(further.devices, further.repeats) for further in made.further_points] == [(2, 1), (1, 1)]
    assert made.further_seconds <= MOST_TIME * made.ladder_seconds


def test_a_ladder_without_one_device_needs_it() -> None:
    made = a_plan(devices=2, models=("mnist:1",), steps=5, repeats=6, ladder=(2,))
    assert [further.devices for further in made.further_points] == [2, 1]


def test_repeats_are_three_where_the_ladder_has_as_many() -> None:
    assert {further.repeats for further in a_plan().further_points} == {3}
    assert {further.repeats for further in a_plan(repeats=2).further_points} == {2}


def test_strategies_of_the_same_work_share_their_points() -> None:
    made = a_plan(strategies=("allreduce", "ps:1", "ps:2"))
    assert len(set(points(made))) == len(points(made))


def test_what_the_ladder_has_already_is_not_added() -> None:
    assert a_plan(strategies=("allreduce", "independent")).further_points == ()


def test_asynchronous_series_need_nothing() -> None:
    assert a_plan(strategies=("ps-async", "independent")).further_points == ()


def test_further_trials_come_in_between() -> None:
    trials = a_plan(devices=2).list_trials()
    strategies = [trial.config.strategy for trial in trials]
    assert strategies[:4] == ["allreduce", "allreduce", "independent", "independent"]
    assert strategies.count("independent") == 6
    assert strategies[-2:] == ["allreduce", "allreduce"]


def test_epochs_and_explanations_exclude_each_other() -> None:
    with pytest.raises(InputError, match="explain: an explanation is about steps; valid without --epochs"):
        a_plan(models=("mnist:8",), data="mnist", epochs=2)
