"""The batch ``auto``: how it is requested, where it is refused, and what a plan says about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_sets import write_mnist

from trainscale.errors import InputError
from trainscale.measure.context import make_spec
from trainscale.spec.choices import split_model
from trainscale.spec.config import AUTO
from trainscale.spec.devices import AvailableDevices
from trainscale.spec.experiment import Experiment, read_experiment_file
from trainscale.spec.groups import SETTINGS
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.job import Device


def plan(kind: str = "cpu", **settings: Any) -> Plan:
    devices = tuple(Device(kind, slot, (slot,) if kind == "cpu" else ()) for slot in range(2))
    available = AvailableDevices.on_this_machine(kind, devices, 1 if kind == "cpu" else 0, "2 devices")
    return make_plan(Experiment.of(**{"models": ("mnist",), **settings}), available)


def refusal(**settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        plan(**settings)
    return str(caught.value)


def test_auto_applies_to_all_models_without_a_batch_or_to_one_entry() -> None:
    assert [config.batch for config in plan(models=("mnist", "alexnet:4"), batch=AUTO).configs] == [AUTO, 4]
    assert [config.batch for config in plan(models=("mnist:auto", "alexnet:4")).configs] == [AUTO, 4]
    assert [config.batch for config in plan(models=("mnist:AUTO",), batch=16).configs] == [AUTO]


def test_auto_after_a_name_is_a_batch_unless_it_is_part_of_the_name() -> None:
    assert split_model("mnist:auto") == ("mnist", AUTO)
    assert split_model("timm:resnet18:auto") == ("timm:resnet18", AUTO)
    assert split_model("my.package:build:auto") == ("my.package:build", AUTO)
    assert split_model("my.package:auto") == ("my.package:auto", None)


def test_flags_and_files_accept_auto(tmp_path: Path) -> None:
    assert SETTINGS["batch"].read_text("auto", "--batch") == (AUTO,)
    assert SETTINGS["batch"].read_text("32", "--batch") == (32,)
    for wrong in ("0", "-1", "many"):
        with pytest.raises(InputError, match="--batch"):
            SETTINGS["batch"].read_text(wrong, "--batch")
    file = tmp_path / "experiment.toml"
    file.write_text('batch = "auto"\nmax_batch = 512\n')
    assert read_experiment_file(file) == {"batch": (AUTO,), "max_batch": 512}


def test_strong_scaling_is_refused() -> None:
    assert refusal(batch=AUTO, scaling="strong").startswith("batch auto: under strong scaling")


def test_workers_that_share_a_gpu_are_refused() -> None:
    assert "2 workers share the memory of a GPU" in refusal(kind="cuda", batch=AUTO, ranks_per_gpu=2)


def test_a_largest_batch_without_a_search_is_refused() -> None:
    assert refusal(max_batch=64) == "max batch 64: no batch is searched; valid with --batch auto"


def test_the_time_of_a_search_is_estimated_from_the_default_batch(tmp_path: Path) -> None:
    usual, auto = plan(), plan(batch=AUTO)
    assert auto.seconds > usual.seconds
    write_mnist(tmp_path)
    training = plan(batch=AUTO, data=f"mnist:{tmp_path}", epochs=2)
    assert training.seconds > 0


def test_a_run_with_another_largest_batch_is_another_run() -> None:
    assert make_spec(plan(batch=AUTO)) != make_spec(plan(batch=AUTO, max_batch=64))
    assert "max_batch" not in make_spec(plan())
