"""The points that the explanation of one point draws on, and which of them are missing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...record.trial import TrialRecord
from ...spec.config import Config
from ...spec.further import remove_exchange
from ...worker.data.facts import SYNTHETIC
from .cores import CoreShares, find_core_shares
from .ranks import SlowRank, find_slow_ranks
from .runs import LOCAL, PointRecords, RunMean, compute_run_mean

# Names of the points, besides the point itself.
POINT = "point"
ONE_DEVICE = "one"  # the same work on one device, if possible without exchange
ALONE = "alone"  # the same strategy on one device
APART = "apart"  # the same devices without exchange
NEAR = "near"  # the same strategy on the most devices of a single host
NEAR_APART = "near apart"  # those devices without exchange

SERVER_STRATEGIES = ("ps",)  # synchronous strategies with parameter servers


@dataclass(frozen=True)
class Sources:
    """``runs`` holds the run means of every point that was measured, by the names above."""

    config: Config
    devices: int
    records: Sequence[TrialRecord]
    runs: dict[str, list[RunMean]]
    near_devices: int = 0
    one_device_exchanges: bool = False  # the one-device point is that of the strategy itself
    apart_records: Sequence[TrialRecord] = ()
    one_device_records: Sequence[TrialRecord] = ()
    slow_ranks: tuple[SlowRank, ...] = ()
    missing: tuple[str, ...] = field(default=())  # what would have to be measured, one phrase each

    @property
    def hosts(self) -> int:
        return max(record.hosts for record in self.records)

    @property
    def has_servers(self) -> bool:
        return self.config.strategy in SERVER_STRATEGIES

    @property
    def has_input(self) -> bool:
        return self.config.data != SYNTHETIC

    @property
    def lacks_cores(self) -> bool:
        """Whether ranks of the point do not get their cores whole."""
        return any(run.core_delay or run.further_core_delay for run in self.runs[POINT])

    @property
    def compared_records(self) -> tuple[TrialRecord, ...]:
        return (*self.records, *self.apart_records, *self.one_device_records)

    @property
    def repeats(self) -> int:
        return len(self.records)

    def has(self, *names: str) -> bool:
        return all(name in self.runs for name in names)

    @property
    def work_scale(self) -> float:
        """The samples of a device here over those of the one-device point: 1 under weak scaling."""
        return self.config.batch_per_device(self.devices) / self.config.batch_per_device(1)


def find_sources(points: PointRecords, config: Config, devices: int) -> Sources:
    """Collect what was measured about this point. Every point named is of the same work."""
    apart = remove_exchange(config)
    one_device_records, one_device_exchanges = _find_one_device(points, config)
    apart_records = points.get((apart, devices), [])
    slow_ranks = find_slow_ranks(apart_records)
    core_shares = find_core_shares(one_device_records, apart_records)
    near_devices = _find_near_devices(points, config, devices)
    runs = {
        POINT: _compute_point_means(points[config, devices], core_shares),
        ONE_DEVICE: [compute_run_mean(record) for record in one_device_records],
        ALONE: [compute_run_mean(r) for r in points.get((config, 1), [])]
        if config.strategy in SERVER_STRATEGIES
        else [],
        APART: [compute_run_mean(record, {slow.rank for slow in slow_ranks}) for record in apart_records],
        NEAR: [compute_run_mean(record) for record in points.get((config, near_devices), [])],
        NEAR_APART: [compute_run_mean(record) for record in points.get((apart, near_devices), [])],
    }
    return Sources(
        config,
        devices,
        points[config, devices],
        {name: values for name, values in runs.items() if values},
        near_devices,
        one_device_exchanges,
        apart_records,
        one_device_records,
        slow_ranks,
        _list_missing(config, devices, bool(one_device_records), one_device_exchanges, bool(apart_records)),
    )


def _compute_point_means(records: Sequence[TrialRecord], shares: CoreShares | None) -> list[RunMean]:
    means = [compute_run_mean(record) for record in records]
    if shares is None:
        return means
    return [
        replace(mean, core_delay=delay.all_ranks, further_core_delay=delay.one_rank)
        for mean, delay in zip(means, shares.compute_delays(records), strict=True)
    ]


def _find_one_device(points: PointRecords, config: Config) -> tuple[Sequence[TrialRecord], bool]:
    """Return the trials of one device, and whether they exchange gradients all the same."""
    apart = remove_exchange(config)
    for candidate in (apart, replace(apart, strategy=LOCAL)):
        if records := points.get((candidate, 1)):
            return records, False
    return points.get((config, 1), []), True


def _find_near_devices(points: PointRecords, config: Config, devices: int) -> int:
    """Return the largest device count of several devices on one host, if this point is on more hosts; else 0."""
    if max(record.hosts for record in points[config, devices]) == 1:
        return 0
    on_one_host = [
        count
        for (other, count), records in points.items()
        if other == config and 1 < count < devices and max(record.hosts for record in records) == 1
    ]
    return max(on_one_host, default=0)


def _list_missing(config: Config, devices: int, has_one: bool, one_exchanges: bool, has_apart: bool) -> tuple[str, ...]:
    phrases = []
    if not has_one:
        phrases.append("the same work on one device")
    elif one_exchanges and config.strategy in SERVER_STRATEGIES:
        phrases.append("the strategy independent on 1 device")
    if not has_apart:
        phrases.append(f"the strategy independent on {devices} devices")
    return tuple(phrases)
