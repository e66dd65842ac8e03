"""The setting of the C allocator: from the flag to the identity of a run."""

from __future__ import annotations

from typing import Any

import pytest

from trainscale.errors import InputError
from trainscale.measure.context import make_spec
from trainscale.spec.devices import AvailableDevices
from trainscale.spec.experiment import Experiment
from trainscale.spec.groups import SETTINGS
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.job import Device

CPU = AvailableDevices.on_this_machine("cpu", (Device("cpu", 0, (0,)),), 1, "a CPU")


def plan(**settings: Any) -> Plan:
    return make_plan(Experiment.of(models=("mnist:8",), **settings), CPU)


def test_the_flag_takes_the_two_names_only() -> None:
    setting = SETTINGS["allocator"]
    assert [setting.read_text(text, "--allocator") for text in ("tuned", "System")] == ["tuned", "system"]
    with pytest.raises(InputError, match=r"--allocator: unknown value 'jemalloc'\n  valid: tuned, system"):
        setting.read_text("jemalloc", "--allocator")


def test_the_setting_goes_into_every_config() -> None:
    assert [config.allocator for config in plan().configs] == ["tuned"]
    system = plan(allocator="system", strategies=("local", "independent"))
    assert [config.allocator for config in system.configs] == ["system", "system"]


def test_another_allocator_makes_another_run_and_the_default_leaves_the_spec_of_old_runs() -> None:
    assert make_spec(plan()) == make_spec(plan(allocator="tuned"))
    assert "allocator" not in make_spec(plan())["series"][0]
    assert make_spec(plan(allocator="system"))["series"][0]["allocator"] == "system"


def test_a_parity_check_is_shared_by_both_allocators() -> None:
    (tuned,), (system,) = plan().configs, plan(allocator="system").configs
    assert tuned.key != system.key
    assert system.reset_training() == tuned.reset_training()
