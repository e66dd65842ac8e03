"""What one trial contributes to an explanation: its mean step, the same without input, and what stragglers add to it.

All values are seconds per step of one trial. Only these run means are resampled, never single steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from ...record.trial import RankSample, TrialRecord
from ...spec.config import PointKey
from ..throughput import is_measured, is_synchronous

LOCAL = "local"
PointRecords = Mapping[PointKey, Sequence[TrialRecord]]


@dataclass(frozen=True)
class RunMean:
    """Seconds per step. ``compute`` is without input; it equals ``step`` where samples stay on the device."""

    step: float
    compute: float
    stragglers: float = 0.0  # of ranks that do not wait for each other
    core_delay: float = 0.0  # of every rank of the point, because it does not get its core whole
    further_core_delay: float = 0.0  # of the most delayed rank


def group_records(records: Iterable[TrialRecord]) -> PointRecords:
    """Return the measured trials of every point, without a search's short ones.

    If a trial was recorded twice, the last record counts.
    """
    points: defaultdict[PointKey, list[TrialRecord]] = defaultdict(list)
    for record in {record.trial: record for record in records}.values():
        if is_measured(record) and not record.trial.short:
            points[record.trial.point].append(record)
    return points


def compute_run_mean(record: TrialRecord, slow_ranks: Collection[int] = ()) -> RunMean:
    """Return the means of a trial. ``slow_ranks`` do not count in the mean of ranks that do not wait for each other.

    Otherwise a part of the slowness of a single rank would look like contention between all of them.
    """
    if is_synchronous(record.trial.config):
        step = max(compute_rank_step(record, rank) for rank in record.ranks)
        return RunMean(step, max(_find_compute_seconds(record, rank) for rank in record.ranks))
    usual = [rank for rank in record.ranks if rank.rank not in slow_ranks] or list(record.ranks)
    compute = fmean(_find_compute_seconds(record, rank) for rank in usual)
    return RunMean(
        fmean(compute_rank_step(record, rank) for rank in usual), compute, _estimate_stragglers(record, usual, compute)
    )


def compute_rank_step(record: TrialRecord, rank: RankSample) -> float:
    """Return the seconds of a rank's window per step."""
    return rank.window_seconds * record.trial.config.batch_per_device(record.trial.devices) / rank.samples


def _find_compute_seconds(record: TrialRecord, rank: RankSample) -> float:
    """Return the seconds of a step on samples that stay on the device, where such steps were measured."""
    if rank.resident_steps and rank.resident_seconds > 0:
        return rank.resident_seconds / rank.resident_steps
    return compute_rank_step(record, rank)


def _estimate_stragglers(record: TrialRecord, usual: Sequence[RankSample], compute: float) -> float:
    """Return how much longer the slowest rank of a step is expected to take than the usual ranks on average.

    Steps with the same number ran at about the same time. Step times with input would count late samples as
    stragglers, so the means of the resident steps are compared instead.
    """
    steps = [rank.step_seconds for rank in record.ranks]
    if any(rank.resident_steps for rank in record.ranks) or not all(steps):
        return max(_find_compute_seconds(record, rank) for rank in record.ranks) - compute
    count = min(map(len, steps))
    slowest = fmean(max(seconds) for seconds in zip(*steps, strict=False))
    return max(0.0, slowest - fmean(fmean(rank.step_seconds[:count]) for rank in usual))
