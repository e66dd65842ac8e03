"""The jobs of a trial: every process with its host and device, and the addresses and ports of all."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ...spec.config import Config, Trial
from ...spec.devices import LOOPBACK, AvailableDevices, Slot, place_processes
from ...worker import models
from ...worker.config import ALLOCATORS
from ...worker.frameworks.catalog import FRAMEWORKS, WITH_SERVERS
from ...worker.job import SCHEDULER, SERVER, WORKER, Device, Job, Measure, PluginReference, Task
from ..launchers.base import ITS_START

_MOST_OUTPUT = 16 * 2**20  # characters in the log of a rank

MEETING_PORTS = 1  # on the host of rank 0, where the workers meet

HostPorts = Mapping[str, Sequence[int]]  # free ports by the name of their host


@dataclass(frozen=True)
class TrialSettings:
    """How a trial is run: what it needs besides its config, its slots and its ports."""

    measure: Measure
    seed: int
    pythons: Mapping[str, str]  # of each framework, for hosts that have none of their own
    timeout_seconds: float = 1800.0
    stall_seconds: float = 180.0  # without progress
    logs: Path | None = None  # the folder of its logs
    data_dir: str = ""
    save_weights: Path | None = None  # a folder for the weights after the last step
    memory_share: float = 0.0  # of a host's free memory, for a worker; 0: no limit
    witness: bool = False  # whether the ranks report their first steps
    explain: bool = False  # whether they measure after the window what an explanation needs
    keeps_compiled: bool = True  # whether compiled programs are kept for later trials


def place_trial(trial: Trial, available: AvailableDevices) -> list[Slot]:
    """Return the slot of every process of the trial, in order of rank."""
    has_scheduler = FRAMEWORKS[trial.config.framework].scheduler and trial.config.strategy in WITH_SERVERS
    return place_processes(trial.config, trial.devices, available, int(has_scheduler))


def describe_device(device: Device) -> str:
    """Return the name of a device for a message; empty for a process that may use any core."""
    if device.kind == "cuda":
        return f"GPU {device.index}"
    first, *others = device.cores or (None,)
    if first is None:
        return ""
    return f"cores {first}–{others[-1]}" if others else f"core {first}"


def count_ports(slots: Sequence[Slot]) -> dict[str, int]:
    """Return how many ports each host needs: one a process, and one where the workers meet."""
    counts = dict.fromkeys((slot.host.name for slot in slots), 0)
    for slot in slots:
        counts[slot.host.name] += 1
    counts[slots[0].host.name] += MEETING_PORTS
    return counts


def build_tasks(trial: Trial, slots: Sequence[Slot], ports: HostPorts, settings: TrialSettings) -> list[Task]:
    """Return the tasks of a trial, in order of rank. ``ports``: as ``count_ports`` says."""
    framework = trial.config.framework
    tasks = []
    jobs = build_jobs(trial, slots, ports, settings)
    for job, slot in zip(jobs, slots, strict=True):
        command = [slot.host.pythons.get(framework) or settings.pythons[framework], ITS_START, "rank"]
        is_sampled = job.device.kind == "cuda" and not job.config.trains_epochs
        tasks.append(
            Task(
                slot.host.name,
                job.rank,
                command,
                job.to_json(),
                defaults=ALLOCATORS[trial.config.allocator],
                uses_gpu=job.device.kind == "cuda",
                # Training to an accuracy has no window: its GPU's state is not sampled.
                gpu=job.device.index if job.role == WORKER and is_sampled else None,
                most_output=_MOST_OUTPUT,
            )
        )
    return tasks


def build_jobs(trial: Trial, slots: Sequence[Slot], ports: HostPorts, settings: TrialSettings) -> list[Job]:
    config, workers = trial.config, trial.devices
    free_ports = {host: list(numbers) for host, numbers in ports.items()}
    rendezvous_port = free_ports[slots[0].host.name].pop()
    rank_ports = tuple(free_ports[slot.host.name].pop(0) for slot in slots)
    python_path, interface = (str(Path.cwd()),), find_loopback_interface()
    host_count = len({slot.host.name for slot in slots})
    is_distributed, servers = host_count > 1, config.count_servers(host_count)
    # On one host all messages stay inside it, whatever networks it has.
    addresses = tuple(slot.host.address if is_distributed else LOOPBACK for slot in slots)
    secret, plugins = secrets.token_hex(16), list_plugins(config)
    return [
        Job(
            role=WORKER if rank < workers else SERVER if rank < workers + servers else SCHEDULER,
            rank=rank,
            workers=workers,
            servers=servers,
            addresses=addresses,
            ports=rank_ports,
            rendezvous_port=rendezvous_port,
            device=slot.device,
            config=config,
            batch=config.batch_per_device(workers),
            measure=settings.measure,
            interface=slot.host.interface if is_distributed else interface,
            python_path=python_path,
            seed=settings.seed,
            save_weights=str(settings.save_weights) if settings.save_weights else None,
            plugins=plugins,
            data_dir=settings.data_dir,
            witness=settings.witness,
            explain=settings.explain,
            keeps_compiled=settings.keeps_compiled,
            secret=secret,
            # Servers hold only the weights, which do not grow with the batch.
            memory_share=settings.memory_share if rank < workers else 0.0,
        )
        for rank, slot in enumerate(slots)
    ]


def list_plugins(config: Config) -> tuple[PluginReference, ...]:
    """Return the plug-ins that this config uses, which its processes must load."""
    model = models.resolve(config.model)
    plugins = (FRAMEWORKS[config.framework].plugin, model.plugin if model else None)
    return tuple(plugin for plugin in plugins if plugin)


def find_loopback_interface() -> str | None:
    """Return the loopback interface. Without it, frameworks might leave the machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), None)
