"""Am I normal? Which published points are near, and where an efficiency stands among them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from published_runs import gpu_run, make_curve, make_series

from trainscale.analyse.published.neighbours import NeighbourComparison, compare_with_neighbours
from trainscale.analyse.published.own_work import CPU, describe_work
from trainscale.published.curve import Network, PublishedCurve, Source
from trainscale.published.table import read_curves


def standing(*curves: PublishedCurve, run_of: str = "NVIDIA A100-SXM4-80GB", **changes: Any) -> NeighbourComparison:
    """Where 87.5 % on 8 GPUs stands."""
    series = make_series(**changes)
    return compare_with_neighbours(describe_work(series, gpu_run(run_of)), series.points[-1], curves)


def spread(*percentages: int) -> list[PublishedCurve]:
    return [make_curve(share / 100, f"c{share}") for share in percentages]


@pytest.mark.parametrize(
    ("published", "verdict", "places"),
    [
        ((90, 92, 94, 96, 98), "low", ("below all",)),
        ((80, 90, 92, 94, 96), "low", ("lowest quarter",)),
        ((80, 84, 88, 92, 96), "normal", ("middle half",)),
        ((70, 72, 74, 76, 90), "high", ("highest quarter",)),
        ((70, 72, 74, 76, 80), "high", ("above all",)),
        ((90,), "low", ("below all",)),
        ((80, 95), "normal", ("middle half",)),
    ],
)
def test_the_efficiency_has_a_place(published: tuple[int, ...], verdict: str, places: tuple[str, ...]) -> None:
    answer = standing(*spread(*published))
    assert (answer.verdict, answer.places) == (verdict, places)
    assert len(answer.compared) == len(published)


def test_an_interval_that_reaches_the_middle_half_is_normal() -> None:
    wide = make_series({1: 900.0, 8: 6300.0})
    point = replace(wide.points[-1], efficiency=replace(wide.points[-1].efficiency, mean=0.8, low=0.7, high=0.93))  # type: ignore[type-var]
    answer = compare_with_neighbours(describe_work(wide, gpu_run()), point, spread(75, 92, 94, 96, 98))
    assert (answer.verdict, answer.places) == ("normal", ("below all", "middle half"))


@pytest.mark.parametrize(
    ("changes", "too_far"),
    [
        ({"devices": 4}, ()),
        ({"devices": 32}, ("hosts", "devices")),
        ({"devices": 32, "devices_per_host": 32}, ("devices",)),
        ({"batch": 64}, ()),
        ({"batch": 32}, ("batch",)),
        ({"scaling": "strong"}, ("scaling",)),
        ({"scaling": None}, ("scaling",)),
        ({"strategy": "pipeline"}, ("strategy",)),
        ({"devices_per_host": 1}, ("hosts",)),
        ({"devices_per_host": None}, ()),
        ({"network": Network("a", "A", 11_000_000, 2_000_000_000)}, ("network",)),
        ({"network": Network("a", "A", 25_000_000, 3_000_000_000)}, ()),
        ({"network": Network("a", "A", None, None)}, ("network",)),
        ({"precision": "fp32", "framework": "mxnet", "data": "real", "device": "V100", "hardware": "V100"}, ()),
    ],
)
def test_what_differs_too_much_is_not_near(changes: dict[str, Any], too_far: tuple[str, ...]) -> None:
    (neighbour,) = standing(make_curve(0.9, **changes)).neighbours
    assert neighbour.too_far == too_far
    assert neighbour.is_near == (not too_far)


def test_nothing_is_near_a_cpu() -> None:
    series = make_series({1: 10.0, 2: 19.0}, device="cpu", precision="fp32", batch=32)
    work = describe_work(series, gpu_run())
    answer = compare_with_neighbours(work, series.points[-1], read_curves())
    assert work.device == CPU
    assert (answer.verdict, answer.compared, answer.places) == (None, (), ())
    assert "hardware" in answer.neighbours[0].too_far


def test_a_curve_without_a_1_device_point_or_with_impossible_points_is_no_neighbour() -> None:
    good, impossible = make_curve(0.9), make_curve(1.3)
    from_two = replace(good, points=tuple(replace(point, devices=point.devices * 2) for point in good.points))
    assert standing(from_two, impossible).neighbours == ()


def test_a_curve_has_one_neighbour_that_of_the_nearest_device_count() -> None:
    curve = make_curve(0.9)
    points = (*curve.points, replace(curve.points[1], devices=16, global_batch=256 * 16))
    (neighbour,) = standing(replace(curve, points=points)).neighbours
    assert neighbour.point.devices == 8


def test_points_of_the_same_network_on_the_same_device_are_preferred_where_there_are_enough() -> None:
    same = spread(90, 91, 92, 93, 94)
    others = [make_curve(0.5, f"v{i}", device="V100", hardware="V100") for i in range(5)]
    alike = standing(*same, *others)
    assert (len(alike.compared), alike.agree_in, alike.verdict) == (5, ("network", "hardware"), "low")
    fewer = standing(*same[:4], *others)
    assert (len(fewer.compared), fewer.agree_in) == (9, ("network",))
    few = standing(*same[:2], others[0])
    assert (len(few.compared), few.agree_in) == (3, ())


def test_the_nearest_come_first_and_sources_are_counted() -> None:
    other = Source("Another", "https://example.org", 2020)
    curves = [
        make_curve(0.9, "frame", framework="mxnet", source=other),
        make_curve(0.9, "count", devices=4),
        make_curve(0.9, "same"),
        make_curve(0.9, "batch", batch=128),
    ]
    answer = standing(*curves)
    assert [neighbour.curve.id for neighbour in answer.neighbours] == ["same", "frame", "batch", "count"]
    assert (answer.sources, answer.median) == (2, pytest.approx(0.9))


def test_the_real_table_has_neighbours_for_a_common_run() -> None:
    series = make_series()
    answer = compare_with_neighbours(describe_work(series, gpu_run()), series.points[-1], read_curves())
    assert answer.agree_in == ("network", "hardware")
    assert len(answer.compared) >= 10
    assert {neighbour.curve.device for neighbour in answer.compared} == {"A100"}
