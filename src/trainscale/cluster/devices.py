"""The devices of a host: GPUs, or CPU slots of a fixed set of cores each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import InputError
from ..spec.devices import LOCALHOST, LOOPBACK, AvailableDevices, HostDevices
from ..spec.experiment import Experiment
from ..worker.inspection.machine import Machine
from ..worker.job import Device

# A machine with many cores is cut into at most this many CPU slots unless told otherwise: a ladder to 128 single cores
# measures the memory bus, not training.
_MOST_CPU_SLOTS = 8


@dataclass(frozen=True)
class UsableHost:
    """A host as it was looked at: what ``find_local_devices`` needs to know of it."""

    machine: Machine
    host: str = LOCALHOST
    address: str = LOOPBACK
    interface: str | None = None
    slots: int | None = None  # devices to use there, where the hosts file says
    pythons: Mapping[str, str] = field(default_factory=dict)


def find_local_devices(machine: Machine, experiment: Experiment) -> AvailableDevices:
    """What this machine can give to an experiment."""
    return find_devices((UsableHost(machine),), experiment)


def find_devices(found: Sequence[UsableHost], experiment: Experiment) -> AvailableDevices:
    """What these hosts can give. All must have the kind of device that is asked for, or else that the first has."""
    first = found[0].machine
    resources = experiment.resources
    kind = resources.device if resources.device != "auto" else "cuda" if first.gpus else "cpu"
    cores = resources.cores_per_device or min(default_cores_per_device(one.machine) for one in found)
    hosts = tuple(
        HostDevices(one.host, _devices_there(one, kind, cores, experiment),
             one.address, one.interface, one.pythons)
        for one in found
    )  # fmt: skip
    gpu = first.gpus[0] if kind == "cuda" else None
    return AvailableDevices(
        kind=kind,
        hosts=hosts,
        cores_per_device=cores if kind == "cpu" else 0,
        description=_words(found, hosts, experiment),
        device_name=gpu.name if gpu else first.cpu,
        memory_bytes=gpu.memory_bytes if gpu else first.memory_bytes,
    )


def _devices_there(one: UsableHost, kind: str, cores: int, experiment: Experiment) -> tuple[Device, ...]:
    """Those of one host, no more than asked for by -g or by its slots."""
    resources = experiment.resources
    place = "this machine" if one.host == LOCALHOST else one.host
    everything = list_devices(one.machine, kind, cores, resources.ranks_per_gpu, place)
    limit = resources.gpus_per_host or one.slots
    if limit is None:
        return everything
    most = len(one.machine.gpus) if kind == "cuda" else len(everything)
    if limit > most:
        whose = "devices per host" if resources.gpus_per_host else "slots"
        raise InputError(f"{whose} {limit}: {place} has {describe_devices(one.machine, everything)}; valid: 1 … {most}")
    fewer = replace(one.machine, gpus=one.machine.gpus[:limit])
    return list_devices(fewer, kind, cores, resources.ranks_per_gpu) if kind == "cuda" else everything[:limit]


def _words(found: Sequence[UsableHost], hosts: Sequence[HostDevices], experiment: Experiment) -> str:
    if len(found) > 1:
        counts = sorted({len(host.devices) for host in hosts})
        each = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        kind = "GPU" if hosts[0].devices[0].kind == "cuda" else "CPU"
        return f"{len(found)} hosts with {each} {kind} device{'s' if counts[-1] > 1 else ''} each"
    one = found[0].machine
    resources = experiment.resources
    limit = resources.gpus_per_host
    cores = resources.cores_per_device or default_cores_per_device(one)
    words = describe_devices(one, list_devices(one, hosts[0].devices[0].kind, cores, resources.ranks_per_gpu))
    words = f"{words} on {found[0].host}" if found[0].host != LOCALHOST else words
    return f"{words}, {limit} per host asked for" if limit else words


def default_cores_per_device(machine: Machine) -> int:
    return math.ceil(len(machine.cores) / _MOST_CPU_SLOTS)


def list_devices(
    machine: Machine, kind: str, cores_per_device: int, ranks_per_gpu: int, place: str = "this machine"
) -> tuple[Device, ...]:
    """All devices of this kind, in the order in which a ladder takes them."""
    if kind == "cuda":
        if not machine.gpus:
            raise InputError(f"device 'cuda': {place} has no GPU ({machine.gpu_note}); valid: cpu")
        shared = ranks_per_gpu > 1
        # One rank on each GPU first, then the second on each: as many GPUs as possible at every count.
        return tuple(Device("cuda", gpu.index, (), shared) for _ in range(ranks_per_gpu) for gpu in machine.gpus)
    count = len(machine.cores) // cores_per_device
    if count < 1:
        raise InputError(
            f"cores per device {cores_per_device}: {place} has {len(machine.cores)} cores;"
            f" valid: 1 … {len(machine.cores)}"
        )
    return tuple(
        Device("cpu", slot, machine.cores[slot * cores_per_device : (slot + 1) * cores_per_device])
        for slot in range(count)
    )


def describe_devices(machine: Machine, found: tuple[Device, ...]) -> str:
    """For messages: «2 CPU devices (2 cores, 1 each)»."""
    plural = "s" if len(found) != 1 else ""
    if found[0].kind == "cuda":
        names = sorted({gpu.name for gpu in machine.gpus})
        return f"{len(found)} GPU device{plural} ({len(machine.gpus)} × {', '.join(names)})"
    cores = f"{len(machine.cores)} core{'s' if len(machine.cores) != 1 else ''}"
    return f"{len(found)} CPU device{plural} ({cores}, {len(found[0].cores)} each)"
