"""Has one framework compute a few steps of a network, for a parity check: one process on this machine, no clock."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..spec.config import Config
from ..spec.supply import LOOPBACK
from ..worker.events import decode
from ..worker.job import WORKER, Device, Job, Measure
from ..worker.ports import free_ports
from .base import START
from .placement import loopback_interface, plugins_of

FP64, FP32 = "fp64", "fp32"
STEPS = 3
BATCH = 4  # images: enough for batch norm to have something to average over
_SECONDS = 1200.0


def compute(
    python: str,
    config: Config,
    precision: str,
    device: Device,
    seed: int,
    folder: Path,
    running: set[subprocess.Popen[str]],
) -> dict[str, Any]:
    """The event of a process that wrote its numbers into ``folder``; {"kind": "error", "message"} when it failed.

    The process is in ``running`` while it lives, so that whoever is interrupted can end it.
    """
    local = replace(config, strategy="local", servers=0, precision=precision, compile=False, batch=BATCH)
    job = Job(
        role=WORKER,
        rank=0,
        workers=1,
        servers=0,
        addresses=(LOOPBACK,),
        ports=tuple(free_ports(1)),
        meeting_port=0,
        device=device,
        config=local.to_dict(),
        batch=BATCH,
        measure=Measure(0, STEPS if precision == FP64 else 1),
        interface=loopback_interface(),
        python_path=(str(Path.cwd()),),
        seed=seed,
        save_weights=str(folder),
        dropout=False,
        plugins=plugins_of(config),
    )
    try:
        process = subprocess.Popen(
            [python, str(START), "parity"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            start_new_session=True,
        )
    except OSError as error:
        return {"kind": "error", "message": f"{python}: {error.strerror}"}
    running.add(process)
    try:
        out, err = process.communicate(job.to_json() + "\n", _SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return {"kind": "error", "message": f"still computing after {_SECONDS:.0f} s"}
    finally:
        running.discard(process)
    events = [event for event in map(decode, out.splitlines()) if event is not None]
    if events:
        return events[-1]
    last = (err.strip().splitlines() or ["no message"])[-1]
    return {"kind": "error", "message": f"ended with exit code {process.returncode}: {last}"}
