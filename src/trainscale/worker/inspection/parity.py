"""Computes a few steps with one framework, for a parity check. Nothing is timed.

Reads a job from standard input and sends its numbers as events: the logits of every head, the loss of every step, the
weights before, after the first step and after the last, folded, and what batch norm, dropout and ``place_pixels`` do.
The controller compares the numbers. Training starts from varied weights (models/weights.py).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..data.source import Normalization, make_batch
from ..emitter import Emitter
from ..events import ParityDone
from ..frameworks.base import Adapter
from ..frameworks.catalog import FRAMEWORKS
from ..job import Job
from ..models import BATCH_NORM_MOMENTUM
from ..models.weights import use_varied_weights
from ..training.rank import pin, run_job
from ..type_aliases import NamedArrays

if TYPE_CHECKING:
    import numpy

_FOLD = 4096  # values that represent a tensor
_DROPPED = (100, 1000)  # the ones that every dropout layer is given


def main(arguments: list[str]) -> int:
    return run_job(_compute)


def _compute(job: Job, emit: Emitter) -> None:
    began = time.perf_counter()
    pin(job.device.cores)
    plugins.use(job.plugins, job.python_path)
    framework = FRAMEWORKS[job.config.framework].load(job)
    adapter = framework(job)
    if not adapter.proof.can_switch_dropout:  # then the network is built without it
        adapter = framework(replace(job, dropout=False))
    adapter.join()
    with use_varied_weights():
        parameters = adapter.build()
    adapter.proof.set_dropout(False)
    arrays = _train(adapter, job)
    if job.dropout:
        # The path that real images take, and the layers that training leaves out, in the timed precision.
        arrays.update(_measure_dropout(adapter))
        arrays.update(_compare_placed_pixels(adapter, job))
    macs = adapter.proof.macs()
    seconds = time.perf_counter() - began
    counts = {"parameters": parameters, "macs": macs, "versions": adapter.versions()}
    emit.send_arrays(arrays, counts)
    emit(ParityDone(parameters, macs, seconds))
    adapter.leave()


def _train(adapter: Adapter, job: Job) -> NamedArrays:
    import numpy as np

    batch = make_batch(job, adapter.place)
    arrays: NamedArrays = {f"before/{name}": fold(values) for name, values in adapter.proof.weights().items()}
    for number, head in enumerate(adapter.proof.logits(batch)):
        arrays[f"logits/{number}"] = np.asarray(head, dtype=np.float64)
    statistics = adapter.proof.statistics()
    losses = []
    for step in range(job.measure.steps):
        adapter.wait(adapter.step(batch))
        losses.append(adapter.loss())
        if step == 0:
            arrays.update({f"first/{name}": fold(values) for name, values in adapter.proof.weights().items()})
            arrays.update(_compute_new_statistics(adapter, job.batch, statistics, "first-statistics", steps=1))
    arrays["losses"] = np.array(losses, dtype=np.float64)
    arrays.update({f"after/{name}": fold(values) for name, values in adapter.proof.weights().items()})
    arrays.update(_compute_new_statistics(adapter, job.batch, statistics, "statistics", job.measure.steps))
    return arrays


def _compute_new_statistics(adapter: Adapter, batch: int, before: NamedArrays, part: str, steps: int) -> NamedArrays:
    """Return what the steps added to the running statistics, with the unbiased variance.

    The logits may have changed the statistics before, which differs between frameworks.
    """
    import numpy as np

    arrays = {}
    for name, values in adapter.proof.statistics().items():
        kept = (1 - BATCH_NORM_MOMENTUM) ** steps
        added = np.asarray(values, np.float64) - kept * np.asarray(before[name], np.float64)
        if name.endswith(".variance") and adapter.proof.has_biased_variance:
            added *= _compute_bias_correction(adapter, name, batch)
        arrays[f"{part}/{name}"] = added
    return arrays


def _compute_bias_correction(adapter: Adapter, name: str, batch: int) -> float:
    """Return n / (n - 1) for the n values over which a batch norm averages."""
    graph = adapter.proof.catalogue_graph
    if graph is None:
        return 1.0
    count = batch
    for side in graph.layer(name.rpartition(".")[0]).shape[1:]:
        count *= side
    return count / max(count - 1, 1)


def _measure_dropout(adapter: Adapter) -> NamedArrays:
    """Return, for each dropout layer: the share of zeros among its outputs for ones, their mean otherwise, its rate
    and the number of ones.
    """
    import numpy as np

    graph = adapter.proof.catalogue_graph
    adapter.proof.set_dropout(True)
    arrays = {}
    for layer in graph.layers if graph else ():
        if layer.kind == "dropout":
            outputs = np.asarray(adapter.proof.drop(layer.name, np.ones(_DROPPED, np.float32)), np.float64)
            kept = outputs[outputs != 0]
            mean = kept.mean() if kept.size else 0.0
            arrays[f"dropout/{layer.name}"] = np.array(
                [1 - kept.size / outputs.size, mean, layer.options["rate"], outputs.size]
            )
    return arrays


def _compare_placed_pixels(adapter: Adapter, job: Job) -> NamedArrays:
    """Return the largest difference that ``place_pixels`` makes to normalizing on the host, relative to the largest
    value, and how many labels differ.
    """
    import numpy as np

    shape = adapter.samples.shape(job.config)
    if adapter.samples.unit != "images" or len(shape) != 3:
        return {}
    channels = range(shape[0])
    normalization = Normalization(tuple(0.3 + 0.1 * c for c in channels), tuple(0.2 + 0.05 * c for c in channels))
    # Every pixel differs from its neighbours, from row to row and from channel to channel.
    pixels: Any = (np.arange(job.batch * int(np.prod(shape))) * 37 % 256).astype(np.uint8).reshape(job.batch, *shape)
    labels: Any = np.arange(job.batch, dtype=np.int64) % job.config.classes
    expected = adapter.proof.read_batch(adapter.place(normalization(pixels), labels.copy()))
    placed = adapter.proof.read_batch(adapter.place_pixels(pixels, labels.copy(), normalization))
    if placed[0].shape != expected[0].shape:
        return {"pixels": np.array([np.inf, 0.0])}
    images, right = (np.asarray(part[0], np.float64) for part in (placed, expected))
    wrong_labels = float((np.asarray(placed[1]) != np.asarray(expected[1])).sum())
    return {"pixels": np.array([np.abs(images - right).max() / np.abs(right).max(), wrong_labels])}


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
