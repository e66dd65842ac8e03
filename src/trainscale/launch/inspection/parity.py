"""Has one framework compute a few steps of a network, for a parity check: one process on one host, no clock."""

from __future__ import annotations

import base64
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...spec.config import Config
from ...spec.devices import LOOPBACK, HostDevices
from ...worker.events import decode
from ...worker.job import WORKER, Device, Job, Measure
from ..connections.keeper import HostError, KeeperConnection, ready
from ..launchers.base import ITS_START, Launcher, Task, plan
from ..trial.placement import loopback_interface, plugins_of

FP64, FP32 = "fp64", "fp32"
STEPS = 3
BATCH = 4  # images: enough for batch norm to have something to average over
_SECONDS = 1200.0


@dataclass(frozen=True)
class EncodedNumbers:
    """What a framework computed: ``head`` is JSON that says what ``values`` holds, eight bytes each."""

    head: bytes
    values: bytes
    seconds: float


class ParityFailed(Exception):
    """A framework could not compute its numbers; the message says why."""


def compute(
    launcher: Launcher,
    site: HostDevices,
    python: str,
    config: Config,
    precision: str,
    device: Device,
    seed: int,
    started: Callable[[KeeperConnection], None] = lambda _: None,
) -> EncodedNumbers:
    """A Broken when it fails. ``started`` is told of the keeper, so that whoever is interrupted can end it."""
    (keeper,) = launcher.open([site.name])
    started(keeper)
    try:
        ports = ready([keeper], {site.name: 1})[site.name]
        job = _job(config, precision, device, seed, ports[0])
        task = Task(0, [site.pythons.get(config.framework) or python, ITS_START, "parity"], job.to_json())
        keeper.write(plan([task], _SECONDS))
        return _listen(keeper)
    except HostError as error:
        raise ParityFailed(str(error)) from None
    finally:
        keeper.stop()


def _job(config: Config, precision: str, device: Device, seed: int, port: int) -> Job:
    local = replace(config.untrained(), strategy="local", servers=0, precision=precision, compile=False, batch=BATCH)
    return Job(
        role=WORKER,
        rank=0,
        workers=1,
        servers=0,
        addresses=(LOOPBACK,),
        ports=(port,),
        meeting_port=0,
        device=device,
        config=local,
        batch=BATCH,
        measure=Measure(0, STEPS if precision == FP64 else 1),
        interface=loopback_interface(),
        python_path=(str(Path.cwd()),),
        seed=seed,
        dropout=False,
        plugins=plugins_of(config),
    )


def _listen(keeper: KeeperConnection) -> EncodedNumbers:
    pieces: list[bytes] = []
    done: dict[str, Any] = {}
    buffer = keeper.take_left_over()
    until = time.monotonic() + _SECONDS + 60
    while time.monotonic() < until:
        data = os.read(keeper.output.fileno(), 65536)
        if not data:
            raise ParityFailed(keeper.last_complaint() or f"{keeper.host} ended without a word")
        *lines, buffer = (buffer + data).split(b"\n")
        for event in map(decode, (line.decode(errors="replace") for line in lines)):
            kind = event["kind"] if event else ""
            if event is None or kind == "log":
                continue
            if kind == "numbers":
                pieces.append(base64.b64decode(event["data"]))
            elif kind in ("parity", "error"):
                done = event
            elif kind == "deadline":
                raise ParityFailed(f"still computing after {_SECONDS:.0f} s")
            elif kind == "exit":
                return _judged(done, event, pieces)
    raise ParityFailed(f"still computing after {_SECONDS:.0f} s")


def _judged(done: dict[str, Any], end: dict[str, Any], pieces: list[bytes]) -> EncodedNumbers:
    if done.get("kind") == "parity":
        head, _, values = b"".join(pieces).partition(b"\n")
        return EncodedNumbers(head, values, done["seconds"])
    if done:
        raise ParityFailed(done["message"])
    last = (end["tail"].strip().splitlines() or ["no message"])[-1]
    raise ParityFailed(f"ended with exit code {end['code']}: {last}")
