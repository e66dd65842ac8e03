"""Who goes where: the jobs of a trial on the devices there are. Workers take devices in order; servers sit beside
them or on devices of their own.
"""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from ..errors import InputError
from ..spec.config import APART, Config, Trial
from ..worker import models
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.job import SCHEDULER, SERVER, WORKER, Device, Job, Measure
from .base import Process

LOOPBACK = "127.0.0.1"
_FIRST_PORT = 10000  # below are the ports of well-known services
_TRIES = 500


def place(
    trial: Trial,
    devices: tuple[Device, ...],
    measure: Measure,
    *,
    seed: int,
    pythons: Mapping[str, str],
    ports: tuple[int, ...],
    save_weights: Path | None = None,
) -> list[Process]:
    """Every process of a trial on this machine, in order of rank. ``ports``: as many as ``ports_needed`` says."""
    config, workers = trial.config, trial.devices
    count = processes_of(trial)
    jobs = [
        Job(
            role=_role(trial, rank),
            rank=rank,
            workers=workers,
            servers=config.servers,
            addresses=(LOOPBACK,) * count,
            ports=tuple(ports[:count]),
            meeting_port=ports[count],
            device=devices[rank] if rank < workers else server_device(trial, devices, rank - workers),
            config=config.to_dict(),
            batch=config.batch_per_device(workers),
            measure=measure,
            interface=loopback_interface(),
            python_path=(str(Path.cwd()),),
            seed=seed,
            save_weights=str(save_weights) if save_weights else None,
            plugins=plugins_of(config),
        )
        for rank in range(count)
    ]
    return [Process("localhost", pythons[config.framework], job, {}) for job in jobs]


def processes_of(trial: Trial) -> int:
    """Workers, servers, and a scheduler where the framework needs one."""
    config = trial.config
    return trial.devices + config.servers + FRAMEWORKS[config.framework].schedulers(config.strategy)


def ports_needed(trial: Trial) -> int:
    """One for every process, and one where the workers meet."""
    return processes_of(trial) + 1


def plugins_of(config: Config) -> tuple[dict[str, str], ...]:
    """What third parties added and this config uses: its processes must be told."""
    model = models.resolve(config.model)
    found = (FRAMEWORKS[config.framework].plugin, model.plugin if model else None)
    return tuple(plugin for plugin in found if plugin)


def _role(trial: Trial, rank: int) -> str:
    if rank < trial.devices:
        return WORKER
    return SERVER if rank < trial.devices + trial.config.servers else SCHEDULER


def server_device(trial: Trial, devices: tuple[Device, ...], server: int) -> Device:
    """The cores of a server. Beside: those of a worker, shared with it. Apart: those after the workers'.

    A scheduler counts as one more server, always beside: it does next to nothing.
    """
    if devices[0].kind == "cuda":
        return Device("cpu", server, ())  # a GPU's host has cores to spare: the system places it
    if trial.config.server_placement == APART and server < trial.config.servers:
        return devices[trial.devices + server]
    return devices[server % trial.devices]


def loopback_interface() -> str | None:
    """Its name on this machine; frameworks would otherwise look up the host's name and might leave the machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), None)


def free_ports(count: int) -> tuple[int, ...]:
    """Ports that nobody listens on now, all different.

    Not among those that the system gives to outgoing connections: a peer that calls before anybody listens there, and
    calls again, would sooner or later be given that very port for its own end, and the listener would find it taken.
    """
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(_quiet_ports(), k=_TRIES):
            one = stack.enter_context(socket.socket())
            try:
                one.bind((LOOPBACK, port))
            except OSError:
                continue
            found.append(one.getsockname()[1])
            if len(found) == count:
                return tuple(found)
    raise InputError(f"no {count} free ports on {LOOPBACK}: {_TRIES} were tried")


def _quiet_ports() -> range:
    """The larger of the two ranges below and above the system's own."""
    try:
        low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    except (OSError, ValueError):
        low, high = 32768, 60999  # what Linux has unless told otherwise
    ranges = (range(_FIRST_PORT, low), range(high + 1, 65536))
    widest = max(ranges, key=len)
    return widest if len(widest) >= _TRIES else range(_FIRST_PORT, 65536)
