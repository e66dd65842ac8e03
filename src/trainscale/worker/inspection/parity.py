"""Computes a few steps with one framework, for a parity check. Nothing is timed.

Reads a job from standard input and sends its numbers as events: the logits of every head, the loss of every step, the
weights before and after, folded. A JSON line says what was counted and how many values each array has; the values
follow, eight bytes each; all of it is cut into pieces. The controller compares the numbers and needs no numpy for it.
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
from ..emitter import Emitter, claim_stdout
from ..events import NumbersPiece, ParityDone, RankError
from ..frameworks.catalog import FRAMEWORKS
from ..job import Job
from ..pinning import die_with_parent, pin
from ..training.rank import classify

if TYPE_CHECKING:
    import numpy

_FOLD = 4096  # values that represent a tensor
_PIECE = 2700  # bytes in an event line: 3,600 as text


def main(arguments: list[str]) -> int:
    die_with_parent()
    job = Job.from_json(sys.stdin.readline())
    emit = Emitter(job.rank, claim_stdout())
    try:
        _compute(job, emit)
    except BaseException as error:
        traceback.print_exc()
        sys.stderr.flush()
        emit(RankError(classify(error), f"{type(error).__name__}: {error}"[:400]))
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
    arrays: dict[str, Any] = {f"before/{name}": fold(values) for name, values in adapter.weights().items()}
    for number, head in enumerate(adapter.logits(batch)):
        arrays[f"logits/{number}"] = np.asarray(head, dtype=np.float64)
    losses = []
    for _ in range(job.measure.steps):
        adapter.wait(adapter.step(batch))
        losses.append(adapter.loss())
    arrays["losses"] = np.array(losses, dtype=np.float64)
    arrays.update({f"after/{name}": fold(values) for name, values in adapter.weights().items()})
    macs = adapter.macs()
    seconds = time.perf_counter() - began
    counts = {"parameters": parameters, "macs": macs, "versions": adapter.versions()}
    _send_arrays(emit, arrays, counts)
    emit(ParityDone(parameters, macs, seconds))
    adapter.leave()


def _send_arrays(emit: Emitter, arrays: dict[str, Any], counts: dict[str, Any]) -> None:
    head = json.dumps({**counts, "arrays": {name: values.size for name, values in arrays.items()}}).encode() + b"\n"
    data = head + b"".join(values.astype("<f8").tobytes() for values in arrays.values())
    for start in range(0, len(data), _PIECE):
        emit(NumbersPiece(base64.b64encode(data[start : start + _PIECE]).decode()))


def fold(values: Any) -> numpy.ndarray:
    """Represent a tensor by at most 4,096 numbers. A small tensor stays as it is. Otherwise every value is multiplied
    by a fixed random sign and added to one of 4,096 sums. The folds of two tensors differ by as much as the tensors
    do (in the root mean square over signs). A single different value changes the fold, and so do two values that
    swapped positions, except for one pair in 8,192.
    """
    import numpy as np

    flat: numpy.ndarray = np.asarray(values, dtype=np.float64).ravel()
    if flat.size <= _FOLD:
        return flat.copy()  # it may be a view of weights that training changes
    rows = -(-flat.size // _FOLD)
    # numpy guarantees that the raw bits of a generator are the same in every version.
    bits = np.random.SFC64(np.random.SeedSequence(flat.size)).random_raw(-(-rows * _FOLD // 64))
    signs = np.unpackbits(bits.astype("<u8").view(np.uint8))[: flat.size]
    signed = np.zeros(rows * _FOLD)
    np.subtract(flat, 2.0 * flat * signs, out=signed[: flat.size])
    sums: numpy.ndarray = signed.reshape(rows, _FOLD).sum(axis=0)
    return sums
