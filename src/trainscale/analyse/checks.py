"""The sanity checks of every point. Each yields at most one sentence: a flag on the point.

A flag does not remove a point; it tells the reader what to doubt. The thresholds and their reasons are below.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..record.decoding import find_first_line, remove_unprintable
from ..record.trial import TrialRecord
from .statistics import LEAST_REPEATS, Interval
from .throughput import is_measured, is_synchronous

if TYPE_CHECKING:
    from .series import Point

# Only steps run in the window, so their times add up to it except for clock reads and the last wait. A difference of
# 5 % means that something else ran in the window, or that step times were lost.
STEPS_OFF_WINDOW = 0.05

# An idle Linux machine, even a desktop, uses 0.01–0.1 of a core for other things. At 0.2 another program is running: if
# every core is in use, it takes that share from one worker, and a synchronous step waits for that worker.
OTHER_CORES = 0.2

# Readers draw conclusions from differences of a few per cent; an interval wider than ±5 % does not support them.
WIDE_INTERVAL = 0.05

# One repeat has no interval, and may be fast by chance: on a quiet machine repeats agree within 2 %.
SUPERLINEAR_WITHOUT_INTERVAL = 1.02

# More than repeats on a quiet machine differ by (2 %), because the window of the resident samples is shorter.
INPUT_BOUND = 0.05
# One repeat has no interval, so the difference must be larger.
INPUT_BOUND_WITHOUT_INTERVAL = 0.1

# A network has learnt if its accuracy is this many standard errors above that of guesses.
CHANCE_ERRORS = 3


def find_point_flags(point: Point) -> tuple[str, ...]:
    """Return all flags of a point, from its good and failed trials. A point without a result has none."""
    if not point.ok:
        return ()
    measured = [record for record in point.records if is_measured(record)]
    flags: list[str] = []
    for check in _CHECKS:
        flags.extend(check(point, measured))
    flags.extend(dict.fromkeys(remove_unprintable(note) for record in point.records for note in record.notes))
    return tuple(flags)


def _check_failed_repeats(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    if point.failures:
        failed, last = len(point.failures), point.failures[-1]
        reason = f"{last.kind}: {find_first_line(last.message)}"
        yield f"{failed} of {point.repeats + failed} repeats failed, the last with {reason}"


def _check_short_trials(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    steps = {record.steps for record in records if record.trial.short}
    if steps:
        yield f"measured only in short trials of a search, {max(steps)} steps each"


def _check_repeats(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    if point.repeats < LEAST_REPEATS:
        often = "once" if point.repeats == 1 else "twice"
        yield f"measured {often} only, so there is no interval"


def _check_interval(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    relative = point.samples_per_second.relative if point.samples_per_second else None
    if relative is not None and relative > WIDE_INTERVAL:
        limit = _format_percent(WIDE_INTERVAL)
        yield f"repeats differ: the interval is ±{_format_percent(relative)}, wider than ±{limit}"


def _check_superlinearity(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    efficiency = point.efficiency
    if efficiency is None:
        return
    floor = efficiency.low if efficiency.low is not None else efficiency.mean / SUPERLINEAR_WITHOUT_INTERVAL
    if point.devices > 1 and floor > 1:
        yield f"efficiency of {_format_percent(efficiency.mean)} is above 100\u202f%: suspect the 1-device baseline"


def _check_world_size(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    for record in records:
        reporting = len({rank.rank for rank in record.ranks})
        if reporting != point.devices:
            yield f"{reporting} workers reported where {point.devices} were asked for"
            return


def _check_samples_per_step(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    for record in records:
        if any(not rank.step_seconds for rank in record.ranks):
            continue
        samples = sum(rank.samples / len(rank.step_seconds) for rank in record.ranks)
        if not math.isclose(samples, point.global_batch, rel_tol=1e-3):
            yield f"{samples:g} {point.unit} were trained per step, not the global batch of {point.global_batch}"
            return


def _check_step_sum(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    shares = [
        math.fsum(rank.step_seconds) / rank.window_seconds
        for record in records
        for rank in record.ranks
        if rank.step_seconds
    ]
    worst = max(shares, key=lambda share: abs(share - 1), default=1.0)
    if abs(worst - 1) > STEPS_OFF_WINDOW:
        yield f"step times add up to {_format_percent(worst)} of the measured window"


def _check_weights(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    if not is_synchronous(point.config):
        return
    for record in records:
        digests = {rank.weights_digest for rank in record.ranks if rank.weights_digest}
        if len(digests) > 1:
            yield f"workers hold {len(digests)} different sets of weights after synchronous training"
            return


def _check_losses(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    losses = [loss for record in records for rank in record.ranks for loss in (rank.first_loss, rank.last_loss)]
    losses += [loss for record in records for e in record.epochs for loss in (e.train_loss, e.valid_loss)]
    if None in losses:  # JSON has no NaN: the journal has null for a loss that is not finite
        yield "the loss is not finite: the arithmetic measured may not be that of real training"


def _check_learning(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    """Check that the network does better than guesses on samples that it was not trained on."""
    chance = 1 / point.config.classes
    for record in records:
        if record.epochs:
            last = record.epochs[-1]
            error = math.sqrt(chance * (1 - chance) / max(1, last.valid_samples))
            if last.valid_accuracy <= chance + CHANCE_ERRORS * error:
                yield (
                    f"it has not learnt: a validation accuracy of {last.valid_accuracy:.3f} is what guesses get"
                    " (see --learning-rate, --epochs)"
                )
                return


def _check_target(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    target = point.learning.to_accuracy if point.learning else None
    if target and target.reached < target.repeats:
        missed = target.repeats - target.reached
        often = f" in {missed} of {target.repeats} repeats" if target.repeats > 1 else ""
        yield f"a validation accuracy of {target.target:g} was not reached{often}"


def _check_input(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    waits, overhead = point.waiting_share or 0.0, point.input_overhead
    slower = ""
    if overhead and _is_significant(overhead):
        slower = f"{_format_percent(overhead.mean)} slower than on images that stay on the device"
    if waits > INPUT_BOUND:
        symptoms = ", ".join(
            part for part in (f"it waits for images {_format_percent(waits)} of the time", slower) if part
        )
        yield f"input-bound: {symptoms}; more --loaders, a faster disk, or smaller images would help"
    elif slower:
        # No worker waits, so the input pipeline keeps up, but preparing and placing images takes time from training.
        yield (
            f"input-bound: {slower}, though images are ready in time: preparing them may take cores from training;"
            " more cores, fewer --loaders, smaller images or --no-augment would help"
        )


def _is_significant(overhead: Interval) -> bool:
    if overhead.low is None:
        return overhead.mean > INPUT_BOUND_WITHOUT_INTERVAL
    return overhead.mean > INPUT_BOUND and overhead.low > 0


def _check_load(point: Point, records: Sequence[TrialRecord]) -> Iterable[str]:
    flag = make_busy_flag([record.machine.other_cores or 0.0 for record in records])
    if flag:
        yield flag


def make_busy_flag(other_cores: Sequence[float]) -> str:
    """Return a flag if other programs used cores during a point's repeats, else an empty text."""
    busy = [cores for cores in other_cores if cores > OTHER_CORES]
    if not busy:
        return ""
    where = f"{len(busy)} of {len(other_cores)} repeats"
    return f"the machine was busy with something else: up to {max(busy):.1f} cores in {where}"


def _format_percent(share: float) -> str:
    return f"{share * 100:.3g}\u202f%"


# The most serious first.
_CHECKS: tuple[Callable[[Point, Sequence[TrialRecord]], Iterable[str]], ...] = (
    _check_world_size,
    _check_samples_per_step,
    _check_weights,
    _check_losses,
    _check_learning,
    _check_target,
    _check_input,
    _check_step_sum,
    _check_superlinearity,
    _check_failed_repeats,
    _check_load,
    _check_short_trials,
    _check_interval,
    _check_repeats,
)
