"""What a rank does and reports to prove that its timed steps did the work.

In the first steps, which are warm-up, dropout is off, in the same compiled program. After them
the rank keeps its losses and a sketch of how its weights changed. After the window it notes how
much work its device still had to do, and how much of the head's weights weight decay has left,
which counts the updates. Last it takes closing steps from the initial weights: what a step
computes must be the same after the window as before it. analyse/witness.py judges all this.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..config import Config
from ..events import HeartbeatSender
from ..frameworks.base import Adapter, find_graph, learning_rate_schedule
from ..models.weights import initial_weights, make_initial
from ..sample import Report, keep_finite
from ..training.rendezvous import Rendezvous
from ..type_aliases import NamedArrays
from . import count_first_steps
from .sketch import sketch_weights

if TYPE_CHECKING:
    import numpy

CLOSING_STEPS = 3  # give the gradient twice, so that every third update is seen to be left out


class Witness:
    def __init__(self, adapter: Adapter, rendezvous: Rendezvous, report: Report) -> None:
        self._adapter, self._job, self._rendezvous = adapter, adapter.job, rendezvous
        self._report, self._proof = report, report.witness
        # Ranks take their first steps in turns, so that the servers' weights can be predicted.
        self._takes_turns = self._job.config.strategy == "ps-async"
        self._losses: list[float | None] = []
        self._names: list[str] = []
        self._steps_left = 0
        self._outer_seconds = 0.0
        if not self._job.witness or adapter.catalogue_graph is None:
            return
        if not adapter.can_switch_dropout:
            framework = self._job.config.framework
            self._proof.obstacle = f"{framework} cannot switch off the dropout of this network"
            return
        self._steps_left = count_first_steps(self._job.config)
        with self._count_own_seconds():
            weights = adapter.weights()
            self._names = list(weights)
            self._before = sketch_weights(weights, self._names)
            adapter.set_dropout(False)
            if self._takes_turns:  # no rank changes the servers' weights before all have read them
                rendezvous.exchange("initial weights")

    @contextmanager
    def _count_own_seconds(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self._proof.seconds += time.perf_counter() - began

    @contextmanager
    def take_turn(self, heartbeat: HeartbeatSender) -> Iterator[None]:
        """Wait for this rank's turn to take its first step, where ranks take turns."""
        turns = self._job.workers if self._steps_left and self._takes_turns else 0
        for earlier in range(min(turns, self._job.rank)):
            self._rendezvous.exchange(f"turn {earlier}")
            heartbeat.step = earlier + 1  # otherwise a rank which waits long would seem to hang
        yield
        for own_or_later in range(self._job.rank, turns):
            self._rendezvous.exchange(f"turn {own_or_later}")
            heartbeat.step = own_or_later + 1

    def observe(self, loss: float) -> None:
        """Note the loss of a first step, and after the last one how the weights changed."""
        if not self._steps_left:
            return
        self._losses.append(keep_finite(loss))
        self._steps_left -= 1
        if self._steps_left:
            return
        with self._count_own_seconds():
            skipped = self._adapter.skipped_updates()
            if skipped:
                self._proof.obstacle = f"the loss scale was too large for {skipped} of its first steps"
            else:
                changes = sketch_weights(self._adapter.weights(), self._names) - self._before
                self._proof.losses = tuple(self._losses)
                self._proof.total = _list_numbers(changes.sum(axis=0))
                self._report.sketches = self._choose_sketches(changes)
            self._adapter.set_dropout(True)
            if self._takes_turns:  # no rank continues before all have read the updated weights
                self._rendezvous.exchange("changed weights")

    def _choose_sketches(self, rows: Any) -> dict[str, tuple[float, ...]]:
        # The last worker has the newest.
        is_last = self._job.rank == self._job.workers - 1
        return dict(zip(self._names, map(_list_numbers, rows))) if is_last else {}

    @contextmanager
    def time_window(self) -> Iterator[None]:
        """Time a window or an epoch by a second clock."""
        began = time.monotonic()
        yield
        self._outer_seconds += time.monotonic() - began

    def observe_window(self, weights: NamedArrays, steps: int) -> None:
        """Note what proves the window. All ranks call it together, after all their ``steps``."""
        job, proof, rate = self._job, self._proof, learning_rate_schedule(self._job)
        # Behind asynchronous servers, a schedule counts the updates of all workers as one.
        sharers, proof.updates = 1, steps
        if self._takes_turns:
            sharers, proof.updates = job.workers, sum(self._rendezvous.exchange("steps", steps))
        proof.counted_updates = self._adapter.counted_updates()
        proof.outer_seconds = self._outer_seconds
        share = compute_remaining_share(job.config, job.seed, weights)
        proof.decay = None if share is None else keep_finite(share)
        proof.expected_decay, proof.next_decay = (
            compute_decay(job.config, lambda n: rate(n // sharers), updates)
            for updates in (proof.updates, proof.updates + 1)
        )

    def take_closing_steps(self, source: Any, steps: int) -> None:
        """All ranks call it together, after all their ``steps``."""
        job, adapter = self._job, self._adapter
        graph = adapter.catalogue_graph
        # Where ranks take turns, a schedule of the learning rate counts the steps of all of them.
        has_known_rates = not (self._takes_turns and job.config.trains_epochs)
        can_take = adapter.restores_weights and adapter.can_switch_dropout and has_known_rates
        if not job.witness or graph is None or not can_take:
            return
        rate = learning_rate_schedule(job)
        rates = [rate(steps + number) for number in range(CLOSING_STEPS)]
        # A rate of zero changes nothing, and a velocity that is not finite hides the gradient.
        is_finite = self._report.sample.last_loss is not None
        if min(rates) <= 0 or not all(self._rendezvous.exchange("closing", is_finite)):
            return
        with self._count_own_seconds():
            adapter.set_dropout(False)
            # Of ranks that take turns not all do it, because that would take too long.
            for turn in sorted({0, job.workers - 1}) if self._takes_turns else [job.rank]:
                if turn == job.rank:
                    weights = initial_weights(graph, job.seed)
                    self.measure_gradients(weights, source.load_first_batch(), rates)
                if self._takes_turns:
                    self._rendezvous.exchange(f"closing turn {turn}")
            adapter.set_dropout(True)

    def measure_gradients(self, weights: Mapping[str, Any], batch: Any, rates: Sequence[float]) -> None:
        """Take the closing steps of this rank with the initial weights and the first batch, at
        these learning rates, and note the gradients. Where ranks take turns, the others wait.

        Let w be the initial weights, and g the gradient with weight decay that the first step
        subtracted from them. The optimizer is not reset, so its velocity v is unknown. With the
        learning rates r₁ and r₂ and the momentum m, two steps from w change the weights by
        a = -r₁·(m·v + g) and b = -r₂·(m·(m·v + g) + g). So g = (m·r₂/r₁·a - b) / r₂, whatever v is.

        Servers may update weights of their own, u, where the worker's copy is set to w. Then b has
        the weight decay of u and not of w, and the difference is subtracted. Behind asynchronous
        servers the first step only fetches what the other ranks have made of u.
        """
        import numpy as np

        adapter, config, proof = self._adapter, self._job.config, self._proof
        initial, is_restored = self._before, adapter.updates_restored_weights
        losses: list[float] = []
        starts = [initial if is_restored else sketch_weights(adapter.weights(), self._names)]
        changes: list[numpy.ndarray] = []
        for number in range(CLOSING_STEPS):
            # No rank restores weights before all have read those of the last step, nor takes a
            # step before all have restored them.
            if not self._takes_turns:
                self._rendezvous.exchange(f"restore {number}")
            adapter.restore(weights)
            if not self._takes_turns:
                self._rendezvous.exchange(f"restored {number}")
            adapter.wait(adapter.step(batch))
            losses.append(adapter.loss())
            after = sketch_weights(adapter.weights(), self._names)
            changes.append(after - starts[-1])
            starts.append(initial if is_restored else after)
        gradients = []
        for second in range(2 if self._takes_turns and not is_restored else 1, CLOSING_STEPS):
            first, rate = second - 1, rates[second]
            gradient = (config.momentum * rate / rates[first] * changes[first] - changes[second]) / rate
            gradients.append(gradient - config.weight_decay * (starts[second] - initial))

        proof.closing_losses = tuple(map(keep_finite, losses))
        lengths = [np.linalg.norm(change.sum(axis=0)) / rate for change, rate in zip(changes, rates)]
        proof.closing_change = keep_finite(float(max(lengths))) or 0.0
        proof.gradients = tuple(_list_numbers(rows.sum(axis=0)) for rows in gradients)
        assert adapter.catalogue_graph is not None
        head = self._names.index(adapter.catalogue_graph.head_weight)
        proof.head_gradients = tuple(_list_numbers(rows[head]) for rows in gradients)
        self._report.closing_sketches = self._choose_sketches(gradients[-1])


def _list_numbers(sketch: Any) -> tuple[float, ...]:
    import numpy as np

    # JSON has finite numbers only.
    return tuple(np.where(np.isfinite(sketch), sketch, 0.0).tolist())


def compute_remaining_share(config: Config, seed: int, weights: NamedArrays) -> float | None:
    """Return the share of the head's initial class sum that weight decay has left.

    The gradient of softmax cross-entropy sums to zero over the classes. So that sum changes by
    weight decay alone: the share follows from rate, momentum, decay and the number of updates.
    """
    graph = find_graph(config)
    if graph is None:
        return None
    name = f"{graph.heads[0].layer}.weight"
    head = next((each for each in graph.parameters() if each.name == name), None)
    if head is None or len(head.shape) != 2 or name not in weights:
        return None
    first = make_initial(graph, head, seed).sum(axis=0, dtype="f8")
    # Rounding leaves a sum along the features. After a ReLU those are positive, so most of it is
    # the same for all, and disappears with the mean.
    direction = first - first.mean()
    return float(direction @ weights[name].sum(axis=0, dtype="f8") / (direction @ first))


def compute_decay(config: Config, rate: Callable[[int], float], updates: int) -> float:
    """Return the share that is left after some updates; ``rate`` gives the rate of each."""
    share, velocity = 1.0, 0.0
    for update in range(updates):
        velocity = config.momentum * velocity + config.weight_decay * share
        share -= rate(update) * velocity
    return share
