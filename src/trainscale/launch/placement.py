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
from ..spec.config import APART, Trial
from ..worker.job import SERVER, WORKER, Device, Job, Measure
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
    ports: tuple[int, int],
    save_weights: Path | None = None,
) -> list[Process]:
    """Every process of a trial on this machine, in order of rank."""
    config, workers = trial.config, trial.devices
    world = workers + config.servers
    jobs = [
        Job(
            role=WORKER if rank < workers else SERVER,
            rank=rank,
            workers=workers,
            servers=config.servers,
            addresses=(LOOPBACK,) * world,
            port=ports[0],
            meeting_port=ports[1],
            device=devices[rank] if rank < workers else server_device(trial, devices, rank - workers),
            config=config.to_dict(),
            batch=config.batch_per_device(workers),
            measure=measure,
            interface=loopback_interface(),
            python_path=(str(Path.cwd()),),
            seed=seed,
            save_weights=str(save_weights) if save_weights else None,
        )
        for rank in range(world)
    ]
    return [Process("localhost", pythons[config.framework], job, {}) for job in jobs]


def server_device(trial: Trial, devices: tuple[Device, ...], server: int) -> Device:
    """The cores of a server. Beside: those of a worker, shared with it. Apart: those after the workers'."""
    if devices[0].kind == "cuda":
        return Device("cpu", server, ())  # a GPU's host has cores to spare: the system places it
    if trial.config.server_placement == APART:
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
