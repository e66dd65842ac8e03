"""What the samples mean: points with intervals, joined into series along the ladder.

Statistics are in statistics.py, the speed of one trial in throughput.py, titles in titles.py, the rules that
flag a suspicious point in checks.py, what was learnt in learning.py; this file only puts them together.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from ..record.parity import FAILED, PROVEN, UNPROVEN, Verdict, verdict_for
from ..record.trial import IMAGES, LOST, Failure, TrialRecord
from ..spec.config import Config
from .checks import point_flags
from .learning import Learning, learning
from .memory import memory
from .statistics import Interval, mean_interval, ratio_interval
from .throughput import (
    input_overhead,
    is_measured,
    median_over,
    samples_per_second,
    step_jitter,
    step_seconds,
    waiting_share,
)
from .titles import series_titles

_MARKS = {None: "", PROVEN: "", FAILED: " · PARITY FAILED", UNPROVEN: " · parity unproven"}

__all__ = ["Interval", "Point", "Series", "build_series", "common_unit"]


@dataclass(frozen=True)
class Point:
    """All repeats of one config on one device count. images/s is cluster-wide, memory bytes, time seconds."""

    config: Config
    devices: int
    hosts: int
    batch_per_device: int
    global_batch: int
    repeats: int  # good trials
    unit: str = IMAGES  # what the network calls a sample
    failures: tuple[Failure, ...] = ()  # of the trials that gave no result
    samples_per_second: Interval | None = None
    step_seconds: float | None = None  # median synchronous step, over all repeats
    jitter: float | None = None  # images/s; 1.4826 · median absolute deviation of per-step speeds
    speedup: Interval | None = None  # against this series' own 1-device point
    efficiency: Interval | None = None  # speedup / devices
    efficiency_versus_local: Interval | None = None  # against the best 1-device `local` point of the same work
    device_peak_bytes: int | None = None  # by the framework's allocator, largest over ranks
    device_peak_bytes_sum: int | None = None  # over the ranks of a trial, largest over repeats
    nvml_peak_bytes: int | None = None  # by the GPUs' driver, of the ranks' own processes
    nvml_peak_bytes_sum: int | None = None
    nvml_note: str = ""  # why the driver's count is not known, on a GPU
    host_peak_bytes: int | None = None
    host_peak_bytes_sum: int | None = None
    loaders_peak_bytes: int | None = None  # of the processes that prepare a rank's images, besides the rank's own
    startup_seconds: float | None = None  # of the slowest rank, median over repeats
    first_step_seconds: float | None = None  # of the slowest rank, median over repeats
    input_overhead: Interval | None = None  # share of the speed on images that stay on the device
    waiting_share: float | None = None  # of the window: for images that were not ready; mean over repeats
    learning: Learning | None = None  # where it trains to an accuracy
    flags: tuple[str, ...] = ()  # sanity checks that fired, one sentence each

    @property
    def ok(self) -> bool:
        return self.samples_per_second is not None

    @property
    def status(self) -> str:
        """``ok``, or the kind of the last failure."""
        if self.ok:
            return "ok"
        return self.failures[-1].kind if self.failures else "pending"


@dataclass(frozen=True)
class Series:
    """A config's points along the ladder, in order of devices: one line in a plot."""

    config: Config
    title: str  # short and unique within the run, e.g. "AlexNet · torch · allreduce"
    points: tuple[Point, ...]
    versions: dict[str, str]
    parameters: int | None = None
    parity: Verdict | None = None  # None where this network was not compared with another framework's

    @property
    def unit(self) -> str:
        """What the network calls a sample: ``images``."""
        return self.points[0].unit if self.points else IMAGES

    @property
    def good(self) -> tuple[Point, ...]:
        return tuple(point for point in self.points if point.ok)

    @property
    def learns(self) -> bool:
        """Whether any point trained to an accuracy."""
        return any(point.learning for point in self.points)

    @property
    def has_baseline(self) -> bool:
        return any(point.speedup is not None for point in self.points)


def common_unit(all_series: Iterable[Series]) -> str:
    """Return the unit that all series share, or ``samples`` where they differ."""
    units = {series.unit for series in all_series}
    return units.pop() if len(units) == 1 else "samples" if units else IMAGES


def build_series(
    records: Iterable[TrialRecord], verdicts: Sequence[Verdict] = (), accuracy: float | None = None
) -> list[Series]:
    """All series of a run, in order of first appearance. A trial recorded twice counts once, as last seen.

    A series that ``verdicts`` do not find proven says so in its title, so that no table or plot can leave it out.
    ``accuracy``: how long it took to this one is told, instead of that which the run was to stop at.
    """
    groups: defaultdict[Config, defaultdict[int, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in {record.trial: record for record in records}.values():
        groups[record.trial.config][record.trial.devices].append(record)
    rates = {
        (config, devices): [samples_per_second(record) for record in found if is_measured(record)]
        for config, points in groups.items()
        for devices, found in points.items()
    }
    local = _best_local(rates)
    titles = series_titles(list(groups))
    series = []
    for config, points in groups.items():
        parity = verdict_for(config, verdicts)
        doubt = (parity.warning,) if parity and parity.warning else ()
        built = []
        for devices, found in sorted(points.items()):
            point = _point(config, devices, found, rates[config, devices])
            point = replace(point, learning=learning([r for r in found if is_measured(r)], accuracy))
            own, best = rates.get((config, 1), []), local.get(_work(config), [])
            point = _relate(point, rates[config, devices], own, best)
            flags = point_flags(point, found)
            built.append(replace(point, flags=(*doubt, *flags) if point.ok else flags))
        everything = [record for _, found in sorted(points.items()) for record in found]
        series.append(
            Series(
                config=config,
                title=titles[config] + _MARKS[parity.state if parity else None],
                points=tuple(built),
                versions=next((r.versions for r in reversed(everything) if r.versions), {}),
                parameters=next((r.parameters for r in everything if r.parameters is not None), None),
                parity=parity,
            )
        )
    return series


def _point(config: Config, devices: int, records: Sequence[TrialRecord], rates: Sequence[float]) -> Point:
    """The point itself, before it is related to any other."""
    good = [record for record in records if is_measured(record)]
    jitters = [spread for record in good if (spread := step_jitter(record)) is not None]
    overheads = [share for record in good if (share := input_overhead(record)) is not None]
    waits = [share for record in good if (share := waiting_share(record)) is not None]
    return Point(
        config=config,
        devices=devices,
        hosts=max(record.hosts for record in records),
        batch_per_device=config.batch_per_device(devices),
        global_batch=config.global_batch(devices),
        repeats=len(good),
        unit=(good or records)[0].unit,
        failures=tuple(_failure(record) for record in records if not is_measured(record)),
        samples_per_second=mean_interval(rates) if rates else None,
        step_seconds=median_over([step for record in good for step in step_seconds(record)]),
        jitter=median_over(jitters),
        **memory(good),
        startup_seconds=median_over([max(r.startup_seconds for r in record.ranks) for record in good]),
        first_step_seconds=median_over([max(r.first_step_seconds for r in record.ranks) for record in good]),
        input_overhead=mean_interval(overheads) if overheads else None,
        waiting_share=fmean(waits) if waits else None,
    )


def _relate(point: Point, rates: Sequence[float], own: Sequence[float], local: Sequence[float]) -> Point:
    """The point with its speed-up over its own 1-device point, and its efficiencies.

    Weak or strong, all are ratios of images/s: under strong scaling that is the ratio of times for one work.
    """
    if not rates:
        return point
    speedup = _ratio(rates, own)
    versus_local = _ratio(rates, local)
    return replace(
        point,
        speedup=speedup,
        efficiency=speedup.scaled(1 / point.devices) if speedup else None,
        efficiency_versus_local=versus_local.scaled(1 / point.devices) if versus_local else None,
    )


def _ratio(rates: Sequence[float], baseline: Sequence[float]) -> Interval | None:
    if not baseline:
        return None
    # A point against itself is 1 by definition, not 1 with the error of two independent samples.
    return Interval(1.0) if rates is baseline else ratio_interval(rates, baseline)


def _best_local(rates: Mapping[tuple[Config, int], list[float]]) -> dict[tuple[object, ...], list[float]]:
    """For each kind of work, the run speeds of the fastest 1-device `local` point."""
    best: dict[tuple[object, ...], list[float]] = {}
    for (config, devices), values in rates.items():
        if config.strategy == "local" and devices == 1 and values:
            work = _work(config)
            if work not in best or fmean(values) > fmean(best[work]):
                best[work] = values
    return best


def _work(config: Config) -> tuple[object, ...]:
    """What one device does, whoever else takes part: the config without how it is distributed."""
    distribution = {
        "strategy", "servers", "server_placement", "servers_per_host", "placement", "scaling", "ranks_per_gpu",
    }  # fmt: skip
    return tuple(value for name, value in asdict(config).items() if name not in distribution)


def _failure(record: TrialRecord) -> Failure:
    return record.failure or Failure(LOST, "the trial ended without a sample of any rank")
