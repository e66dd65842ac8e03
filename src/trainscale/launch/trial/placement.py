"""The jobs of a trial: every process with its host, its device, and the addresses and ports of all the others."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...spec import placement
from ...spec.config import Config, Trial
from ...spec.devices import LOOPBACK, AvailableDevices
from ...spec.placement import Slot
from ...worker import models
from ...worker.frameworks.catalog import FRAMEWORKS
from ...worker.job import SCHEDULER, SERVER, WORKER, Job, Measure
from ..launchers.base import Process

MEETING_PORTS = 1  # on the host of rank 0, where the workers meet


def slots_of(trial: Trial, supply: AvailableDevices) -> list[Slot]:
    """Of every process of the trial, in order of rank."""
    schedulers = FRAMEWORKS[trial.config.framework].schedulers(trial.config.strategy)
    return placement.place_processes(trial.config, trial.devices, supply, schedulers)


def ports_needed(found: Sequence[Slot]) -> dict[str, int]:
    """Of each host: one for every process there, and one where the workers meet."""
    needed = dict.fromkeys((seat.host.name for seat in found), 0)
    for seat in found:
        needed[seat.host.name] += 1
    needed[found[0].host.name] += MEETING_PORTS
    return needed


def place(
    trial: Trial,
    found: Sequence[Slot],
    measure: Measure,
    *,
    seed: int,
    pythons: Mapping[str, str],
    ports: Mapping[str, Sequence[int]],
    save_weights: Path | None = None,
    data_dir: str = "",
    memory_share: float = 0.0,
) -> list[Process]:
    """Every process of a trial, in order of rank. ``ports``: free ones of each host, as many as ``ports_needed``."""
    config, workers = trial.config, trial.devices
    free = {host: list(numbers) for host, numbers in ports.items()}
    meeting_port = free[found[0].host.name].pop()
    rank_ports = tuple(free[seat.host.name].pop(0) for seat in found)
    # On one host everything stays inside it, whatever networks it has.
    hosts = len({seat.host.name for seat in found})
    several, servers = hosts > 1, config.servers_on(hosts)
    addresses = tuple(seat.host.address if several else LOOPBACK for seat in found)
    processes = []
    for rank, seat in enumerate(found):
        job = Job(
            role=_role(rank, workers, servers),
            rank=rank,
            workers=workers,
            servers=servers,
            addresses=addresses,
            ports=rank_ports,
            meeting_port=meeting_port,
            device=seat.device,
            config=config,
            batch=config.batch_per_device(workers),
            measure=measure,
            interface=seat.host.interface if several else loopback_interface(),
            python_path=(str(Path.cwd()),),
            seed=seed,
            save_weights=str(save_weights) if save_weights else None,
            plugins=plugins_of(config),
            data_dir=data_dir,
            # Servers hold the weights alone: those do not grow with the batch.
            memory_share=memory_share if rank < workers else 0.0,
        )
        python = seat.host.pythons.get(config.framework) or pythons[config.framework]
        processes.append(Process(seat.host.name, python, job, {}))
    return processes


def plugins_of(config: Config) -> tuple[dict[str, str], ...]:
    """What third parties added and this config uses: its processes must be told."""
    model = models.resolve(config.model)
    found = (FRAMEWORKS[config.framework].plugin, model.plugin if model else None)
    return tuple(plugin for plugin in found if plugin)


def _role(rank: int, workers: int, servers: int) -> str:
    if rank < workers:
        return WORKER
    return SERVER if rank < workers + servers else SCHEDULER


def loopback_interface() -> str | None:
    """Its name on this machine; frameworks would otherwise look up the host's name and might leave the machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), None)
