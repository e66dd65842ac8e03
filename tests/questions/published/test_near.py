"""Am I normal? Which published points are near, and where an efficiency stands among them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import make_run
from published_runs import gpu_run, make_curve, make_series

from trainscale.questions.published.curves import Network, PublishedCurve, Source, find_curve, read_curves
from trainscale.questions.published.near import (
    CPU,
    NeighbourComparison,
    Trait,
    compare_with_neighbours,
    describe_work,
    is_same_network,
    list_traits,
)


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


def test_a_curve_has_one_neighbour_that_of_the_nearest_possible_device_count() -> None:
    curve = make_curve(0.9)
    points = (*curve.points, replace(curve.points[1], devices=16, global_batch=256 * 16))
    (neighbour,) = standing(replace(curve, points=points)).neighbours
    assert neighbour.point.devices == 8
    from_two = replace(curve, points=tuple(replace(point, devices=point.devices * 2) for point in curve.points))
    assert standing(from_two, make_curve(1.3)).neighbours == (), "no 1-device point, and an impossible one"


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
    assert (answer.sources, answer.efficiencies) == (2, pytest.approx([0.9] * 4))


def test_the_real_table_has_neighbours_for_a_common_run() -> None:
    series = make_series()
    answer = compare_with_neighbours(describe_work(series, gpu_run()), series.points[-1], read_curves())
    assert answer.agree_in == ("network", "hardware")
    assert len(answer.compared) >= 10
    assert {neighbour.curve.device for neighbour in answer.compared} == {"A100"}


# ---- what differs


@pytest.mark.parametrize(
    ("model", "changes", "is_same"),
    [
        ("resnet50", {}, True),
        ("ResNet50-v1.5", {}, True),
        ("torchvision:resnet50", {}, True),
        ("resnet50", {"image_size": 128}, False),
        ("resnet50", {"classes": 1001}, True),
        ("resnet34", {"parameters": 21_797_672}, False),
        ("my_package.nets:mine", {"parameters": 25_557_032}, True),
        ("my_package.nets:mine", {"parameters": 25_557_031}, False),
    ],
)
def test_a_network_is_the_same_by_its_name_and_its_work(model: str, changes: dict[str, Any], is_same: bool) -> None:
    work = describe_work(make_series(model=model, **changes), gpu_run())
    assert is_same_network(work, make_curve(0.9)) == is_same


@pytest.mark.parametrize(
    ("gpus", "device"),
    [(["NVIDIA A100-SXM4-80GB"] * 8, "A100"), (["Tesla V100-SXM2-16GB", "NVIDIA A100"], "A100 and V100"), ([], "GPU")],
)
def test_the_device_is_that_of_the_machine(gpus: list[str], device: str) -> None:
    assert describe_work(make_series(), make_run(machine={"cpu": "A CPU", "gpus": gpus})).device == device
    hosts = make_run(hosts={"a": {"gpus": gpus[:1]}, "b": {"gpus": gpus[1:2]}})
    assert describe_work(make_series(), hosts).device == device, "hosts of a cluster tell the device too"


def test_all_that_differs_is_listed() -> None:
    work = describe_work(make_series(), gpu_run())
    assert list_traits(work, find_curve("tensorflow2017-dgx1-inceptionv3-b64-real")) == (
        Trait("network", "ResNet-50", "InceptionV3"),
        Trait("hardware", "A100", "P100 (DGX-1)"),
        Trait("batch per device", "256", "64"),
        Trait("precision", "tf32", "fp32"),
        Trait("framework", "torch", "tensorflow"),
        Trait("strategy", "allreduce", "ps"),
        Trait("data", "synthetic", "real"),
    )


def test_what_agrees_or_is_not_stated_does_not_differ() -> None:
    curve = make_curve(0.9, data="", scaling=None)
    silent = replace(curve, points=tuple(replace(p, batch_per_device=None, global_batch=None) for p in curve.points))
    for other in (make_curve(0.9), silent):
        assert list_traits(describe_work(make_series(), gpu_run()), other) == ()


def test_batches_of_weak_and_strong_scaling_are_not_set_against_each_other() -> None:
    work = describe_work(make_series(scaling="strong", batch=512), gpu_run())
    assert list_traits(work, make_curve(0.9)) == (Trait("scaling", "strong", "weak"),)
    strong = find_curve("keras2017-resnet50-cifar10-mxnet-fixed64")
    assert Trait("batch over all devices", "512", "64") in list_traits(work, strong)
