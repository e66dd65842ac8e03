"""The devices of a host: GPUs, or CPU slots of a fixed set of cores each."""

from __future__ import annotations

import math
from dataclasses import replace

from ..errors import InputError
from ..spec.experiment import Experiment
from ..spec.plan import Supply
from ..worker.job import Device
from .machine import Machine

# A machine with many cores is cut into at most this many CPU slots unless told otherwise: a ladder to 128 single cores
# measures the memory bus, not training.
_MOST_CPU_SLOTS = 8


def supply(machine: Machine, experiment: Experiment) -> Supply:
    """What this machine can give to an experiment."""
    kind = experiment.device if experiment.device != "auto" else "cuda" if machine.gpus else "cpu"
    cores = experiment.cores_per_device or default_cores_per_device(machine)
    found = devices(machine, kind, cores, experiment.ranks_per_gpu)
    words = describe(machine, found)
    limit = experiment.gpus_per_host
    if limit is not None:
        most = len(machine.gpus) if kind == "cuda" else len(found)
        if limit > most:
            raise InputError(f"devices per host {limit}: this machine has {words}; valid: 1 … {most}")
        words += f", {limit} per host asked for"
        fewer = replace(machine, gpus=machine.gpus[:limit])
        found = devices(fewer, kind, cores, experiment.ranks_per_gpu) if kind == "cuda" else found[:limit]
    gpu = machine.gpus[0] if kind == "cuda" else None
    return Supply(
        kind=kind,
        devices=found,
        cores_per_device=cores if kind == "cpu" else 0,
        words=words,
        device_name=gpu.name if gpu else machine.cpu,
        memory_bytes=gpu.memory_bytes if gpu else machine.memory_bytes,
    )


def default_cores_per_device(machine: Machine) -> int:
    return math.ceil(len(machine.cores) / _MOST_CPU_SLOTS)


def devices(machine: Machine, kind: str, cores_per_device: int, ranks_per_gpu: int) -> tuple[Device, ...]:
    """All devices of this kind, in the order in which a ladder takes them."""
    if kind == "cuda":
        if not machine.gpus:
            raise InputError(f"device 'cuda': this machine has no GPU ({machine.gpu_note}); valid: cpu")
        shared = ranks_per_gpu > 1
        # One rank on each GPU first, then the second on each: as many GPUs as possible at every count.
        return tuple(Device("cuda", gpu.index, (), shared) for _ in range(ranks_per_gpu) for gpu in machine.gpus)
    count = len(machine.cores) // cores_per_device
    if count < 1:
        raise InputError(
            f"cores per device {cores_per_device}: this machine has {len(machine.cores)} cores;"
            f" valid: 1 … {len(machine.cores)}"
        )
    return tuple(
        Device("cpu", slot, machine.cores[slot * cores_per_device : (slot + 1) * cores_per_device])
        for slot in range(count)
    )


def describe(machine: Machine, found: tuple[Device, ...]) -> str:
    """For messages: «2 CPU devices (2 cores, 1 each)»."""
    plural = "s" if len(found) != 1 else ""
    if found[0].kind == "cuda":
        names = sorted({gpu.name for gpu in machine.gpus})
        return f"{len(found)} GPU device{plural} ({len(machine.gpus)} × {', '.join(names)})"
    cores = f"{len(machine.cores)} core{'s' if len(machine.cores) != 1 else ''}"
    return f"{len(found)} CPU device{plural} ({cores}, {len(found[0].cores)} each)"
