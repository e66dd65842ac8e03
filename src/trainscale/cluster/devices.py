"""The devices of hosts: GPUs, or CPU slots with a fixed number of cores each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..errors import InputError
from ..spec.devices import LOCALHOST, LOOPBACK, AvailableDevices, Host
from ..spec.experiment import Experiment
from ..spec.groups import ResourceSettings
from ..worker.inspection.host import HostFacts, Machine
from ..worker.job import Device

# By default a machine has at most this many CPU slots: a ladder to 128 single cores would measure the memory bus, not
# training.
_MOST_CPU_SLOTS = 8


def find_local_devices(machine: Machine, experiment: Experiment) -> AvailableDevices:
    """Return the devices of this machine that an experiment may use."""
    return find_devices([Host(LOOPBACK, LOCALHOST, facts=HostFacts(machine))], experiment)


def find_devices(visited: Sequence[Host], experiment: Experiment) -> AvailableDevices:
    """Return the devices that an experiment may use. All hosts must have the kind that is requested, or else the kind
    that the first host has.
    """
    first, resources = get_machine(visited[0]), experiment.resources
    kind = resources.device if resources.device != "auto" else "cuda" if first.gpus else "cpu"
    cores = resources.cores_per_device or min(choose_cores_per_device(get_machine(host)) for host in visited)
    hosts = tuple(replace(host, devices=_list_host_devices(host, kind, cores, resources)) for host in visited)
    gpu = first.gpus[0] if kind == "cuda" else None
    return AvailableDevices(
        kind=kind,
        hosts=hosts,
        cores_per_device=cores if kind == "cpu" else 0,
        description=_describe_hosts(hosts) if len(hosts) > 1 else _describe_host(visited[0], kind, cores, resources),
        device_name=gpu.name if gpu else first.cpu,
        memory_bytes=gpu.memory_bytes if gpu else first.memory_bytes,
    )


def get_machine(host: Host) -> Machine:
    """Return the machine of a host that was visited."""
    assert host.facts is not None
    return host.facts.machine


def _list_host_devices(host: Host, kind: str, cores: int, resources: ResourceSettings) -> tuple[Device, ...]:
    """Return the devices of one host, no more than -g or its slots allow."""
    machine = get_machine(host)
    devices = list_devices(machine, kind, cores, resources.ranks_per_gpu, host.title)
    limit = resources.gpus_per_host or host.slots
    if limit is None:
        return devices
    most = len(machine.gpus) if kind == "cuda" else len(devices)
    if limit > most:
        key = "devices per host" if resources.gpus_per_host else "slots"
        raise InputError(f"{key} {limit}: {host.title} has {describe_devices(machine, devices)}; valid: 1 … {most}")
    if kind == "cuda":
        return list_devices(replace(machine, gpus=machine.gpus[:limit]), kind, cores, resources.ranks_per_gpu)
    return devices[:limit]


def _describe_hosts(hosts: Sequence[Host]) -> str:
    counts = sorted({len(host.devices) for host in hosts})
    each = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    kind = "GPU" if hosts[0].devices[0].kind == "cuda" else "CPU"
    return f"{len(hosts)} hosts with {each} {kind} device{'s' if counts[-1] > 1 else ''} each"


def _describe_host(host: Host, kind: str, cores: int, resources: ResourceSettings) -> str:
    machine, limit = get_machine(host), resources.gpus_per_host
    description = describe_devices(machine, list_devices(machine, kind, cores, resources.ranks_per_gpu))
    name = f" on {host.name}" if host.name != LOCALHOST else ""
    return f"{description}{name}{f', {limit} per host requested' if limit else ''}"


def choose_cores_per_device(machine: Machine) -> int:
    return math.ceil(len(machine.cores) / _MOST_CPU_SLOTS)


def list_devices(
    machine: Machine, kind: str, cores_per_device: int, ranks_per_gpu: int, title: str = "this machine"
) -> tuple[Device, ...]:
    """Return all devices of this kind, in the order of a ladder. Errors name the machine by ``title``."""
    if kind == "cuda":
        if not machine.gpus:
            raise InputError(f"device 'cuda': {title} has no GPU ({machine.gpu_note}); valid: cpu")
        is_shared = ranks_per_gpu > 1
        # One rank on each GPU comes first, then the second on each: every count uses as many GPUs as possible.
        return tuple(Device("cuda", gpu.index, (), is_shared) for _ in range(ranks_per_gpu) for gpu in machine.gpus)
    cores = machine.cores
    if len(cores) < cores_per_device:
        raise InputError(
            f"cores per device {cores_per_device}: {title} has {len(cores)} cores; valid: 1 … {len(cores)}"
        )
    starts = range(0, len(cores) - cores_per_device + 1, cores_per_device)
    return tuple(Device("cpu", slot, cores[start : start + cores_per_device]) for slot, start in enumerate(starts))


def describe_devices(machine: Machine, devices: tuple[Device, ...]) -> str:
    """Describe the devices of a machine, such as "2 CPU devices (2 cores, 1 each)"."""
    plural = "s" if len(devices) != 1 else ""
    if devices[0].kind == "cuda":
        names = sorted({gpu.name for gpu in machine.gpus})
        return f"{len(devices)} GPU device{plural} ({len(machine.gpus)} × {', '.join(names)})"
    cores = f"{len(machine.cores)} core{'s' if len(machine.cores) != 1 else ''}"
    return f"{len(devices)} CPU device{plural} ({cores}, {len(devices[0].cores)} each)"
