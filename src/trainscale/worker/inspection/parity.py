"""What a framework computes, as numbers that can be laid beside another's: one process, a few steps, no clock.

Reads a job from standard input, and says its numbers in event lines (logits of every head, the loss of every step, the
weights before and after, folded): one JSON line with what was counted and how many values there are of each, then the
values, eight bytes each, all of it cut into pieces. Comparing is the controller's, which needs no numpy for it.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import traceback
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..data import synthetic
from ..events import Emitter, claim_stdout
from ..frameworks.catalog import FRAMEWORKS
from ..job import Job
from ..pinning import die_with_parent, pin
from ..training.rank import classify

if TYPE_CHECKING:
    import numpy

_FOLD = 4096  # values that stand for a tensor
_PIECE = 2700  # bytes of an event line: 3,600 as text


def main(arguments: list[str]) -> int:
    die_with_parent()
    job = Job.from_json(sys.stdin.readline())
    emit = Emitter(job.rank, claim_stdout())
    try:
        _compute(job, emit)
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        emit("error", error=classify(error), message=f"{type(error).__name__}: {error}"[:400])
        os._exit(1)
    return 0


def _compute(job: Job, emit: Emitter) -> None:
    import numpy as np

    began = time.perf_counter()
    pin(job.device.cores)
    sys.path[:0] = job.python_path
    plugins.use(job.plugins)
    adapter = FRAMEWORKS[job.config.framework].load(job)(job)
    adapter.join()
    parameters = adapter.build()
    batch = synthetic.make_batch(job, adapter.place)
    found: dict[str, Any] = {f"before/{name}": fold(values) for name, values in adapter.weights().items()}
    for number, head in enumerate(adapter.logits(batch)):
        found[f"logits/{number}"] = np.asarray(head, dtype=np.float64)
    losses = []
    for _ in range(job.measure.steps):
        adapter.wait(adapter.step(batch))
        losses.append(adapter.loss())
    found["losses"] = np.array(losses, dtype=np.float64)
    found.update({f"after/{name}": fold(values) for name, values in adapter.weights().items()})
    macs = adapter.macs()
    seconds = time.perf_counter() - began
    _say(emit, found, parameters=parameters, macs=macs, versions=adapter.versions())
    emit("parity", parameters=parameters, macs=macs, seconds=seconds)
    adapter.leave()


def _say(emit: Emitter, found: dict[str, Any], **facts: Any) -> None:
    head = json.dumps({**facts, "arrays": {name: values.size for name, values in found.items()}}).encode() + b"\n"
    whole = head + b"".join(values.astype("<f8").tobytes() for values in found.values())
    for start in range(0, len(whole), _PIECE):
        emit("numbers", data=base64.b64encode(whole[start : start + _PIECE]).decode())


def fold(values: Any) -> numpy.ndarray:
    """A tensor as at most 4,096 numbers: itself if it is small; else every value, under a fixed random sign, is added
    to one of 4,096 places. Two tensors' folds differ by as much as the tensors do (in the root mean square over
    signs), and one value that differs changes them, as do two that changed places but for one pair in 8,192.
    """
    import numpy as np

    flat: numpy.ndarray = np.asarray(values, dtype=np.float64).ravel()
    if flat.size <= _FOLD:
        return flat.copy()  # a framework may give a view of weights that training then changes
    rows = -(-flat.size // _FOLD)
    # A generator's raw bits are promised to be the same in every numpy.
    bits = np.random.SFC64(np.random.SeedSequence(flat.size)).random_raw(-(-rows * _FOLD // 64))
    signs = np.unpackbits(bits.astype("<u8").view(np.uint8))[: flat.size]
    signed = np.zeros(rows * _FOLD)
    np.subtract(flat, 2.0 * flat * signs, out=signed[: flat.size])
    whole: numpy.ndarray = signed.reshape(rows, _FOLD).sum(axis=0)
    return whole
