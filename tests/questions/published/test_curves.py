"""The table of published curves: every curve has what it needs, and what can be computed is computed again."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from trainscale.errors import InputError
from trainscale.questions.published.curves import (
    ABOVE_115,
    MIXED,
    MIXED_BATCHES,
    SENTENCES,
    STRONG,
    WEAK,
    WEAK_LABELLED_STRONG,
    PublishedCurve,
    PublishedPoint,
    find_curve,
    find_device_kind,
    parse_years,
    read_curves,
    select_curves,
)
from trainscale.worker import models

CURVES = read_curves()
GOOD = find_curve("mxnet2016-p2-alexnet-b512")


def is_constant(values: Sequence[float]) -> bool:
    return max(values) - min(values) <= 0.02 * max(values)  # sources round batches


def test_ids_are_unique_lower_case_and_have_a_year() -> None:
    assert len(CURVES) == len({curve.id for curve in CURVES}) > 200
    assert all(re.fullmatch(r"[a-z][a-z0-9-]*", curve.id) for curve in CURVES)
    assert all(re.search(str(curve.source.year), curve.id) for curve in CURVES)
    assert not re.search("bandwidth|1gpu|deepspeed|ibm", " ".join(curve.id for curve in CURVES)), "no throughput"


@pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.id)
def test_every_curve_is_whole_and_its_scaling_and_flags_follow_from_its_points(curve: PublishedCurve) -> None:
    assert curve.source.citation
    assert curve.source.url.startswith("https://")
    assert 2010 <= curve.source.year <= 2030
    assert curve.unit in ("images", "samples", "sequences", "tokens")
    for name in ("network_stated", "framework", "strategy", "hardware", "interconnect", "precision"):
        assert getattr(curve, name), name
    counts = [point.devices for point in curve.points]
    assert len(counts) > 1
    assert counts == sorted({count for count in counts if count > 0})
    for point in curve.points:
        assert (point.per_second is None) != (point.efficiency is None)
        assert (point.per_second or point.efficiency or 0) > 0
        if point.batch_per_device is not None and point.global_batch is not None:
            assert point.batch_per_device * point.devices == pytest.approx(point.global_batch, rel=0.01)
    per_device = [point.batch_per_device for point in curve.points if point.batch_per_device is not None]
    in_all = [point.global_batch for point in curve.points if point.global_batch is not None]
    scaling = None
    if len(per_device) == len(in_all) == len(counts):
        scaling = WEAK if is_constant(per_device) else STRONG if is_constant(in_all) else MIXED
    assert curve.scaling == scaling
    expected = {
        ABOVE_115: any(curve.is_impossible(point) for point in curve.points),
        WEAK_LABELLED_STRONG: scaling == WEAK and curve.stated_scaling == STRONG,
        MIXED_BATCHES: scaling == MIXED,
    }
    assert curve.flags == tuple(flag for flag, is_there in expected.items() if is_there)
    network = curve.network
    if network.name in models.MODELS:
        graph = models.build(network.name)
        assert (network.parameters, network.macs) == (graph.parameter_count, graph.macs)
    assert curve.device is None or curve.device == "Pascal" or find_device_kind(curve.hardware) == curve.device


# ---- figures of the older tools, as their own documents print them


@pytest.mark.parametrize(
    ("name", "speeds"),
    [
        ("mxnet2016-p2-inceptionv3-b32", (30.4, 59.61, 117.9, 233.39, 447.61, 882.57, 1761.24, 3416.2, 6660.98)),
        (
            "cscs2017-daint-inceptionv3-b64-synthetic",
            (138.23, 264.57, 523.38, 1018.18, 2001.0, 3840.35, 7118.31, 9219.7),
        ),
        ("cscs2017-p2-xlarge-inceptionv3-b64-real", (30.04, 56.93, 113.03, 224.06, 431.31, 734.97, 986.91, 1080.12)),
        ("keras2017-resnet50-cifar10-tf-100ep", (252.63, 332.78, 490.57, 549.86, 550.08)),
        ("tensorflow2017-ec2-cluster-resnet152-b32-synthetic", (19.4, 146, 291, 565, 981)),
    ],
)
def test_the_tables_of_the_older_tools_are_there(name: str, speeds: tuple[float, ...]) -> None:
    assert tuple(point.per_second for point in find_curve(name).points) == speeds


def test_the_time_of_an_epoch_becomes_a_speed() -> None:
    """MXNet's README: 14,203 s on 4 GPUs, 1,422 s on 40, for 1,281,167 images."""
    first, last = find_curve("mxnet2015-distributed-ilsvrc12-ec2").points
    assert first.per_second == pytest.approx(1_281_167 / 14_203)
    assert last.stated == "1422 s for an epoch of 1,281,167 images"
    assert find_curve("mxnet2015-distributed-ilsvrc12-ec2").compute_efficiency(last) == pytest.approx(
        14_203 / 1_422 / 10
    )


def test_the_speed_of_a_gpu_becomes_that_of_the_cluster() -> None:
    """torchtitan: 5,762 tokens/s per GPU on 8, 5,605 on 128."""
    curve = find_curve("torchtitan2024-llama3-8b-fsdp")
    assert [point.per_second for point in curve.points] == [5762 * 8, 5605 * 128]
    assert curve.compute_efficiency(curve.points[1]) == pytest.approx(5605 / 5762)
    assert curve.compute_speedup(curve.points[1]) == pytest.approx(16 * 5605 / 5762)


def test_the_flags_are_on_these_curves() -> None:
    flagged = {flag: [c.id for c in CURVES if flag in c.flags] for flag in (ABOVE_115, MIXED_BATCHES)}
    assert flagged == {
        ABOVE_115: ["mxnet2015-distributed-cifar10-b128"],
        MIXED_BATCHES: ["mxnet2015-gtx980-inceptionbn"],
    }
    mislabelled = [curve for curve in CURVES if WEAK_LABELLED_STRONG in curve.flags]
    assert {curve.network.name for curve in mislabelled} == {"resnet50", "gnmt"}
    assert all("NVIDIA" in curve.source.citation for curve in mislabelled)


def test_what_the_source_does_not_state_is_left_out() -> None:
    curve = find_curve("published:horovod2018-512-vgg16")
    assert not curve.has_speeds
    assert (curve.compute_efficiency(curve.points[-1]), curve.compute_speedup(curve.points[-1])) == (0.68, 0.68 * 512)
    assert [GOOD.count_hosts(point) for point in GOOD.points] == [1, 1, 1, 1, 1, 2, 4, 8, 16], "hosts are filled"
    assert find_curve("chainermn2017-resnet50").count_hosts(PublishedPoint(8, 1.0)) is None


def test_an_unknown_id_names_the_nearest() -> None:
    with pytest.raises(InputError) as caught:
        find_curve("mxnet2016-p2-alexnet")
    first, second = str(caught.value).splitlines()
    assert first.startswith("unknown published curve 'mxnet2016-p2-alexnet'; did you mean 'mxnet2016-p2-alexnet-b512'")
    assert second == "  trainscale published lists all IDs"
    with pytest.raises(InputError, match="did you mean"):
        find_curve("qqq")


@pytest.mark.parametrize(("last", "is_so"), [(460.0, False), (461.0, True)])
def test_an_efficiency_above_115_percent_is_impossible(last: float, is_so: bool) -> None:
    points = PublishedPoint(1, 100.0), PublishedPoint(4, last)
    assert replace(GOOD, points=points).is_impossible(points[1]) == is_so
    assert set(SENTENCES) == {ABOVE_115, WEAK_LABELLED_STRONG, MIXED_BATCHES}


# ---- the curves that a person asks for


def ids(*texts: str, **others: Any) -> set[str]:
    return {curve.id for curve in select_curves(*texts, **others)}


@pytest.mark.parametrize("text", ["ResNet-152", "resnet152", "RESNET 152"])
def test_case_spaces_and_dashes_do_not_matter(text: str) -> None:
    networks = {curve.network.name for curve in select_curves(network=text)}
    assert networks == {"resnet152"}


def test_all_wishes_hold_at_once() -> None:
    assert len(ids()) == len(CURVES)
    assert ids("resnet50", "dgx-1", "torch", years=(2021, 2021)) == {
        f"nvidia2021-resnet50-pytorch-v100-{size}-{precision}"
        for size in ("16gb", "32gb")
        for precision in ("fp32", "amp")
    }
    assert ids(min_devices=512) == {f"horovod2018-512-{name}" for name in ("inceptionv3", "resnet101", "vgg16")}
    assert ids("alexnet", "H200") == set()


def test_a_name_that_no_curve_has_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(
        InputError, match=r"--hardware: unknown hardware 'V1000'; did you mean 'V100'.*\n  valid: A100, "
    ):
        select_curves(hardware="V1000")


@pytest.mark.parametrize(
    ("text", "years"), [("2017", (2017, 2017)), (" 2015-2018", (2015, 2018)), ("2015–2018", (2015, 2018))]
)
def test_years_are_read_and_other_texts_refused(text: str, years: tuple[int, int]) -> None:
    assert parse_years(text) == years
    for wrong in ("17", "2018-2015", "2017-", "last", ""):
        with pytest.raises(InputError, match="valid: a year or a range of years"):
            parse_years(wrong)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100"),
        ("Tesla V100-SXM2-16GB", "V100"),
        ("NVIDIA H200", "H200"),
        ("NVIDIA GH200 480GB", "GH200"),
        ("NVIDIA A10G", "A10G"),
        ("NVIDIA GeForce RTX 4090", "GeForce RTX 4090"),
        ("GRID K520", "K520"),
    ],
)
def test_the_kind_of_a_device_is_found_in_its_name(name: str, kind: str) -> None:
    assert find_device_kind(name) == kind
