"""Curves by network, hardware, framework, year and size."""

from __future__ import annotations

import pytest

from trainscale.errors import InputError
from trainscale.published.devices import find_device_kind
from trainscale.published.selection import Wanted, parse_years, select_curves
from trainscale.published.table import read_curves

CURVES = read_curves()


def ids(wanted: Wanted) -> set[str]:
    return {curve.id for curve in select_curves(CURVES, wanted)}


def test_without_a_wish_all_are_selected() -> None:
    assert len(ids(Wanted())) == len(CURVES)


@pytest.mark.parametrize("text", ["ResNet-152", "resnet152", "RESNET 152"])
def test_case_spaces_and_dashes_do_not_matter(text: str) -> None:
    networks = {curve.network.name for curve in select_curves(CURVES, Wanted(network=text))}
    assert networks == {"resnet152"}


def test_all_wishes_hold_at_once() -> None:
    wanted = Wanted("resnet50", "dgx-1", "torch", (2021, 2021))
    assert ids(wanted) == {
        f"nvidia2021-resnet50-pytorch-v100-{size}-{precision}"
        for size in ("16gb", "32gb")
        for precision in ("fp32", "amp")
    }
    assert ids(Wanted(min_devices=512)) == {f"horovod2018-512-{name}" for name in ("inceptionv3", "resnet101", "vgg16")}
    assert ids(Wanted("alexnet", "H200")) == set()


def test_a_name_that_no_curve_has_is_refused_with_the_valid_ones() -> None:
    with pytest.raises(
        InputError, match=r"--hardware: unknown hardware 'V1000'; did you mean 'V100'.*\n  valid: A100, "
    ):
        select_curves(CURVES, Wanted(hardware="V1000"))


@pytest.mark.parametrize(
    ("text", "years"), [("2017", (2017, 2017)), (" 2015-2018", (2015, 2018)), ("2015–2018", (2015, 2018))]
)
def test_years_are_read(text: str, years: tuple[int, int]) -> None:
    assert parse_years(text) == years


@pytest.mark.parametrize("text", ["17", "2018-2015", "2017-", "last", ""])
def test_other_years_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="valid: a year or a range of years"):
        parse_years(text)


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
