"""Computes a few steps with one framework, for a parity check. Nothing is timed.

Reads a job from standard input and sends its numbers as events: the logits of every head, the loss of every step, the
weights before and after, folded. The controller compares the numbers.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from ..data import synthetic
from ..emitter import Emitter
from ..events import ParityDone
from ..frameworks.catalog import FRAMEWORKS
from ..job import Job
from ..pinning import pin
from . import numbers

if TYPE_CHECKING:
    import numpy

_FOLD = 4096  # values that represent a tensor


def main(arguments: list[str]) -> int:
    return numbers.run(_compute)


def _compute(job: Job, emit: Emitter) -> None:
    import numpy as np

    began = time.perf_counter()
    pin(job.device.cores)
    numbers.use_plugins(job)
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
    numbers.send_arrays(emit, arrays, counts)
    emit(ParityDone(parameters, macs, seconds))
    adapter.leave()


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
