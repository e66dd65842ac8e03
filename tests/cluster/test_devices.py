"""The devices that a machine gives to an experiment."""

from __future__ import annotations

from typing import Any

import pytest

from trainscale.cluster.hosts import choose_cores_per_device, describe_devices, find_local_devices, list_devices
from trainscale.errors import InputError
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.inspection.host import Gpu, Machine
from trainscale.worker.job import Device

GIB = 1024**3


def a_machine(cores: int = 2, gpus: int = 0) -> Machine:
    return Machine(
        name="here",
        cpu="A Fine Processor",
        cores=tuple(range(cores)),
        threads_per_core=1,
        memory_bytes=8 * GIB,
        memory_available_bytes=6 * GIB,
        gpus=tuple(Gpu(index, "NVIDIA L4", 22 * GIB, "570.1") for index in range(gpus)),
        gpu_note="" if gpus else "no nvidia-smi on this machine",
        load=0.0,
        pressure=0.0,
    )


def refusal(machine: Machine, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        find_local_devices(machine, Experiment.of(**settings))
    return str(caught.value)


def test_every_core_of_a_small_machine_is_a_device() -> None:
    available = find_local_devices(a_machine(2), Experiment())
    assert available.devices == (Device("cpu", 0, (0,)), Device("cpu", 1, (1,)))
    assert (available.kind, available.cores_per_device) == ("cpu", 1)


@pytest.mark.parametrize(("cores", "each"), [(1, 1), (8, 1), (12, 2), (15, 2), (16, 2), (31, 4), (128, 16)])
def test_a_large_machine_is_cut_into_at_most_eight_devices(cores: int, each: int) -> None:
    assert choose_cores_per_device(a_machine(cores)) == each
    assert len(find_local_devices(a_machine(cores), Experiment()).devices) <= 8


def test_cores_per_device_share_out_the_cores_without_overlap() -> None:
    devices = find_local_devices(a_machine(7), Experiment.of(cores_per_device=3)).devices
    assert [device.cores for device in devices] == [(0, 1, 2), (3, 4, 5)]


def test_more_cores_per_device_than_exist_are_refused() -> None:
    message = refusal(a_machine(2), cores_per_device=3)
    assert message == "cores per device 3: this machine has 2 cores; valid: 1 … 2"


def test_gpus_are_taken_where_there_are_any_and_cpus_on_request() -> None:
    assert find_local_devices(a_machine(4, gpus=2), Experiment()).devices == (Device("cuda", 0), Device("cuda", 1))
    assert find_local_devices(a_machine(4, gpus=2), Experiment.of(device="cpu")).kind == "cpu"


def test_a_gpu_supply_carries_what_chooses_the_default_batch() -> None:
    available = find_local_devices(a_machine(4, gpus=2), Experiment())
    assert (available.device_name, available.memory_bytes, available.cores_per_device) == ("NVIDIA L4", 22 * GIB, 0)


def test_cuda_without_a_gpu_is_refused_with_the_reason() -> None:
    message = refusal(a_machine(), device="cuda")
    assert message == "device 'cuda': this machine has no GPU (no nvidia-smi on this machine); valid: cpu"


def test_ranks_that_share_gpus_use_as_many_gpus_as_possible_at_every_count() -> None:
    devices = list_devices(a_machine(4, gpus=2), "cuda", 1, ranks_per_gpu=2)
    assert [device.index for device in devices] == [0, 1, 0, 1]
    assert all(device.shared for device in devices)


def test_devices_per_host_limit_the_supply() -> None:
    assert len(find_local_devices(a_machine(4), Experiment.of(gpus_per_host=3)).devices) == 3
    message = refusal(a_machine(2), gpus_per_host=3)
    assert message == "devices per host 3: this machine has 2 CPU devices (2 cores, 1 each); valid: 1 … 2"


def test_a_ladder_beyond_the_devices_per_host_is_refused_for_that_reason() -> None:
    experiment = Experiment.of(models=("mnist",), gpus_per_host=2, max_devices=4)
    with pytest.raises(InputError) as caught:
        make_plan(experiment, find_local_devices(a_machine(4), experiment))
    assert "valid: 1 … 2" in str(caught.value)
    assert "per host" in str(caught.value)  # otherwise: «this machine has 4 CPU devices; valid: 1 … 2»


@pytest.mark.parametrize(
    ("machine", "description"),
    [
        (a_machine(2), "2 CPU devices (2 cores, 1 each)"),
        (a_machine(16), "8 CPU devices (16 cores, 2 each)"),
        (a_machine(4, gpus=1), "1 GPU device (1 × NVIDIA L4)"),
        (a_machine(4, gpus=2), "2 GPU devices (2 × NVIDIA L4)"),
    ],
)
def test_devices_are_described_in_words(machine: Machine, description: str) -> None:
    available = find_local_devices(machine, Experiment())
    assert describe_devices(machine, available.devices) == available.description == description


def test_one_core_is_not_called_cores() -> None:
    description = find_local_devices(a_machine(1), Experiment()).description
    assert description.startswith("1 CPU device (")
    assert "1 cores" not in description
