"""What a series did, in the words of the published table, and in what a curve differs from it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from factories import make_run
from published_runs import gpu_run, make_curve, make_series

from trainscale.analyse.published.own_work import Trait, describe_work, is_same_network, list_traits
from trainscale.published.table import find_curve


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


def test_hosts_of_a_cluster_tell_the_device_too() -> None:
    run = make_run(hosts={"a": {"gpus": ["NVIDIA H200"]}, "b": {"gpus": ["NVIDIA H200"]}})
    assert describe_work(make_series(), run).device == "H200"


def test_a_curve_of_the_same_work_has_no_traits() -> None:
    assert list_traits(describe_work(make_series(), gpu_run()), make_curve(0.9)) == ()


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


def test_what_the_source_does_not_state_does_not_differ() -> None:
    curve = make_curve(0.9, data="", scaling=None)
    silent = replace(curve, points=tuple(replace(p, batch_per_device=None, global_batch=None) for p in curve.points))
    assert list_traits(describe_work(make_series(), gpu_run()), silent) == ()


def test_batches_of_weak_and_strong_scaling_are_not_set_against_each_other() -> None:
    work = describe_work(make_series(scaling="strong", batch=512), gpu_run())
    assert list_traits(work, make_curve(0.9)) == (Trait("scaling", "strong", "weak"),)
    strong = find_curve("keras2017-resnet50-cifar10-mxnet-fixed64")
    assert Trait("batch over all devices", "512", "64") in list_traits(work, strong)
