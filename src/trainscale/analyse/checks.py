"""The sanity checks of every point. A flag does not remove a point; it says what to doubt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ..record.decoding import find_first_line, remove_unprintable
from .statistics import LEAST_REPEATS
from .throughput import is_measured, is_synchronous

if TYPE_CHECKING:
    from .series import Point

STEPS_OFF_WINDOW = 0.05  # more: something else ran in the window, or step times were lost
OTHER_CORES = 0.2  # an idle machine uses 0.01–0.1 of a core; more is taken from a worker
WIDE_INTERVAL = 0.05  # wider ones do not support conclusions from a few per cent
SUPERLINEAR_WITHOUT_INTERVAL = 1.02  # on a quiet machine repeats agree within 2 %
INPUT_BOUND = 0.05  # more than that, because the window of the resident samples is shorter
INPUT_BOUND_WITHOUT_INTERVAL = 0.1
CHANCE_ERRORS = 3  # standard errors above the accuracy of guesses


def find_point_flags(point: Point) -> Iterator[str]:
    """Yield all flags of a point with a result, the most serious first."""
    if not point.ok:
        return
    records = [record for record in point.records if is_measured(record)]
    # The work: workers, samples, weights and losses
    counts = [len({rank.rank for rank in record.ranks}) for record in records]
    if wrong := next((n for n in counts if n != point.devices), None):
        yield f"{wrong} workers reported where {point.devices} were asked for"

    complete = [record for record in records if all(rank.step_seconds for rank in record.ranks)]
    per_step = [sum(rank.samples / len(rank.step_seconds) for rank in record.ranks) for record in complete]
    batch = point.global_batch
    if wrong_samples := next((n for n in per_step if not math.isclose(n, batch, rel_tol=1e-3)), None):
        yield f"{wrong_samples:g} {point.unit} were trained per step, not the global batch of {batch}"

    digests = [{rank.weights_digest for rank in record.ranks if rank.weights_digest} for record in records]
    different = next((len(of_trial) for of_trial in digests if len(of_trial) > 1), None)
    if different and is_synchronous(point.config):
        yield f"workers hold {different} different sets of weights after synchronous training"

    ranks = [rank for record in records for rank in record.ranks]
    epochs = [epoch for record in records for epoch in record.epochs]
    losses = [loss for rank in ranks for loss in (rank.first_loss, rank.last_loss)]
    losses += [loss for epoch in epochs for loss in (epoch.train_loss, epoch.valid_loss)]
    if None in losses:  # JSON has no NaN: the journal has null for a loss that is not finite
        yield "the loss is not finite: the arithmetic measured may not be that of real training"

    # What was learnt
    chance = 1 / point.config.classes
    for last in [record.epochs[-1] for record in records if record.epochs]:
        error = math.sqrt(chance * (1 - chance) / max(1, last.valid_samples))
        if last.valid_accuracy <= chance + CHANCE_ERRORS * error:
            yield (
                f"it has not learnt: a validation accuracy of {last.valid_accuracy:.3f} is what guesses get"
                " (see --learning-rate, --epochs)"
            )
            break
    target = point.learning.to_accuracy if point.learning else None
    if target and target.reached < target.repeats:
        missed = target.repeats - target.reached
        often = f" in {missed} of {target.repeats} repeats" if target.repeats > 1 else ""
        yield f"a validation accuracy of {target.target:g} was not reached{often}"

    # The input
    waits, overhead, slower = point.waiting_share or 0.0, point.input_overhead, ""
    if overhead:
        least = INPUT_BOUND if overhead.low is not None else INPUT_BOUND_WITHOUT_INTERVAL
        if overhead.mean > least and (overhead.low is None or overhead.low > 0):
            slower = f"{_format_percent(overhead.mean)} slower than on images that stay on the device"
    if waits > INPUT_BOUND:
        waiting = f"it waits for images {_format_percent(waits)} of the time"
        symptoms = f"{waiting}, {slower}" if slower else waiting
        yield f"input-bound: {symptoms}; more --loaders, a faster disk, or smaller images would help"
    elif slower:
        yield (
            f"input-bound: {slower}, though images are ready in time: preparing them may take cores from training;"
            " more cores, fewer --loaders, smaller images or --no-augment would help"
        )

    # The measurement: the clock, the baseline, the repeats and the machine
    shares = [math.fsum(rank.step_seconds) / rank.window_seconds for rank in ranks if rank.step_seconds]
    worst = max(shares, key=lambda share: abs(share - 1), default=1.0)
    if abs(worst - 1) > STEPS_OFF_WINDOW:
        yield f"step times add up to {_format_percent(worst)} of the measured window"

    if point.efficiency and point.devices > 1:
        low, mean = point.efficiency.low, point.efficiency.mean
        if (mean / SUPERLINEAR_WITHOUT_INTERVAL if low is None else low) > 1:
            yield f"efficiency of {_format_percent(mean)} is above 100\u202f%: suspect the 1-device baseline"

    if point.failures:
        failed, latest = len(point.failures), point.failures[-1]
        reason = f"{latest.kind}: {find_first_line(latest.message)}"
        yield f"{failed} of {point.repeats + failed} repeats failed, the last with {reason}"

    if flag := make_busy_flag(point.other_cores):
        yield flag

    if short_steps := [record.steps for record in records if record.trial.short]:
        yield f"measured only in short trials of a search, {max(short_steps)} steps each"

    relative = point.samples_per_second.relative if point.samples_per_second else None
    if relative is not None and relative > WIDE_INTERVAL:
        limit = _format_percent(WIDE_INTERVAL)
        yield f"repeats differ: the interval is ±{_format_percent(relative)}, wider than ±{limit}"
    if point.repeats < LEAST_REPEATS:
        often = "once" if point.repeats == 1 else "twice"
        yield f"measured {often} only, so there is no interval"

    notes = (note for record in point.records for note in record.notes)
    yield from dict.fromkeys(map(remove_unprintable, notes))


def make_busy_flag(other_cores: Sequence[float]) -> str:
    """Return a flag if other programs used cores during repeats."""
    busy = [cores for cores in other_cores if cores > OTHER_CORES]
    if not busy:
        return ""
    where = f"{len(busy)} of {len(other_cores)} repeats"
    return f"the machine was busy with something else: up to {max(busy):.1f} cores in {where}"


def _format_percent(share: float) -> str:
    return f"{share * 100:.3g}\u202f%"
