"""The witness of a trial: what a rank reports about its own first steps and its window, so that the controller can
prove that the timed processes did the work.

The first steps are warm-up steps. Dropout is off in them, in the same compiled program, because its random numbers
cannot be computed anywhere else. After them a rank sends its losses and a sketch of how its weights changed. After the
window it sends how much work its device still had to do, and how much of the head's weights weight decay has left,
which counts the updates. Last it takes closing steps from the initial weights: what a step computes must be the
same after the window as before it. The controller compares all of it (analyse/witness.py).
"""

from __future__ import annotations

import base64
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from ..emitter import Emitter, HeartbeatSender
from ..events.ranks import ClosingSteps, FirstSteps, TensorSketches, WindowProof
from ..frameworks.base import Adapter, learning_rate_schedule
from ..job import Job
from ..models import Graph
from ..models.weights import initial_weights
from ..type_aliases import NamedArrays
from ..witness import count_first_steps
from ..witness.head_decay import compute_decay, compute_remaining_share
from ..witness.sketch import sketch_changes, sketch_weights, sum_sketches
from .closing_steps import STEPS as CLOSING_STEPS
from .closing_steps import ClosingStepTaker
from .rendezvous import Rendezvous

_TENSORS_PER_LINE = 4  # 64 numbers take 683 characters in base64


class Witness:
    """Follows one rank. The loop reports each of its first steps with ``observe``."""

    def __init__(self, adapter: Adapter, rendezvous: Rendezvous, emit: Emitter) -> None:
        self._adapter, self._job, self._rendezvous, self._emit = adapter, adapter.job, rendezvous, emit
        self._losses: list[float] = []
        self._steps_left = 0
        self._outer_seconds = 0.0
        self.seconds = 0.0  # that it has taken so far, besides the first steps themselves, which are warm-up
        if self._job.witness and adapter.proof.catalogue_graph is not None:
            self._begin()

    @contextmanager
    def _count_own_seconds(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began

    def _begin(self) -> None:
        if not self._adapter.proof.can_switch_dropout:
            obstacle = f"{self._job.config.framework} cannot switch off the dropout of this network"
            self._emit(FirstSteps([], "", obstacle))
            return
        self._steps_left = count_first_steps(self._job.config)
        with self._count_own_seconds():
            self._before = sketch_weights(self._adapter.proof.weights())
            self._adapter.proof.set_dropout(False)
            if self._takes_turns:  # no rank changes the servers' weights before all have read them
                self._rendezvous.exchange("initial weights")

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
        """Note the loss of the step that was just taken. After the last of the first steps, send the report."""
        if not self._steps_left:
            return
        self._losses.append(loss)
        self._steps_left -= 1
        if not self._steps_left:
            with self._count_own_seconds():
                self._report()
                self._adapter.proof.set_dropout(True)
                if self._takes_turns:  # nor does one take its next step before all have read what the turns changed
                    self._rendezvous.exchange("changed weights")

    def _report(self) -> None:
        skipped = self._adapter.proof.skipped_updates()
        if skipped:
            self._emit(FirstSteps([], "", f"the loss scale was too large for {skipped} of its first steps"))
            return
        sketches = sketch_changes(self._before, self._adapter.proof.weights())
        self._emit(FirstSteps(self._losses, encode_numbers(sum_sketches(sketches))))
        self._report_tensors(sketches, is_closing=False)

    def _report_tensors(self, sketches: Mapping[str, Any], is_closing: bool) -> None:
        """Send the sketches of single tensors from the last worker. Where ranks take turns, it has the newest."""
        if self._job.rank != self._job.workers - 1:
            return
        names = list(sketches)
        for start in range(0, len(names), _TENSORS_PER_LINE):
            part = names[start : start + _TENSORS_PER_LINE]
            self._emit(TensorSketches(part, [encode_numbers(sketches[name]) for name in part], is_closing))

    @contextmanager
    def time_window(self) -> Iterator[None]:
        """Time the steps of a window, or of an epoch, by a second clock, which verifies that of the loop."""
        began = time.monotonic()
        yield
        self._outer_seconds += time.monotonic() - began

    def report_window(self, weights: NamedArrays, steps: int, unfinished_seconds: float) -> None:
        """Send what proves the window. All ranks call it together, when all have ended their steps.

        ``steps`` are all steps that this rank took, also before the window.
        """
        job = self._job
        updates = sum(self._rendezvous.exchange("steps", steps)) if self._takes_turns else steps
        rate = make_shared_rate(job)
        self._emit(
            WindowProof(
                updates=updates,
                unfinished_seconds=unfinished_seconds,
                decay=compute_remaining_share(job.config, job.seed, weights),
                expected_decay=compute_decay(job.config, rate, updates),
                next_decay=compute_decay(job.config, rate, updates + 1),
                counted_updates=self._adapter.proof.counted_updates(),
                outer_seconds=self._outer_seconds,
            )
        )

    def take_closing_steps(self, source: Any, steps: int, last_loss: float) -> None:
        """Take the closing steps, and report them. All ranks call it together. ``steps`` are those taken so far."""
        adapter, graph = self._adapter, self._adapter.proof.catalogue_graph
        # Where ranks take turns, a schedule of the learning rate counts the steps of all of them.
        has_known_rates = not (self._takes_turns and self._job.config.trains_epochs)
        can_take = adapter.proof.restores_weights and adapter.proof.can_switch_dropout and has_known_rates
        if not self._job.witness or graph is None or not can_take:
            return
        rate = learning_rate_schedule(self._job)
        rates = [rate(steps + number) for number in range(CLOSING_STEPS)]
        # A rate of zero changes nothing, and a velocity that is not finite hides the gradient.
        if not (min(rates) > 0 and all(self._rendezvous.exchange("closing", math.isfinite(last_loss)))):
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
        """Take the closing steps of this rank, with the others or alone, and report them."""
        taker = ClosingStepTaker(self._adapter, None if self._takes_turns else self._rendezvous, self._before)
        losses, gradients = taker.take(initial_weights(graph, self._job.seed), source.load_first_batch(), rates)
        all_weights = [encode_numbers(sum_sketches(sketches)) for sketches in gradients]
        head = [encode_numbers(sketches[graph.head_weight]) for sketches in gradients]
        self._emit(ClosingSteps(losses, all_weights, head, taker.change))
        self._report_tensors(gradients[-1], is_closing=True)


def make_shared_rate(job: Job) -> Callable[[int], float]:
    """Return the learning rate by the number of updates. Where servers apply every gradient as it comes, the schedule
    counts the updates of all workers as one.
    """
    rate = learning_rate_schedule(job)
    sharers = job.workers if job.config.strategy == "ps-async" else 1
    return lambda update: rate(update // sharers)


def encode_numbers(values: Any) -> str:
    return base64.b64encode(values.astype("<f8").tobytes()).decode()
