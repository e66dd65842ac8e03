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
from typing import Any

from ..emitter import HeartbeatSender
from ..frameworks.base import Adapter, learning_rate_schedule
from ..job import Job
from ..models import Graph
from ..models.weights import initial_weights
from ..sample import Report, keep_finite
from ..training.rendezvous import Rendezvous
from ..type_aliases import NamedArrays
from . import count_first_steps
from .closing_steps import STEPS as CLOSING_STEPS
from .closing_steps import ClosingStepTaker
from .head_decay import compute_decay, compute_remaining_share
from .sketch import sketch_changes, sketch_weights, sum_sketches


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
