"""Computes what a correct trial computes in its first steps: one process takes the steps of all ranks with the
reference network. It gets the job of rank 0.

It sends these arrays:

``losses``
    of each step, the loss of each worker on its own samples
``initial_losses``
    the loss of each worker with the initial weights. It is that of its first step, unless a worker behind asynchronous
    servers uses what others have made of the weights
``sketch/NAME``
    the change of each tensor of the last worker after its last step
``totals``
    sketches of the change of all tensors: one if the workers share their weights, else one for each worker. Behind
    asynchronous servers a worker has the weights after its own turn, or reads the last ones.
``gradients``
    sketches of what a first step subtracts from the initial weights, divided by the learning rate: one if the workers
    average their gradients, else one for each worker
``head_gradients``
    the same of the head's weights alone
``gradient/NAME``
    the same of each tensor, for the last worker alone
``spread/losses``, ``spread/NAME``, ``spread/total``, ``spread/gradient``, ``spread/head_gradient``,
``gradient_spread/NAME``
    the relative differences between the timed precision and the exact numbers, for the first steps of rank 0 alone
``samples``
    four numbers about the samples, which show whether they are random
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from .. import plugins
from ..data.facts import SYNTHETIC
from ..data.source import DatasetSource, make_samples
from ..emitter import Emitter, HeartbeatSender
from ..events import ExpectationDone
from ..frameworks.base import learning_rate_schedule
from ..frameworks.catalog import FRAMEWORKS
from ..inspection.usage import count_available_bytes, read_host_peak_bytes
from ..job import Job
from ..models import CROSS_ENTROPY, build, find_samples, initial_weights
from ..training.rank import CannotCompute, run_job
from ..type_aliases import NamedArrays
from . import ASYNCHRONOUS, INDEPENDENT, STEPS, count_first_steps, find_exchange
from .layers import Arrays
from .reference import ReferenceNetwork, ReferenceOptimizer, Weights, estimate_needed_bytes
from .sketch import sketch_changes, sketch_weights, sum_sketches

_SHARE_OF_MEMORY = 0.7  # of what is free


@dataclass
class Outcome:
    """What some ranks computed: losses by step and worker, and the change of their weights."""

    losses: list[list[float]] = field(default_factory=list)
    sketches: NamedArrays = field(default_factory=dict)
    totals: list[Any] = field(default_factory=list)
    gradients: list[Any] = field(default_factory=list)
    head_gradients: list[Any] = field(default_factory=list)
    tensor_gradients: dict[str, Any] = field(default_factory=dict)
    initial_losses: list[float] = field(default_factory=list)


def main(arguments: list[str]) -> int:
    return run_job(_compute)


def _compute(job: Job, emit: Emitter) -> None:
    began = time.perf_counter()
    heartbeat = HeartbeatSender(emit)
    plugins.use(job.plugins, job.python_path)  # and all cores: nothing is measured meanwhile
    arrays = choose_arrays(job, count_available_bytes())
    values = compute_expectation(job, arrays, heartbeat)
    emit.send_arrays(values, {"arithmetic": arrays.arithmetic})
    emit(ExpectationDone(time.perf_counter() - began, read_host_peak_bytes()))


def choose_arrays(job: Job, free_bytes: int) -> Arrays:
    """Return arrays in float64, or in float32 if there is no memory for float64; on the job's GPU where that can be.

    Raises CannotCompute.
    """
    config = job.config
    if find_samples(config.model).loss != CROSS_ENTROPY:
        raise CannotCompute(f"the reference has no loss {find_samples(config.model).loss!r}")
    graph = build(config.model, config.image_size, config.classes)
    kinds: list[tuple[Callable[[str], Arrays], int]] = [(Arrays, free_bytes)]
    if job.device.kind == "cuda":
        kinds[:0] = _list_gpu_arrays(job.device.index)
    needed = 0
    for make, free in kinds:
        for arithmetic in ("fp64", "fp32"):
            arrays = make(arithmetic)
            needed = estimate_needed_bytes(graph, job.batch, arrays)
            if needed <= _SHARE_OF_MEMORY * free:
                return arrays
    gigabytes = f"it needs {needed / 1e9:.1f} GB, {free_bytes / 1e9:.1f} GB are free"
    raise CannotCompute(f"no memory for the reference: {gigabytes}")


def _list_gpu_arrays(index: int) -> list[tuple[Callable[[str], Arrays], int]]:
    """Return arrays on a GPU and its free memory, if this Python has PyTorch and it sees the GPU."""
    try:
        from ..frameworks.torch.reference_arrays import TorchArrays, count_free_bytes
    except ImportError:
        return []
    return [(lambda arithmetic: TorchArrays(arithmetic, f"cuda:{index}"), count_free_bytes(index))]


def compute_expectation(job: Job, arrays: Arrays, heartbeat: HeartbeatSender | None = None) -> NamedArrays:
    """Return the arrays by name."""
    import numpy as np

    steps = ReferenceSteps(job, arrays, heartbeat)
    outcome = steps.take_all()
    alone = outcome if job.workers == 1 else steps.take([0])
    # Where both would compute alike, another order of the samples shows how much rounding matters.
    is_same = job.config.precision == arrays.arithmetic
    timed = ReferenceSteps(job, arrays.make_like(job.config.precision), heartbeat, is_reversed=is_same).take([0])
    result = {"losses": np.array(outcome.losses), "totals": np.concatenate(outcome.totals)}
    result["initial_losses"] = np.array(outcome.initial_losses or outcome.losses[0])
    result.update({f"sketch/{name}": values for name, values in outcome.sketches.items()})
    result["spread/losses"] = np.array([_compute_spread(a[0], b[0]) for a, b in zip(timed.losses, alone.losses)])
    result["spread/total"] = np.array(_compute_spread(timed.totals[0], alone.totals[0]))
    if outcome.gradients:
        result["gradients"] = np.concatenate(outcome.gradients)
        result["head_gradients"] = np.concatenate(outcome.head_gradients)
        result["spread/gradient"] = np.array(_compute_spread(timed.gradients[0], alone.gradients[0]))
        result["spread/head_gradient"] = np.array(_compute_spread(timed.head_gradients[0], alone.head_gradients[0]))
        result.update({f"gradient/{name}": values for name, values in outcome.tensor_gradients.items()})
        for name, values in alone.tensor_gradients.items():
            result[f"gradient_spread/{name}"] = np.array(_compute_spread(timed.tensor_gradients[name], values))
    for name, values in alone.sketches.items():
        result[f"spread/{name}"] = np.array(_compute_spread(timed.sketches[name], values))
    result["samples"] = np.array(steps.describe_samples())
    return result


def _compute_spread(value: Any, exact: Any) -> float:
    """Return the length of the difference relative to the exact value; infinity relative to zero."""
    import numpy as np

    difference, length = np.linalg.norm(np.atleast_1d(value - exact)), np.linalg.norm(np.atleast_1d(exact))
    return float(difference / length) if length else float("inf") if difference else 0.0


class ReferenceSteps:
    """Takes the first steps of a trial's ranks in one arithmetic."""

    def __init__(
        self, job: Job, arrays: Arrays, heartbeat: HeartbeatSender | None = None, is_reversed: bool = False
    ) -> None:
        config = job.config
        graph = build(config.model, config.image_size, config.classes)
        self._job, self._arrays, self._heartbeat, self._is_reversed = job, arrays, heartbeat, is_reversed
        self._network = ReferenceNetwork(graph, arrays)
        self._head = graph.head_weight
        self._initial = initial_weights(graph, job.seed)
        self._initial_sketches = sketch_weights(self._initial)
        self._rate = learning_rate_schedule(job)
        self._batches = RankBatches(job)

    def take_all(self) -> Outcome:
        """Take the steps of all ranks, with the exchange of the job's strategy."""
        exchange = find_exchange(self._job.config.strategy)
        if exchange == ASYNCHRONOUS:
            return self._take_turns(FRAMEWORKS[self._job.config.framework].pulls_before_step)
        ranks = range(self._job.workers)
        if exchange == INDEPENDENT:
            return _join([self.take([rank]) for rank in ranks])
        return self.take(ranks)

    def take(self, ranks: Sequence[int]) -> Outcome:
        """Take steps of ranks that average their gradients. Batch norm sees the samples of one rank."""
        outcome, optimizer = Outcome(), self._make_optimizer()
        for step in range(count_first_steps(self._job.config)):
            losses: list[float] = []
            sums: Weights = {}
            for rank in ranks:
                loss, gradients = self._compute_gradients(optimizer.weights, rank, step)
                losses.append(loss)
                _add(sums, gradients)
            for values in sums.values():
                values /= len(ranks)
            outcome.losses.append(losses)
            optimizer.update(sums, self._rate(step))
            self._add_change(outcome, optimizer)
            if step == 0:
                self._add_gradients(outcome, outcome.sketches)
        outcome.totals = outcome.totals[-1:]
        return outcome

    def describe_samples(self) -> list[float]:
        return self._batches.describe(self._job.workers)

    def _take_turns(self, pulls_before_step: bool) -> Outcome:
        """Let every rank take one step, in order of rank, each of which the server applies as it comes."""
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
            self._add_first_gradients(outcome, at_initial)
            optimizer.update(gradients, self._rate(0))
            self._add_change(outcome, optimizer)
        if pulls_before_step:  # then every rank reads the weights of the servers, after the last turn
            outcome.totals = outcome.totals[-1:]
        return outcome

    def _compute_gradients(self, weights: Weights, rank: int, step: int) -> tuple[float, Weights]:
        if self._heartbeat:
            self._heartbeat.phase, self._heartbeat.step = f"{self._arrays.arithmetic}, rank {rank}", step + 1
        samples, labels = self._batches.make_batch(rank, step)
        if self._is_reversed:
            samples, labels = samples[::-1], labels[::-1]
        return self._network.compute_gradients(weights, samples, labels)

    def _make_optimizer(self) -> ReferenceOptimizer:
        config = self._job.config
        return ReferenceOptimizer(self._initial, config.momentum, config.weight_decay, self._arrays)

    def _add_first_gradients(self, outcome: Outcome, gradients: Weights) -> None:
        """Add what a first step with these gradients would subtract from the initial weights."""
        optimizer = self._make_optimizer()
        optimizer.update(gradients, self._rate(0))
        self._add_gradients(outcome, self._sketch_changes(optimizer))

    def _add_gradients(self, outcome: Outcome, changes: Mapping[str, Any]) -> None:
        """Add the gradients that a first step of some ranks had, given the changes of the weights."""
        if not self._rate(0):
            return
        outcome.tensor_gradients = {name: values / -self._rate(0) for name, values in changes.items()}
        outcome.gradients.append(sum_sketches(outcome.tensor_gradients))
        outcome.head_gradients.append(outcome.tensor_gradients[self._head])

    def _sketch_changes(self, optimizer: ReferenceOptimizer) -> dict[str, Any]:
        after = {name: self._arrays.to_numpy(values) for name, values in optimizer.weights.items()}
        return sketch_changes(self._initial_sketches, after)

    def _add_change(self, outcome: Outcome, optimizer: ReferenceOptimizer) -> None:
        """Sketch the change of the weights since the start. Only the last sketches of single tensors are kept."""
        outcome.sketches = self._sketch_changes(optimizer)
        outcome.totals.append(sum_sketches(outcome.sketches))


def _add(sums: Weights, gradients: Weights) -> None:
    for name, values in gradients.items():
        if name in sums:
            sums[name] += values
        else:
            sums[name] = values


def _join(outcomes: Sequence[Outcome]) -> Outcome:
    """Return the outcome of ranks that each trained alone."""
    losses = [[outcome.losses[step][0] for outcome in outcomes] for step in range(len(outcomes[0].losses))]
    joined = Outcome(losses, outcomes[-1].sketches)
    for outcome in outcomes:
        joined.totals += outcome.totals
        joined.gradients += outcome.gradients
        joined.head_gradients += outcome.head_gradients
    joined.tensor_gradients = outcomes[-1].tensor_gradients
    return joined


class RankBatches:
    """The samples (numpy, channels first, float32) and labels of every rank in its first steps, as its own sources give
    them. Real images are kept in 8 bits.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._pixels: dict[int, list[Any]] = {}  # by rank: of each step the pixels, labels and normalization

    def make_batch(self, rank: int, step: int) -> tuple[Any, Any]:
        """Return what a rank trains on in a step; the first step is number 0."""
        job, config = self._job, self._job.config
        if config.data == SYNTHETIC:  # the same samples in every step
            samples = find_samples(config.model)
            shape, first = samples.shape(config), rank * job.batch
            return make_samples(job.seed, first, job.batch, shape, config.classes, samples.dtype)
        if rank not in self._pixels:
            self._pixels[rank] = self._load(rank)
        pixels, labels, normalization = self._pixels[rank][step]
        return normalization(pixels), labels

    def describe(self, workers: int) -> list[float]:
        """Return the standard deviation of the values of the first step's samples, how many of these samples are copies
        of another one, how many labels occur, and how many samples there are: of rank 0 and of the last rank.
        """
        import numpy as np

        batches = [self.make_batch(rank, 0) for rank in {0, workers - 1}]
        samples = np.concatenate([samples for samples, _ in batches])
        labels = np.concatenate([labels for _, labels in batches])
        copies = len(samples) - len({sample.tobytes() for sample in samples})
        return [float(samples.std(dtype="f8")), copies, len(np.unique(labels)), len(samples)]

    def _load(self, rank: int) -> list[Any]:
        config = replace(self._job.config, loaders=1)
        collector: Any = _PixelCollector()
        source = DatasetSource(replace(self._job, rank=rank, config=config), collector)
        try:
            return list(islice(source.batches(), STEPS))
        finally:
            source.close()


class _PixelCollector:
    """Stands in for the adapter: copies the pixels, which the loader overwrites."""

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> tuple[Any, Any, Any]:
        return pixels.copy(), labels.copy(), normalization
