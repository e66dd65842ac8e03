"""Computes a few steps of a network with one framework, for a parity check: one process on one host, untimed."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from ...spec.config import Config
from ...spec.devices import LOOPBACK, HostDevices
from ...worker.allocator import ALLOCATORS, TUNED
from ...worker.events import Deadline, Exit, NumbersPiece, ParityDone, RankError
from ...worker.job import WORKER, Device, Job, Measure, Task
from ..connections.connected_hosts import ConnectedHosts
from ..connections.event_reader import HostLost
from ..connections.exit_status import describe_exit
from ..connections.keeper import HostError
from ..launchers.base import ITS_START, Launcher
from ..trial.placement import loopback_interface, plugins_of

FP64, FP32 = "fp64", "fp32"
STEPS = 3
BATCH = 4  # samples, so that batch norm has something to average over
_SECONDS = 1200.0


@dataclass(frozen=True)
class ParityTask:
    """What to compute: one framework's build of a network, in one precision, on one device."""

    config: Config
    precision: str
    device: Device
    seed: int


@dataclass(frozen=True)
class EncodedNumbers:
    """What a framework computed. ``head`` is JSON that describes ``values``, which have eight bytes each."""

    head: bytes
    values: bytes
    seconds: float


class ParityFailed(Exception):
    """A framework could not compute its numbers; the message says why."""


def compute(
    launcher: Launcher,
    site: HostDevices,
    python: str,
    task: ParityTask,
    on_connect: Callable[[ConnectedHosts], None] = lambda _: None,
) -> EncodedNumbers:
    """Return the numbers, or raise ParityFailed. ``on_connect`` gets the connection, to end it from another thread."""
    try:
        with launcher.connect([site.name]) as connected:
            on_connect(connected)
            (port,) = connected.ports({site.name: 1})[site.name]
            command = [site.pythons.get(task.config.framework) or python, ITS_START, "parity"]
            rank = Task(site.name, 0, command, _job(task, port).to_json(), defaults=ALLOCATORS[TUNED])
            connected.start([rank], _SECONDS)
            return _read_numbers(connected)
    except HostError as error:
        raise ParityFailed(str(error)) from None


def _job(task: ParityTask, port: int) -> Job:
    config = replace(
        task.config.untrained(), strategy="local", servers=0, precision=task.precision, compile=False, batch=BATCH
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
        measure=Measure(0, STEPS if task.precision == FP64 else 1),
        interface=loopback_interface(),
        python_path=(str(Path.cwd()),),
        seed=task.seed,
        dropout=False,
        plugins=plugins_of(task.config),
    )


def _read_numbers(connected: ConnectedHosts) -> EncodedNumbers:
    pieces: list[bytes] = []
    outcome: ParityDone | RankError | None = None
    for received in connected.events(_SECONDS + 60):
        match received.event:
            case NumbersPiece(data=data):
                pieces.append(base64.b64decode(data))
            case ParityDone() | RankError():
                outcome = received.event
            case Exit():
                if isinstance(outcome, ParityDone):
                    head, _, values = b"".join(pieces).partition(b"\n")
                    return EncodedNumbers(head, values, outcome.seconds)
                raise ParityFailed(_explain_exit(outcome, received.event))
            case HostLost(stderr_tail=tail):
                raise ParityFailed(tail[-1] if tail else f"{received.host} ended without a message")
            case Deadline():
                break
    raise ParityFailed(f"still computing after {_SECONDS:.0f} s")


def _explain_exit(error: RankError | None, exit_event: Exit) -> str:
    if error is not None:
        return error.message
    last_line = (exit_event.tail.strip().splitlines() or ["no message"])[-1]
    return f"{describe_exit(exit_event.code)}: {last_line}"
