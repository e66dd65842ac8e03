"""Computes what a correct trial computes in its first steps: one process takes the
steps of all ranks with the reference network. It gets the job of rank 0.

It sends these arrays:

``losses``
    of each worker in each step, on its own samples
``initial_losses``
    of each worker with the initial weights; behind asynchronous servers other workers
    may have changed them before its first step
``sketch/NAME``
    the change of each tensor of the last worker after its last step
``totals``
    sketches of the change of all tensors: one if the workers share their weights,
    else one for each worker. Behind asynchronous servers a worker has the weights
    after its own turn, or reads the last ones
``gradients``
    sketches of what a first step subtracts from the initial weights, divided by the
    learning rate: one if the workers average their gradients, else one for each
``head_gradients``
    the same of the head's weights
``gradient/NAME``
    the same of each tensor, for the last worker
``spread/losses``, ``spread/total``, ``spread/NAME`` and so on
    the relative differences between the timed precision and the exact numbers, for
    the first steps of rank 0 alone
``samples``
    of the first samples of rank 0 and of the last rank: the standard deviation, how many
    are copies, how many labels occur, and how many samples there are
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import SimpleNamespace
from typing import Any

from .. import plugins
from ..data.facts import SYNTHETIC
from ..data.source import make_samples
from ..events import Emitter, HeartbeatSender
from ..frameworks.base import learning_rate_schedule
from ..frameworks.catalog import FRAMEWORKS
from ..inspection.usage import count_available_bytes
from ..job import Job
from ..models import CROSS_ENTROPY, build, find_samples, initial_weights
from ..training.rank import CannotCompute, run_job
from ..type_aliases import NamedArrays
from . import STEPS, count_first_steps
from .reference import (
    Arrays,
    ReferenceNetwork,
    ReferenceOptimizer,
    TorchArrays,
    Weights,
    estimate_needed_bytes,
)
from .sketch import sketch_weights

_SHARE_OF_MEMORY = 0.7  # of what is free


def main(arguments: list[str]) -> int:
    return run_job(_compute)


def _compute(job: Job, emit: Emitter) -> None:
    began = time.perf_counter()
    heartbeat = HeartbeatSender(emit)
    plugins.use(job.plugins, job.python_path)
    arrays = choose_arrays(job, count_available_bytes())
    expected = compute_expectation(job, arrays, heartbeat)
    emit.send_arrays(expected, {"arithmetic": arrays.arithmetic}, began)


def choose_arrays(job: Job, free_bytes: int) -> Arrays:
    """Return arrays in float64, or float32 for lack of memory; on the job's GPU if possible."""
    config = job.config
    if find_samples(config.model).loss != CROSS_ENTROPY:
        raise CannotCompute(f"the reference has no loss {find_samples(config.model).loss!r}")
    graph = build(config.model, config.image_size, config.classes)
    device = f"cuda:{job.device.index}"
    kinds: list[tuple[type[Arrays], int]] = [(Arrays, free_bytes)]
    if job.device.kind == "cuda":
        try:
            kinds.insert(0, (TorchArrays, TorchArrays("fp64", device).count_free_bytes()))
        except ImportError:
            pass  # this Python has no PyTorch
    for kind, free in kinds:
        for arithmetic in ("fp64", "fp32"):
            arrays = kind(arithmetic, device)
            needed = estimate_needed_bytes(graph, job.batch, arrays)
            if needed <= _SHARE_OF_MEMORY * free:
                return arrays
    gigabytes = f"it needs {needed / 1e9:.1f} GB, {free_bytes / 1e9:.1f} GB are free"
    raise CannotCompute(f"no memory for the reference: {gigabytes}")


def compute_expectation(job: Job, arrays: Arrays, heartbeat: HeartbeatSender | None = None) -> NamedArrays:
    import numpy as np

    batches = RankBatches(job)
    steps = ReferenceSteps(job, arrays, batches, heartbeat)
    if job.config.strategy == "ps-async":
        outcome = steps.take_turns(FRAMEWORKS[job.config.framework].pulls_before_step)
    elif job.config.strategy == "independent":
        each = [steps.take([rank]) for rank in range(job.workers)]
        losses = zip(*(outcome.losses for outcome in each))
        outcome = Outcome(
            losses=[[loss for (loss,) in of_step] for of_step in losses],
            changes=[rows for outcome in each for rows in outcome.changes],
            gradients=[rows for outcome in each for rows in outcome.gradients],
        )
    else:
        outcome = steps.take(range(job.workers))
    alone = outcome if job.workers == 1 else steps.take([0])
    # Where both are alike, another order of the samples shows what rounding does.
    is_same = job.config.precision == arrays.arithmetic
    timed_arrays = type(arrays)(job.config.precision, arrays.device)
    timed = ReferenceSteps(job, timed_arrays, batches, heartbeat, is_reversed=is_same).take([0])

    names, head = steps.names, steps.names.index(steps.head)
    result: NamedArrays = {
        "losses": np.array(outcome.losses),
        "totals": np.concatenate([rows.sum(axis=0) for rows in outcome.changes]),
        "initial_losses": np.array(outcome.initial_losses or outcome.losses[0]),
        "spread/losses": np.array([*map(_compute_spread, timed.losses, alone.losses)]),
    }
    first = [batches.make_batch(rank, 0) for rank in {0, job.workers - 1}]
    samples = np.concatenate([samples for samples, _ in first])
    copies = len(samples) - len({sample.tobytes() for sample in samples})
    labels = np.unique(np.concatenate([labels for _, labels in first]))
    result["samples"] = np.array([samples.std(dtype="f8"), copies, len(labels), len(samples)])
    result.update({f"sketch/{name}": row for name, row in zip(names, outcome.changes[-1])})
    parts = [("total", "spread", timed.changes[-1], alone.changes[-1])]
    if outcome.gradients:
        result["gradients"] = np.concatenate([rows.sum(axis=0) for rows in outcome.gradients])
        result["head_gradients"] = np.concatenate([rows[head] for rows in outcome.gradients])
        result.update({f"gradient/{name}": row for name, row in zip(names, outcome.gradients[-1])})
        values, exact = timed.gradients[0], alone.gradients[0]
        result["spread/head_gradient"] = _compute_spread(values[head], exact[head])
        parts.append(("gradient", "gradient_spread", values, exact))
    for whole, single, values, exact in parts:
        result[f"spread/{whole}"] = _compute_spread(values.sum(axis=0), exact.sum(axis=0))
        for name, *pair in zip(names, values, exact):
            result[f"{single}/{name}"] = _compute_spread(*pair)
    return result


def _compute_spread(value: Any, exact: Any) -> Any:
    import numpy as np

    difference = np.linalg.norm(np.subtract(value, exact))
    length = np.linalg.norm(exact)
    return np.array(difference / length if length else np.inf if difference else 0.0)


@dataclass
class Outcome:
    """What some ranks computed."""

    losses: list[list[float]] = field(default_factory=list)  # by step and worker
    # Sketches, with a row for each tensor: of shared weights, or of each worker's.
    changes: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)  # of a first step
    initial_losses: list[float] = field(default_factory=list)


class ReferenceSteps:
    def __init__(
        self,
        job: Job,
        arrays: Arrays,
        batches: RankBatches,
        heartbeat: HeartbeatSender | None = None,
        is_reversed: bool = False,
    ) -> None:
        config = job.config
        graph = build(config.model, config.image_size, config.classes)
        self._job, self._arrays = job, arrays
        self._heartbeat, self._is_reversed = heartbeat, is_reversed
        self._network, self._batches = ReferenceNetwork(graph, arrays), batches
        self._initial = initial_weights(graph, job.seed)
        self.names, self.head = list(self._initial), graph.head_weight
        self._initial_sketches = sketch_weights(self._initial, self.names)
        self._rate = learning_rate_schedule(job)

    def take(self, ranks: Sequence[int]) -> Outcome:
        """Take steps of ranks that average their gradients."""
        outcome, optimizer = Outcome(), self._make_optimizer()
        for step in range(count_first_steps(self._job.config)):
            outcome.losses.append([])
            mean: Weights = {}
            for rank in ranks:
                loss, gradients = self._compute_gradients(optimizer.weights, rank, step)
                outcome.losses[-1].append(loss)
                for name, values in gradients.items():
                    values /= len(ranks)
                    mean[name] = mean[name] + values if name in mean else values
            optimizer.update(mean, self._rate(step))
            outcome.changes = [self._sketch_change(optimizer)]
            if step == 0 and self._rate(0):
                outcome.gradients = [outcome.changes[0] / -self._rate(0)]
        return outcome

    def take_turns(self, pulls_before_step: bool) -> Outcome:
        """Let each rank take a step, which the server applies as it comes."""
        outcome, optimizer = Outcome([[]]), self._make_optimizer()
        initial = self._make_optimizer().weights
        at_start = optimizer.weights if pulls_before_step else initial
        for rank in range(self._job.workers):
            loss, gradients = self._compute_gradients(at_start, rank, 0)
            outcome.losses[0].append(loss)
            if pulls_before_step and rank:
                loss, at_initial = self._compute_gradients(initial, rank, 0)
            else:
                at_initial = gradients
            outcome.initial_losses.append(loss)
            if self._rate(0):
                alone = self._make_optimizer()
                alone.update(at_initial, self._rate(0))
                outcome.gradients.append(self._sketch_change(alone) / -self._rate(0))
            optimizer.update(gradients, self._rate(0))
            outcome.changes.append(self._sketch_change(optimizer))
        if pulls_before_step:  # then all read the last weights
            outcome.changes = outcome.changes[-1:]
        return outcome

    def _compute_gradients(self, weights: Weights, rank: int, step: int) -> tuple[float, Weights]:
        if self._heartbeat:
            self._heartbeat.phase = f"{self._arrays.arithmetic}, rank {rank}"
            self._heartbeat.step = step + 1
        samples, labels = self._batches.make_batch(rank, step)
        if self._is_reversed:
            samples, labels = samples[::-1], labels[::-1]
        return self._network.compute_gradients(weights, samples, labels)

    def _make_optimizer(self) -> ReferenceOptimizer:
        config = self._job.config
        return ReferenceOptimizer(self._initial, config.momentum, config.weight_decay, self._arrays)

    def _sketch_change(self, optimizer: ReferenceOptimizer) -> Any:
        after = {name: self._arrays.to_numpy(values) for name, values in optimizer.weights.items()}
        return sketch_weights(after, self.names) - self._initial_sketches


class RankBatches:
    """The samples and labels of every rank in its first steps, as its own source gives them."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pixels: dict[int, list[Any]] = {}  # by rank: what it places in each step

    def make_batch(self, rank: int, step: int) -> tuple[Any, Any]:
        job, config = self._job, self._job.config
        if config.data == SYNTHETIC:  # the same samples in every step
            samples = find_samples(config.model)
            shape, first = samples.shape(config), rank * job.batch
            return make_samples(job.seed, first, job.batch, shape, config.classes, samples.dtype)
        if rank not in self._pixels:
            from ..data.dataset import DatasetSource

            def copy(pixels: Any, labels: Any, normalization: Any) -> Any:
                return pixels.copy(), labels.copy(), normalization  # the loader overwrites them

            collector: Any = SimpleNamespace(place_pixels=copy)  # in place of an adapter
            own = replace(job, rank=rank, config=replace(config, loaders=1))
            source = DatasetSource(own, collector)
            try:
                self._pixels[rank] = list(islice(source.batches(), STEPS))
            finally:
                source.close()
        pixels, labels, normalization = self._pixels[rank][step]
        return normalization(pixels), labels
