"""Computes a few steps with one framework, for a parity check. Nothing is timed.

The numbers are the logits of every head, the loss of every step, the weights before, after the
first step and after the last, folded, and what batch norm, dropout and ``place_pixels`` do:
for each dropout layer the share of zeros among its outputs for ones, the mean of the others,
its rate and the number of ones. Training starts from varied weights (models/weights.py).
"""

from __future__ import annotations

import math
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .. import plugins
from ..data.source import Normalization, make_batch
from ..events import Emitter
from ..frameworks.base import Adapter
from ..frameworks.catalog import FRAMEWORKS
from ..job import Job
from ..models import BATCH_NORM_MOMENTUM
from ..models.weights import are_varied
from ..training.rank import pin, run_job
from ..type_aliases import NamedArrays
from ..witness.sketch import draw_signs

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
    if not adapter.can_switch_dropout:  # then the network is built without it
        adapter = framework(replace(job, dropout=False))
    adapter.join()
    are_varied.set(True)
    parameters = adapter.build()
    adapter.set_dropout(False)
    arrays = _train(adapter, job)
    if job.dropout:  # the layers that training leaves out, and the path of real images
        import numpy as np  # after cores have been chosen

        adapter.set_dropout(True)
        for layer in adapter.list_layers("dropout"):
            ones: Any = np.ones(_DROPPED, np.float32)
            outputs = np.asarray(adapter.drop(layer.name, ones), np.float64)
            kept = outputs[outputs != 0]
            mean = kept.mean() if kept.size else 0.0
            numbers = [1 - kept.size / outputs.size, mean, layer.options["rate"], outputs.size]
            arrays[f"dropout/{layer.name}"] = np.array(numbers)
        arrays.update(_compare_placed_pixels(adapter, job))
    counts = {"parameters": parameters, "macs": adapter.macs(), "versions": adapter.versions()}
    emit.send_arrays(arrays, counts, began)
    adapter.leave()


def _train(adapter: Adapter, job: Job) -> NamedArrays:
    import numpy as np

    batch = make_batch(job, adapter.place)
    arrays: NamedArrays = {}

    def add_weights(part: str) -> None:
        arrays.update({f"{part}/{name}": fold(values) for name, values in adapter.weights().items()})

    add_weights("before")
    for number, head in enumerate(adapter.logits(batch)):
        arrays[f"logits/{number}"] = np.asarray(head, dtype=np.float64)
    # In some frameworks the logits have changed the running statistics.
    statistics = {name: np.array(values, np.float64) for name, values in adapter.statistics().items()}

    def add_statistics(part: str, steps: int) -> None:
        for name, values in adapter.statistics().items():
            added = np.asarray(values, np.float64) - (1 - BATCH_NORM_MOMENTUM) ** steps * statistics[name]
            graph = adapter.catalogue_graph
            if name.endswith(".variance") and adapter.has_biased_variance and graph is not None:
                shape = graph.layer(name.rpartition(".")[0]).shape
                count = job.batch * math.prod(shape[1:])  # values in a mean
                added *= count / max(count - 1, 1)
            arrays[f"{part}/{name}"] = added

    losses = []
    for step in range(job.measure.steps):
        adapter.wait(adapter.step(batch))
        losses.append(adapter.loss())
        if step == 0:
            add_weights("first")
            add_statistics("first-statistics", steps=1)
    arrays["losses"] = np.array(losses, dtype=np.float64)
    add_weights("after")
    add_statistics("statistics", job.measure.steps)
    return arrays


def _compare_placed_pixels(adapter: Adapter, job: Job) -> NamedArrays:
    """Compare ``place_pixels`` to normalizing: the largest relative difference, and wrong labels."""
    import numpy as np

    shape = adapter.samples.shape(job.config)
    if adapter.samples.unit != "images" or len(shape) != 3:
        return {}
    channels = range(shape[0])
    means, deviations = (0.3 + 0.1 * c for c in channels), (0.2 + 0.05 * c for c in channels)
    normalization = Normalization(tuple(means), tuple(deviations))
    # Every pixel differs from its neighbours, in each direction.
    numbers: Any = np.arange(job.batch * math.prod(shape)) * 37 % 256
    pixels = numbers.astype(np.uint8).reshape(job.batch, *shape)
    labels: Any = np.arange(job.batch, dtype=np.int64) % job.config.classes
    expected = adapter.read_batch(adapter.place(normalization(pixels), labels.copy()))
    placed = adapter.read_batch(adapter.place_pixels(pixels, labels.copy(), normalization))
    if placed[0].shape != expected[0].shape:
        return {"pixels": np.array([np.inf, 0.0])}
    images, right = (np.asarray(part[0], np.float64) for part in (placed, expected))
    wrong_labels = float((np.asarray(placed[1]) != np.asarray(expected[1])).sum())
    return {"pixels": np.array([np.abs(images - right).max() / np.abs(right).max(), wrong_labels])}


def fold(values: Any) -> numpy.ndarray:
    """Represent a large tensor by 4,096 sums of its values with fixed random signs.

    The folds of two tensors differ by as much as the tensors do, in the root mean square over
    signs. Two values that swapped positions change the fold, except for one pair in 8,192.
    """
    import numpy as np

    flat: numpy.ndarray = np.asarray(values, dtype=np.float64).ravel()
    if flat.size <= _FOLD:
        return flat.copy()  # it may be a view of weights that training changes
    rows = -(-flat.size // _FOLD)
    signed = np.zeros(rows * _FOLD)
    np.multiply(flat, draw_signs(flat.size, flat.size), out=signed[: flat.size])
    folded: numpy.ndarray = signed.reshape(rows, _FOLD).sum(axis=0)
    return folded
