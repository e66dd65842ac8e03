"""The trials that the explanation of one point draws on, and what each contributes: its mean step.

All means are seconds per step of one trial. Only these run means are resampled, never single steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from ...analyse.throughput import is_measured, is_synchronous
from ...record.trial import RankSample, TrialRecord
from ...spec.config import Config, PointKey
from ...spec.further import remove_exchange
from ...worker.data.facts import SYNTHETIC

if TYPE_CHECKING:
    from .ranks import SlowRank

LOCAL = "local"
SERVER_STRATEGIES = ("ps",)  # synchronous strategies with parameter servers

# The points that are compared.
POINT = "point"  # the one that is explained
ONE_DEVICE = "one"  # the same work on one device, if possible without exchange
ALONE = "alone"  # the same strategy on one device
APART = "apart"  # the same devices without exchange
NEAR = "near"  # the same strategy on the most devices of a single host
NEAR_APART = "near apart"  # those devices without exchange

# Of what others, one device alone or its cores give: a rank that gets less lacks its core.
FULL_CORE = 0.85

PointRecords = Mapping[PointKey, Sequence[TrialRecord]]


@dataclass(frozen=True)
class RunMean:
    """Seconds per step. ``compute`` is without input; it equals ``step`` where samples stay on the device."""

    step: float
    compute: float
    stragglers: float = 0.0  # what the slowest rank adds, of ranks that do not wait for each other
    core_delay: float = 0.0  # of every rank of the point, because it does not get its core whole
    further_core_delay: float = 0.0  # of the most delayed rank, beyond that


@dataclass(frozen=True)
class Sources:
    """The trials of a point and of those beside it; ``means`` has the run means of each, by the names above."""

    config: Config
    devices: int
    records: Sequence[TrialRecord]
    one_device_records: Sequence[TrialRecord]
    apart_records: Sequence[TrialRecord]
    near_devices: int  # the most devices on a single host; 0 if the point itself is on a single one
    one_device_exchanges: bool  # the one-device point is that of the strategy itself
    slow_ranks: tuple[SlowRank, ...]
    means: dict[str, list[RunMean]]

    @property
    def hosts(self) -> int:
        return max(record.hosts for record in self.records)

    @property
    def has_servers(self) -> bool:
        return self.config.strategy in SERVER_STRATEGIES

    @property
    def crosses_hosts(self) -> bool:
        """Whether there is a point on one host with which the exchange between hosts can be compared."""
        return self.hosts > 1 and self.near_devices > 0

    @property
    def batch(self) -> int:
        return self.config.batch_per_device(self.devices)

    @property
    def compared_records(self) -> tuple[TrialRecord, ...]:
        return (*self.records, *self.apart_records, *self.one_device_records)

    def list_missing(self) -> tuple[str, ...]:
        """Return what would have to be measured to separate all causes, one phrase each."""
        phrases = []
        if not self.one_device_records:
            phrases.append("the same work on one device")
        elif self.one_device_exchanges and self.has_servers:
            phrases.append("the strategy independent on 1 device")
        if not self.apart_records:
            phrases.append(f"the strategy independent on {self.devices} devices")
        return tuple(phrases)


def group_records(records: Iterable[TrialRecord]) -> PointRecords:
    """Return the measured trials of every point, without a search's short ones.

    If a trial was recorded twice, the last record counts.
    """
    points: defaultdict[PointKey, list[TrialRecord]] = defaultdict(list)
    for record in {record.trial: record for record in records}.values():
        if is_measured(record) and not record.trial.short:
            points[record.trial.point].append(record)
    return points


def find_sources(points: PointRecords, config: Config, devices: int) -> Sources:
    records, apart = points[config, devices], remove_exchange(config)
    one_device_records = points.get((apart, 1)) or points.get((replace(apart, strategy=LOCAL), 1), [])
    one_device_exchanges = not one_device_records
    if one_device_exchanges:
        one_device_records = points.get((config, 1), [])
    apart_records = points.get((apart, devices), [])
    near_devices = 0
    if max(record.hosts for record in records) > 1:
        near_devices = max(
            (
                count
                for (other, count), of_point in points.items()
                if other == config and 1 < count < devices and max(record.hosts for record in of_point) == 1
            ),
            default=0,
        )
    slow_ranks: tuple[SlowRank, ...] = ()
    point_means = [compute_run_mean(record) for record in records]
    if apart_records:  # only a run with --explain or the strategy independent has them
        from .ranks import compute_core_delays, find_slow_ranks

        slow_ranks = find_slow_ranks(apart_records)
        delays = compute_core_delays(records, one_device_records, apart_records)
        point_means = [
            replace(mean, core_delay=of_all, further_core_delay=of_one)
            for mean, (of_all, of_one) in zip(point_means, delays, strict=True)
        ]
    alone = points.get((config, 1), []) if config.strategy in SERVER_STRATEGIES else []
    means = {
        POINT: point_means,
        ONE_DEVICE: [compute_run_mean(record) for record in one_device_records],
        ALONE: [compute_run_mean(record) for record in alone],
        APART: [compute_run_mean(record, {slow.rank for slow in slow_ranks}) for record in apart_records],
        NEAR: [compute_run_mean(record) for record in points.get((config, near_devices), [])],
        NEAR_APART: [compute_run_mean(record) for record in points.get((apart, near_devices), [])],
    }
    return Sources(
        config,
        devices,
        records,
        one_device_records,
        apart_records,
        near_devices,
        one_device_exchanges,
        slow_ranks,
        {name: values for name, values in means.items() if values},
    )


def has_comparable_cores(config: Config) -> bool:
    """Whether ranks of this config need their cores all the time, so that less CPU time means less of a core.

    A rank that waits for its GPU or for samples uses little CPU time, too.
    """
    return config.device == "cpu" and config.data == SYNTHETIC


def compute_run_mean(record: TrialRecord, slow_ranks: Collection[int] = ()) -> RunMean:
    """Return the means of a trial. ``slow_ranks`` do not count in the mean of ranks that do not wait for each other.

    Otherwise a part of the slowness of a single rank would look like contention between all of them.
    """
    if is_synchronous(record.trial.config):
        step = max(compute_rank_step(record, rank) for rank in record.ranks)
        return RunMean(step, max(_compute_resident_step(record, rank) for rank in record.ranks))
    usual = [rank for rank in record.ranks if rank.rank not in slow_ranks] or list(record.ranks)
    compute = fmean(_compute_resident_step(record, rank) for rank in usual)
    steps = [rank.step_seconds for rank in record.ranks]
    if any(rank.resident_steps for rank in record.ranks) or not all(steps):
        # Step times with input would count late samples as stragglers.
        stragglers = max(_compute_resident_step(record, rank) for rank in record.ranks) - compute
    else:  # steps with the same number ran at about the same time
        count = min(map(len, steps))
        slowest = fmean(max(seconds) for seconds in zip(*steps, strict=False))
        stragglers = max(0.0, slowest - fmean(fmean(rank.step_seconds[:count]) for rank in usual))
    return RunMean(fmean(compute_rank_step(record, rank) for rank in usual), compute, stragglers)


def compute_rank_step(record: TrialRecord, rank: RankSample) -> float:
    """Return the seconds of a rank's window per step."""
    return rank.window_seconds * record.trial.config.batch_per_device(record.trial.devices) / rank.samples


def _compute_resident_step(record: TrialRecord, rank: RankSample) -> float:
    """Return the seconds of a step on samples that stay on the device, where such steps were measured."""
    if rank.resident_steps and rank.resident_seconds > 0:
        return rank.resident_seconds / rank.resident_steps
    return compute_rank_step(record, rank)
