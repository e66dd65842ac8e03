"""Points with intervals, and series of points along the ladder, from the records of trials.

This file puts together what other files compute: statistics.py, the speed of one trial in throughput.py, titles in
titles.py, the flags of suspicious points in checks.py, accuracies in learning.py.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import fmean

from ..record.parity import FAILED, PROVEN, UNPROVEN, Verdict, find_verdict
from ..record.trial import IMAGES, LOST, Failure, TrialRecord
from ..record.witness import WitnessVerdict
from ..spec.config import Config
from ..worker.compiled_programs import COLD, NONE, WARM
from .checks import find_point_flags
from .learning import Learning, summarise_learning
from .memory import summarise_memory
from .short_trials import drop_superseded
from .statistics import Interval, mean_interval, ratio_interval
from .throughput import (
    compute_input_overhead,
    compute_samples_per_second,
    compute_step_jitter,
    compute_waiting_share,
    is_measured,
    list_step_seconds,
    median_over,
)
from .titles import make_series_titles
from .witness import find_point_verdict

# A series that no other framework trained, or whose journal is older than the witness, has no mark.
_TITLE_MARKS = {None: "", PROVEN: "", FAILED: " · PARITY FAILED", UNPROVEN: " · parity unproven"}

_UNPROVEN_WORK = " · work unproven"

__all__ = ["Interval", "Point", "Series", "build_series", "find_common_unit"]


@dataclass(frozen=True)
class Point:
    """All repeats of one config on one device count. Speeds are cluster-wide, memory is in bytes, time in seconds."""

    config: Config
    devices: int
    hosts: int
    batch_per_device: int
    global_batch: int
    repeats: int  # good trials
    unit: str = IMAGES  # what the network calls a sample
    failures: tuple[Failure, ...] = ()  # of the trials without a result
    samples_per_second: Interval | None = None
    step_seconds: float | None = None  # median synchronous step, over all repeats
    jitter: float | None = None  # samples/s; 1.4826 · median absolute deviation of per-step speeds
    speedup: Interval | None = None  # against this series' own 1-device point
    efficiency: Interval | None = None  # speedup / devices
    efficiency_versus_local: Interval | None = None  # against the best 1-device `local` point of the same work
    device_peak_bytes: int | None = None  # as the framework's allocator counts, largest over ranks
    device_peak_bytes_sum: int | None = None  # over the ranks of a trial, largest over repeats
    nvml_peak_bytes: int | None = None  # as the GPUs' driver counts, for the ranks' own processes
    nvml_peak_bytes_sum: int | None = None
    nvml_note: str = ""  # why the driver's count is missing on a GPU
    host_peak_bytes: int | None = None
    host_peak_bytes_sum: int | None = None
    loaders_peak_bytes: int | None = None  # of the processes that prepare a rank's samples
    startup_seconds: float | None = None  # of the slowest rank, median over repeats
    first_step_seconds: float | None = None  # of the slowest rank, median over repeats
    compilation: str = ""  # cold, warm or none; with counts where repeats differ; empty in older journals
    input_overhead: Interval | None = None  # share of the speed on samples that stay on the device
    waiting_share: float | None = None  # share of the window in which no samples were ready, mean over repeats
    learning: Learning | None = None  # if it trains to an accuracy
    witness: WitnessVerdict | None = None  # whether all its trials did their work; None in older journals
    flags: tuple[str, ...] = ()  # sanity checks that fired, one sentence each

    @property
    def ok(self) -> bool:
        return self.samples_per_second is not None

    @property
    def status(self) -> str:
        """Return ``ok``, or the kind of the last failure."""
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
    parity: Verdict | None = None  # None if no other framework trained this network

    @property
    def work_is_proven(self) -> bool | None:
        """Whether every trial of every point did its work; None in journals that are older than the witness."""
        states = [point.witness.state == PROVEN for point in self.good if point.witness]
        return all(states) if states else None

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


def find_common_unit(all_series: Iterable[Series]) -> str:
    """Return the unit that all series share, or ``samples`` where they differ."""
    units = {series.unit for series in all_series}
    return units.pop() if len(units) == 1 else "samples" if units else IMAGES


Rates = dict[tuple[Config, int], list[float]]  # the run speeds of every point


def build_series(
    records: Iterable[TrialRecord],
    verdicts: Sequence[Verdict] = (),
    accuracy: float | None = None,
    by_budget: bool = False,
) -> list[Series]:
    """Return all series of a run, in order of first appearance. If a trial was recorded twice, the last record counts.

    A series that ``verdicts`` do not find proven says so in its title, so that every table and plot shows it.
    ``accuracy`` replaces the accuracy to which the run was to train, where the time to accuracy is computed.
    ``by_budget``: a time budget decided how often each point was repeated, so intervals are those of a sequential rule.
    """
    groups: defaultdict[Config, defaultdict[int, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    for record in drop_superseded({record.trial: record for record in records}.values()):
        groups[record.trial.config][record.trial.devices].append(record)
    rates = {
        (config, devices): [compute_samples_per_second(record) for record in of_point if is_measured(record)]
        for config, points in groups.items()
        for devices, of_point in points.items()
    }
    local_rates = _find_best_local(rates)
    titles = make_series_titles(list(groups))
    all_series = []
    for config, records_by_devices in groups.items():
        parity = find_verdict(config, verdicts)
        points = []
        for devices, of_point in sorted(records_by_devices.items()):
            sequential = by_budget or any(record.trial.short for record in of_point)
            point = _make_point(config, devices, of_point, rates[config, devices], sequential)
            good = [record for record in of_point if is_measured(record)]
            point = replace(point, learning=summarise_learning(good, accuracy))
            baseline, local = rates.get((config, 1), []), local_rates.get(_make_work_key(config), [])
            point = _add_speedup(point, rates[config, devices], baseline, local, by_budget)
            points.append(replace(point, flags=_list_flags(point, of_point, parity)))
        all_series.append(_make_series(titles[config], points, records_by_devices, parity))
    return all_series


def _list_flags(point: Point, records: Sequence[TrialRecord], parity: Verdict | None) -> tuple[str, ...]:
    warnings = [parity.warning] if point.ok and parity and parity.warning else []
    if point.ok and point.witness and point.witness.state == UNPROVEN:
        warnings.append(f"it is not proven that the trials did their work: {point.witness.reason}")
    return (*warnings, *find_point_flags(point, records))


def _make_series(
    title: str,
    points: Sequence[Point],
    records_by_devices: Mapping[int, Sequence[TrialRecord]],
    parity: Verdict | None,
) -> Series:
    records = [record for _, of_point in sorted(records_by_devices.items()) for record in of_point]
    is_unproven = any(point.ok and point.witness and point.witness.state == UNPROVEN for point in points)
    return Series(
        config=points[0].config,
        title=title + _TITLE_MARKS[parity.state if parity else None] + (_UNPROVEN_WORK if is_unproven else ""),
        points=tuple(points),
        versions=next((record.versions for record in reversed(records) if record.versions), {}),
        parameters=next((record.parameters for record in records if record.parameters is not None), None),
        parity=parity,
    )


def _make_point(
    config: Config, devices: int, records: Sequence[TrialRecord], rates: Sequence[float], by_budget: bool
) -> Point:
    """Return the point without speed-up, efficiency and flags."""
    good = [record for record in records if is_measured(record)]
    jitters = [spread for record in good if (spread := compute_step_jitter(record)) is not None]
    overheads = [share for record in good if (share := compute_input_overhead(record)) is not None]
    waiting_shares = [share for record in good if (share := compute_waiting_share(record)) is not None]
    return Point(
        config=config,
        devices=devices,
        hosts=max(record.hosts for record in records),
        batch_per_device=config.batch_per_device(devices),
        global_batch=config.global_batch(devices),
        repeats=len(good),
        unit=(good or records)[0].unit,
        failures=tuple(_find_failure(record) for record in records if not is_measured(record)),
        samples_per_second=mean_interval(rates, by_budget) if rates else None,
        step_seconds=median_over([step for record in good for step in list_step_seconds(record)]),
        jitter=median_over(jitters),
        **summarise_memory(good),
        startup_seconds=median_over([max(rank.startup_seconds for rank in record.ranks) for record in good]),
        first_step_seconds=median_over([max(rank.first_step_seconds for rank in record.ranks) for record in good]),
        compilation=_describe_compilation(good),
        input_overhead=mean_interval(overheads, by_budget) if overheads else None,
        waiting_share=fmean(waiting_shares) if waiting_shares else None,
        witness=find_point_verdict(good),
    )


def _describe_compilation(records: Sequence[TrialRecord]) -> str:
    """Return whether the trials compiled their programs: ``warm``, or ``1 cold, 4 warm`` where they differ."""
    counts = Counter(record.compilation for record in records)
    states = [state for state in (COLD, WARM, NONE) if counts[state]]
    return states[0] if len(states) == 1 else ", ".join(f"{counts[state]} {state}" for state in states)


def _add_speedup(
    point: Point, rates: Sequence[float], baseline: Sequence[float], local: Sequence[float], by_budget: bool
) -> Point:
    """Return the point with its speed-up over its own 1-device point, and its efficiencies.

    Under weak and strong scaling, all are ratios of speeds; under strong scaling that is the ratio of times for the
    same work.
    """
    if not rates:
        return point
    speedup = _compute_ratio(rates, baseline, by_budget)
    versus_local = _compute_ratio(rates, local, by_budget)
    return replace(
        point,
        speedup=speedup,
        efficiency=speedup.scaled(1 / point.devices) if speedup else None,
        efficiency_versus_local=versus_local.scaled(1 / point.devices) if versus_local else None,
    )


def _compute_ratio(rates: Sequence[float], baseline: Sequence[float], by_budget: bool) -> Interval | None:
    if not baseline:
        return None
    # A point against itself is exactly 1, without the error of two independent samples.
    return Interval(1.0) if rates is baseline else ratio_interval(rates, baseline, by_budget)


def _find_best_local(rates: Rates) -> dict[tuple[object, ...], list[float]]:
    """Return for each kind of work the run speeds of the fastest 1-device `local` point."""
    best: dict[tuple[object, ...], list[float]] = {}
    for (config, devices), values in rates.items():
        if config.strategy == "local" and devices == 1 and values:
            work = _make_work_key(config)
            if work not in best or fmean(values) > fmean(best[work]):
                best[work] = values
    return best


def _make_work_key(config: Config) -> tuple[object, ...]:
    """Return what one device does: the config without how the work is distributed."""
    distribution = {
        "strategy", "servers", "server_placement", "servers_per_host", "placement", "scaling", "ranks_per_gpu",
    }  # fmt: skip
    return tuple(value for name, value in asdict(config).items() if name not in distribution)


def _find_failure(record: TrialRecord) -> Failure:
    return record.failure or Failure(LOST, "the trial ended without a sample of any rank")
