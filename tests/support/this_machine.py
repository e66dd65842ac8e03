"""The devices of one imagined machine, and plans for them."""

from __future__ import annotations

from typing import Any

import pytest

from trainscale.cluster.hosts import find_local_devices
from trainscale.errors import InputError
from trainscale.spec.choices import GIB
from trainscale.spec.devices import LOCALHOST, LOOPBACK, AvailableDevices, Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.inspection.host import Gpu, Machine
from trainscale.worker.job import Device


def cpus(count: int = 4, memory_bytes: int = 0) -> AvailableDevices:
    devices = tuple(Device("cpu", slot, (slot,)) for slot in range(count))
    host = Host(LOOPBACK, LOCALHOST, devices=devices)
    description = f"{count} CPU devices ({count} cores, 1 each)"
    return AvailableDevices("cpu", (host,), 1, description, memory_bytes=memory_bytes)


def gpus(count: int = 4, name: str = "NVIDIA H200", memory_gib: float = 139) -> AvailableDevices:
    host = Host(LOOPBACK, LOCALHOST, devices=tuple(Device("cuda", index) for index in range(count)))
    return AvailableDevices("cuda", (host,), 0, f"{count} GPU devices ({count} × {name})", name, int(memory_gib * GIB))


def plan(available: AvailableDevices | None = None, **settings: Any) -> Plan:
    return make_plan(Experiment.of(**{"models": ("mnist",), **settings}), available or cpus())


def refusal(available: AvailableDevices | None = None, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        plan(available, **settings)
    return str(caught.value)


EIGHT_GPUS = tuple(Gpu(index, "NVIDIA A100-SXM4-80GB", 80 * GIB, "570") for index in range(8))
MACHINE = Machine("host", "a CPU", tuple(range(16)), 1, 64 * GIB, 60 * GIB, EIGHT_GPUS, "", 0.0, 0.0)


def find_example_devices(experiment: Experiment) -> AvailableDevices:
    return find_local_devices(MACHINE, experiment)
