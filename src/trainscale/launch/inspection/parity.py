"""Computes a few steps of a network with one framework, for a parity check: one process on one host, untimed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from ...spec.config import Config
from ...spec.devices import LOOPBACK, Host
from ...worker.config import ALLOCATORS, TUNED
from ...worker.job import WORKER, Device, Job, Measure, Task
from ..connected_hosts import ConnectedHosts
from ..launchers.base import ITS_START, Launcher
from ..trial.jobs import find_loopback_interface, list_plugins
from .numbers import EncodedNumbers, OnConnect, compute_numbers

FP64, FP32 = "fp64", "fp32"
STEPS = 3
BATCH = 4  # samples, so that batch norm has something to average over
# A hundred times the default, so that a parameter without gradient (a bias before batch norm) changes visibly.
WEIGHT_DECAY = 0.01
VERSION = 3  # of the numbers that a framework computes; part of the cache's key
_SECONDS = 1200.0


@dataclass(frozen=True)
class ParityTask:
    """What to compute: one framework's build of a network, in one precision, on one device."""

    config: Config
    precision: str
    device: Device
    seed: int


def compute(
    launcher: Launcher,
    site: Host,
    python: str,
    task: ParityTask,
    on_connect: OnConnect = lambda _: None,
) -> EncodedNumbers:
    """Return the numbers, or raise NumbersFailed. ``on_connect`` gets the connection, to end it from another thread."""

    def make_task(connected: ConnectedHosts) -> Task:
        (port,) = connected.find_ports({site.name: 1})[site.name]
        command = [site.pythons.get(task.config.framework) or python, ITS_START, "parity"]
        return Task(site.name, 0, command, _make_job(task, port).to_json(), defaults=ALLOCATORS[TUNED])

    return compute_numbers(launcher, site.name, make_task, _SECONDS, on_connect)


def _make_job(task: ParityTask, port: int) -> Job:
    config = replace(
        task.config.reset_training(),
        strategy="local",
        servers=0,
        precision=task.precision,
        compile=False,
        batch=BATCH,
        weight_decay=WEIGHT_DECAY,
    )
    return Job(
        role=WORKER,
        rank=0,
        workers=1,
        servers=0,
        addresses=(LOOPBACK,),
        ports=(port,),
        rendezvous_port=0,
        device=task.device,
        config=config,
        batch=BATCH,
        measure=Measure(0, STEPS),
        interface=find_loopback_interface(),
        python_path=(str(Path.cwd()),),
        seed=task.seed,
        dropout=task.precision != FP64,  # in the timed precision it is there, and switched off
        plugins=list_plugins(task.config),
    )
