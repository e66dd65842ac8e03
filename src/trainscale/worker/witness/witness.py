"""What a rank does and reports to prove that its timed steps did the work; analyse/witness.py judges it.

The first steps are warm-up steps. Dropout is off in them, in the same compiled program, because its random numbers
cannot be computed anywhere else. After them the rank keeps its losses and a sketch of how its weights changed. After
the window it notes how much work its device still had to do, and how much of the head's weights weight decay has left,
which counts the updates. Last it takes closing steps from the initial weights: what a step computes must be the same
after the window as before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import models
from ..config import Config
from ..emitter import HeartbeatSender
from ..frameworks.base import Adapter, learning_rate_schedule
from ..job import Job
from ..models import Graph
from ..models.weights import initial_weight, initial_weights
from ..sample import Report, keep_finite
from ..training.rendezvous import Rendezvous
from ..type_aliases import NamedArrays
from . import count_first_steps
from .sketch import sketch_changes, sketch_weights, sum_sketches

if TYPE_CHECKING:
    import numpy

CLOSING_STEPS = 3  # give the gradient twice, so that an update which is left out every third time is noticed


class Witness:
    """Follows one rank and fills in its report. The loop reports each of its first steps with ``observe``."""

    def __init__(self, adapter: Adapter, rendezvous: Rendezvous, report: Report) -> None:
        self._adapter, self._job, self._rendezvous = adapter, adapter.job, rendezvous
        self._report, self._proof = report, report.witness
        self._losses: list[float | None] = []
        self._steps_left = 0
        self._outer_seconds = 0.0
        if not self._job.witness or adapter.proof.catalogue_graph is None:
            return
        if not adapter.proof.can_switch_dropout:
            self._proof.obstacle = f"{self._job.config.framework} cannot switch off the dropout of this network"
            return
        self._steps_left = count_first_steps(self._job.config)
        with self._count_own_seconds():
            self._before = sketch_weights(adapter.proof.weights())
            adapter.proof.set_dropout(False)
            if self._takes_turns:  # no rank changes the servers' weights before all have read them
                rendezvous.exchange("initial weights")

    @contextmanager
    def _count_own_seconds(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._proof.seconds += time.perf_counter() - began

    @property
    def _takes_turns(self) -> bool:
        """Whether ranks take their first steps one after another: only then the servers' weights can be predicted."""
        return self._job.config.strategy == "ps-async"

    @contextmanager
    def take_turn(self, heartbeat: HeartbeatSender) -> Iterator[None]:
        """Wait for this rank's turn to take its first step, where ranks take turns.

        The heartbeat counts the turns, so that a rank which waits for many others does not look as if it hung.
        """
        turns = self._job.workers if self._steps_left and self._takes_turns else 0
        for earlier in range(min(turns, self._job.rank)):
            self._rendezvous.exchange(f"turn {earlier}")
            heartbeat.step = earlier + 1
        yield
        for own_or_later in range(self._job.rank, turns):
            self._rendezvous.exchange(f"turn {own_or_later}")
            heartbeat.step = own_or_later + 1

    def observe(self, loss: float) -> None:
        """Note the loss of the step that was just taken, and after the last first step how the weights changed."""
        if not self._steps_left:
            return
        self._losses.append(keep_finite(loss))
        self._steps_left -= 1
        if self._steps_left:
            return
        with self._count_own_seconds():
            skipped = self._adapter.proof.skipped_updates()
            if skipped:
                self._proof.obstacle = f"the loss scale was too large for {skipped} of its first steps"
            else:
                sketches = sketch_changes(self._before, self._adapter.proof.weights())
                self._proof.losses, self._proof.total = tuple(self._losses), _list_numbers(sum_sketches(sketches))
                self._report.sketches = self._choose_sketches(sketches)
            self._adapter.proof.set_dropout(True)
            if self._takes_turns:  # and no rank continues until every rank has read the updated weights
                self._rendezvous.exchange("changed weights")

    def _choose_sketches(self, sketches: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
        """Return the sketches of single tensors on the last worker. Where ranks take turns, it has the newest."""
        is_last = self._job.rank == self._job.workers - 1
        return {name: _list_numbers(values) for name, values in sketches.items()} if is_last else {}

    @contextmanager
    def time_window(self) -> Iterator[None]:
        """Time the steps of a window, or of an epoch, by a second clock, which verifies that of the loop."""
        began = time.monotonic()
        yield
        self._outer_seconds += time.monotonic() - began

    def observe_window(self, weights: NamedArrays, steps: int) -> None:
        """Note what proves the window. All ranks call it together, when all have ended their steps.

        ``steps`` are all steps that this rank took, also before the window.
        """
        job, proof = self._job, self._proof
        proof.updates = sum(self._rendezvous.exchange("steps", steps)) if self._takes_turns else steps
        proof.counted_updates = self._adapter.proof.counted_updates()
        proof.outer_seconds = self._outer_seconds
        share, rate = compute_remaining_share(job.config, job.seed, weights), make_shared_rate(job)
        proof.decay = None if share is None else keep_finite(share)
        proof.expected_decay = compute_decay(job.config, rate, proof.updates)
        proof.next_decay = compute_decay(job.config, rate, proof.updates + 1)

    def take_closing_steps(self, source: Any, steps: int) -> None:
        """Take the closing steps. All ranks call it together. ``steps`` are those taken so far."""
        adapter, graph = self._adapter, self._adapter.proof.catalogue_graph
        # Where ranks take turns, a schedule of the learning rate counts the steps of all of them.
        has_known_rates = not (self._takes_turns and self._job.config.trains_epochs)
        can_take = adapter.proof.restores_weights and adapter.proof.can_switch_dropout and has_known_rates
        if not self._job.witness or graph is None or not can_take:
            return
        rate = learning_rate_schedule(self._job)
        rates = [rate(steps + number) for number in range(CLOSING_STEPS)]
        # A rate of zero changes nothing, and a velocity that is not finite hides the gradient.
        if not (
            min(rates) > 0 and all(self._rendezvous.exchange("closing", self._report.sample.last_loss is not None))
        ):
            return
        with self._count_own_seconds():
            adapter.proof.set_dropout(False)
            if not self._takes_turns:
                self._close(graph, source, rates)
            else:
                for rank in sorted({0, self._job.workers - 1}):  # not all of them, because that would take too long
                    if rank == self._job.rank:
                        self._close(graph, source, rates)
                    self._rendezvous.exchange(f"closing turn {rank}")
            adapter.proof.set_dropout(True)

    def _close(self, graph: Graph, source: Any, rates: Sequence[float]) -> None:
        """Take the closing steps of this rank, with the others or alone."""
        taker = ClosingStepTaker(self._adapter, None if self._takes_turns else self._rendezvous, self._before)
        losses, gradients = taker.take(initial_weights(graph, self._job.seed), source.load_first_batch(), rates)
        proof = self._proof
        proof.closing_losses, proof.closing_change = tuple(map(keep_finite, losses)), keep_finite(taker.change) or 0.0
        proof.gradients = tuple(_list_numbers(sum_sketches(sketches)) for sketches in gradients)
        proof.head_gradients = tuple(_list_numbers(sketches[graph.head_weight]) for sketches in gradients)
        self._report.closing_sketches = self._choose_sketches(gradients[-1])


def make_shared_rate(job: Job) -> Callable[[int], float]:
    """Return the learning rate by the number of updates. Where servers apply every gradient as it comes, the schedule
    counts the updates of all workers as one.
    """
    rate = learning_rate_schedule(job)
    sharers = job.workers if job.config.strategy == "ps-async" else 1
    return lambda update: rate(update // sharers)


def _list_numbers(sketch: Any) -> tuple[float, ...]:
    """Return the numbers of a sketch. Those that are not finite become 0: JSON has none."""
    import numpy as np

    return tuple(np.where(np.isfinite(sketch), sketch, 0.0).tolist())


class ClosingStepTaker:
    """Takes the closing steps of one rank. ``initial`` are the sketches of its initial weights. Without a rendezvous
    the other ranks wait meanwhile.

    They prove that a step still computes what the first step computed: the same loss, and an update by the same
    gradient. Let w be the initial weights, and g the gradient with weight decay that the first step subtracted from
    them. The optimizer is not reset, so its velocity v is unknown. With learning rates r₁ and r₂ and the momentum
    m, two such steps change the weights by a = -r₁·(m·v + g) and b = -r₂·(m·(m·v + g) + g). So g = (m·r₂/r₁·a - b)
    / r₂, whatever v is.

    The gradient is given for each tensor. That of the head's weights is compared most closely, because rounding
    hardly changes it. In a deep network in bf16 it may change the gradient of all weights by as much as that
    gradient is long.

    Servers may update weights of their own, u, where the worker's copy is set to w. Then b has the weight decay of
    u and not of w, and the difference is subtracted.

    Behind asynchronous servers two ranks take turns: each takes all its steps while the others wait. Where the
    servers have weights of their own, the first step only fetches what the others have made of them.
    """

    def __init__(self, adapter: Adapter, rendezvous: Rendezvous | None, initial: Mapping[str, numpy.ndarray]) -> None:
        self._adapter, self._rendezvous, self._names = adapter, rendezvous, list(initial)
        self._initial = self._stack_sketches(initial)
        self.change = 0.0  # the length of the longest update of all weights, divided by its learning rate

    def take(
        self, weights: Mapping[str, Any], batch: Any, rates: Sequence[float]
    ) -> tuple[list[float], list[dict[str, numpy.ndarray]]]:
        """Return the losses, and for each two steps the sketch of the gradient of every tensor.

        The initial weights and the batch are those of the first step; ``rates`` are the learning rates to come.
        """
        is_restored = self._adapter.proof.updates_restored_weights
        start = self._initial if is_restored else self._read()
        losses: list[float] = []
        starts: list[numpy.ndarray] = []
        changes: list[numpy.ndarray] = []
        for number in range(CLOSING_STEPS):
            losses.append(self._step_from(weights, batch, number))
            after = self._read()
            starts.append(start)
            changes.append(after - start)
            start = self._initial if is_restored else after
        self.change = max(_compute_length(update) / rate for update, rate in zip(changes, rates))
        is_behind = self._rendezvous is None and not is_restored
        pairs = range(2 if is_behind else 1, CLOSING_STEPS)
        gradients = [self._compute_gradient(changes[n - 1 : n + 1], rates[n - 1 : n + 1], starts[n]) for n in pairs]
        return losses, [dict(zip(self._names, rows)) for rows in gradients]

    def _step_from(self, weights: Mapping[str, Any], batch: Any, number: int) -> float:
        """No rank restores weights before all have read those of the last step, nor takes a step before all have."""
        self._meet(f"restore {number}")
        self._adapter.proof.restore(weights)
        self._meet(f"restored {number}")
        self._adapter.wait(self._adapter.step(batch))
        return self._adapter.loss()

    def _meet(self, name: str) -> None:
        if self._rendezvous is not None:
            self._rendezvous.exchange(name)

    def _compute_gradient(
        self, changes: Sequence[numpy.ndarray], rates: Sequence[float], start: numpy.ndarray
    ) -> numpy.ndarray:
        config = self._adapter.config
        gradient = (config.momentum * rates[1] / rates[0] * changes[0] - changes[1]) / rates[1]
        result: numpy.ndarray = gradient - config.weight_decay * (start - self._initial)
        return result

    def _read(self) -> numpy.ndarray:
        return self._stack_sketches(sketch_weights(self._adapter.proof.weights()))

    def _stack_sketches(self, sketches: Mapping[str, numpy.ndarray]) -> numpy.ndarray:
        """Return one row for each tensor."""
        import numpy as np

        rows: numpy.ndarray = np.stack([sketches[name] for name in self._names])
        return rows


def _compute_length(changes: numpy.ndarray) -> float:
    """Return the length of the change of all weights, given the sketches of the changes of all tensors."""
    import numpy as np

    return float(np.linalg.norm(changes.sum(axis=0)))


def compute_remaining_share(config: Config, seed: int, weights: NamedArrays) -> float | None:
    """Return the share of the head's initial class sum that weight decay has left; None where there is no such head.

    The gradient of softmax cross-entropy sums to zero over the classes. So the sum of the head's weights over the
    classes changes by weight decay alone, whatever the samples, the dropout and the order of the updates are: after N
    updates a share of it remains that follows from the learning rate, the momentum, the weight decay and N.
    """
    if models.resolve(config.model) is None:
        return None
    graph = models.build(config.model, config.image_size, config.classes)
    name = f"{graph.heads[0].layer}.weight"
    if name not in weights or weights[name].ndim != 2:
        return None
    first = initial_weight(graph, name, seed).sum(axis=0, dtype="f8")
    # Gradients sum to zero except for rounding, whose sum is along the features. After a ReLU those are all positive,
    # so most of it is the same for all of them, and disappears with the mean.
    direction = first - first.mean()
    return float(direction @ weights[name].sum(axis=0, dtype="f8") / (direction @ first))


def compute_decay(config: Config, rate: Callable[[int], float], updates: int) -> float:
    """Return the share that is left after ``updates`` updates. ``rate`` gives the learning rate of an update by its
    number.
    """
    share, velocity = 1.0, 0.0
    for update in range(updates):
        velocity = config.momentum * velocity + config.weight_decay * share
        share -= rate(update) * velocity
    return share
