"""A published curve as the reference of a comparison: its figures are exact, what differs is refused."""

from dataclasses import replace
from typing import Any

import pytest
from sides_for_tests import NEAR, make_side

from trainscale.errors import InputError
from trainscale.questions.compare.compare import AT_LEAST, FAIL, PASS, UNKNOWN, Gate, compare_pairs, find_differences
from trainscale.questions.compare.sides import EFFICIENCY, SPEED, Side, compare_with_published
from trainscale.questions.published.curves import PublishedCurve, PublishedPoint, find_curve
from trainscale.record.run import RecordedMachine
from trainscale.spec.config import Config

CONFIG = Config("mxnet", "alexnet", 512, "ps", 224, 1000, device="cuda")
ALEXNET = find_curve("mxnet2016-p2-alexnet-b512")  # 457.07 images/s on 1 GPU, 1514.8 on 4: 82.9 %


def make_run(efficiency: float, repeats: tuple[float, ...] = NEAR, **changes: Any) -> Side:
    """A run like the curve, at 300 images/s on one device, with this efficiency on 4."""
    speeds = {1: [300 * r for r in repeats], 4: [1200 * efficiency * r for r in repeats]}
    return make_side(speeds, **{"config": CONFIG, **gpus(16, "Tesla K80"), **changes})


def gpus(count: int, name: str) -> dict[str, Any]:
    """What a side has of its machine, with these GPUs in each host."""
    machine = {"GPUs of a host": f"{count} × {name}", "CPU": "A CPU"}
    return {"machine": machine, "machines": (RecordedMachine(gpus=(name,) * count),)}


def test_the_efficiency_is_compared_with_an_exact_figure() -> None:
    a, b = compare_with_published(ALEXNET, make_run(0.8))
    (point,) = compare_pairs([(a, b)]).points
    assert point.a is not None
    assert (point.devices, point.a.repeats) == (4, None)
    assert point.a.mean == pytest.approx(1514.8 / 457.07 / 4)
    assert point.ratio is not None
    assert point.ratio.mean == pytest.approx(0.8 / (1514.8 / 457.07 / 4))
    assert point.verdict == "slower"
    assert (a.quantity, a.citation) == (EFFICIENCY, ALEXNET.source.citation)


def test_speeds_are_compared_if_asked_and_an_efficiency_has_the_errors_of_two_speeds() -> None:
    of_one, of_four = compare_pairs([compare_with_published(ALEXNET, make_run(0.8), SPEED)]).points
    assert (of_one.devices, of_four.devices) == (1, 4)
    assert of_one.ratio is not None
    assert of_one.ratio.mean == pytest.approx(300 / 457.07)
    (of_speed,) = compare_pairs([compare_with_published(ALEXNET, make_run(0.8), SPEED)], devices=[4]).points
    (of_efficiency,) = compare_pairs([compare_with_published(ALEXNET, make_run(0.8))]).points
    assert of_efficiency.ratio is not None
    assert of_speed.ratio is not None
    assert of_efficiency.ratio.relative == pytest.approx(2**0.5 * (of_speed.ratio.relative or 0), rel=0.01)


SLOWED = make_run(0.85, other_cores={1: [0.4] * 5})  # its efficiency would look better than it is
FAILED = make_side({1: [300.0] * 5, 2: [590.0] * 5, 4: []}, config=CONFIG, **gpus(16, "Tesla K80"))


@pytest.mark.parametrize(
    ("side", "least", "outcome"),
    [
        (make_run(0.85), 0.95, PASS),
        (make_run(0.75), 0.95, FAIL),
        (make_run(0.788), 0.95, UNKNOWN),
        (FAILED, 0.5, FAIL),
        (SLOWED, 0.95, UNKNOWN),
    ],
)
def test_acceptance_is_by_the_interval_of_the_run(side: Side, least: float, outcome: str) -> None:
    comparison = compare_pairs([compare_with_published(ALEXNET, side)], gate=Gate(AT_LEAST, least))
    assert comparison.outcome == outcome
    assert comparison.curves[0].only_a == (), "counts that the run has not measured do not matter"
    assert ("up to 0.4 cores in 5 of 5 repeats" in comparison.curves[0].b.disturbance) == (side is SLOWED)


@pytest.mark.parametrize(
    ("config", "names"),
    [
        ({}, []),
        ({"model": "vgg16"}, ["model"]),
        ({"image_size": 128}, ["model"]),
        ({"batch": 256}, ["batch"]),
        ({"scaling": "strong"}, ["batch"]),
        ({"framework": "torch"}, ["framework", "parity"]),
        ({"strategy": "allreduce"}, ["strategy"]),
        ({"precision": "bf16"}, ["precision"]),
        ({"data": "imagefolder:photos"}, ["data"]),
        ({"device": "cpu"}, ["device"]),
    ],
)
def test_what_differs_is_named(config: dict[str, Any], names: list[str]) -> None:
    pair = compare_with_published(ALEXNET, make_run(0.8, config=replace(CONFIG, **config)))
    assert list(dict.fromkeys(difference.name for difference in find_differences(*pair))) == names


@pytest.mark.parametrize(
    ("count", "name", "differs"),
    [(16, "Tesla K80", False), (8, "Tesla K80", True), (16, "NVIDIA A100-SXM4-80GB", True)],
)
def test_the_gpus_of_a_host_are_compared_by_kind_and_number(count: int, name: str, differs: bool) -> None:
    pair = compare_with_published(ALEXNET, make_run(0.8, **gpus(count, name)))
    (*differences,) = find_differences(*pair)
    assert [difference.a for difference in differences] == (["16 × K80 (one GK210 die)"] if differs else [])


def test_what_the_source_does_not_state_is_not_compared() -> None:
    silent = replace(ALEXNET, data="", scaling=None, device=None, devices_per_host=None)
    changed = make_run(0.8, config=replace(CONFIG, batch=7), **gpus(1, "NVIDIA H200"))
    assert find_differences(*compare_with_published(silent, changed)) == ()


def of_points(*points: tuple[int, float], unit: str = "images") -> PublishedCurve:
    return replace(ALEXNET, unit=unit, points=tuple(PublishedPoint(*point) for point in points))


@pytest.mark.parametrize(
    ("curve", "quantity", "message"),
    [
        (of_points((2, 200.0), (4, 390.0)), EFFICIENCY, "relative to 2 devices, for which runs/a has no"),
        (of_points((1, 100.0), (16, 1500.0)), EFFICIENCY, "measured in both: .* has 1, 16; runs/a has 1, 4"),
        (of_points((1, 100.0), (4, 390.0), unit="tokens"), SPEED, "counts tokens, runs/a images; valid: --by"),
        (find_curve("horovod2018-512-vgg16"), SPEED, "the source states no speeds; valid: --by efficiency"),
    ],
)
def test_what_cannot_be_compared_is_refused(curve: PublishedCurve, quantity: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        compare_with_published(curve, make_run(0.8), quantity)
