"""Points with intervals, and series of points along the ladder, from the records of trials."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..record.decoding import find_first_line
from ..record.parity import FAILED, PROVEN, UNPROVEN, Verdict, WitnessVerdict, find_verdict
from ..record.trial import IMAGES, LOST, Failure, TrialRecord
from ..spec.config import Config, PointKey
from ..worker.sample import COLD, NONE, WARM
from .checks import find_point_flags
from .statistics import Interval, mean_interval, ratio_interval
from .throughput import (
    compute_input_overhead,
    compute_step_jitter,
    compute_waiting_share,
    is_measured,
    list_known,
    list_speeds,
    list_step_seconds,
    median_over,
)
from .titles import make_series_titles
from .witness import find_point_verdict

if TYPE_CHECKING:
    import altair

# A series that no other framework trained has no mark.
_TITLE_MARKS = {None: "", PROVEN: "", FAILED: " · PARITY FAILED", UNPROVEN: " · parity unproven"}

_DISTRIBUTION = (
    "strategy", "servers", "server_placement", "servers_per_host", "placement", "scaling", "ranks_per_gpu",
)  # fmt: skip

__all__ = ["Interval", "Point", "Series", "build_series", "drop_superseded", "find_common_unit"]


def column(meaning: str, unit: str = "", **options: Any) -> Any:
    """Declare a field that people see, with what it means."""
    return field(metadata={"meaning": meaning, "unit": unit}, **options)


def maybe(meaning: str, unit: str = "") -> Any:
    """Declare a field whose value may not exist."""
    return column(meaning, unit, default=None)


@dataclass(frozen=True)
class EpochMeans:
    """One epoch over the repeats that reached it."""

    epoch: int  # from 1
    repeats: int
    seconds: Interval  # sum of its steps
    trained_seconds: float  # from the first step to the end of this epoch, mean
    train_accuracy: Interval
    valid_accuracy: Interval
    train_loss: float | None
    valid_loss: float | None
    evaluation_seconds: float


@dataclass(frozen=True)
class ToAccuracy:
    """When a validation accuracy was first reached, if it was."""

    target: float
    reached: int  # repeats
    repeats: int
    # Means, if all repeats reached it: those over only some would be too good.
    seconds: Interval | None = None  # of training
    epochs: float | None = None


@dataclass(frozen=True)
class Learning:
    """All repeats of a point that trains to an accuracy. Accuracies are those after the last epoch."""

    epochs: tuple[EpochMeans, ...]
    training_seconds: Interval  # all epochs and the first step, in which frameworks compile
    epoch_seconds: Interval  # mean over the epochs, without that first step
    train_accuracy: Interval
    valid_accuracy: Interval
    to_accuracy: ToAccuracy | None = None

    @property
    def last(self) -> EpochMeans:
        return self.epochs[-1]


@dataclass(frozen=True)
class Point:
    """All repeats of a series on one device count. Speeds are cluster-wide; missing values are None."""

    config: Config
    series: str = column("title of its series")
    devices: int = column("workers")
    hosts: int = column("machines")
    batch_per_device: int = column("samples of a step on each device", "samples")
    global_batch: int = column("samples of a step on all devices", "samples")
    repeats: int = column("trials with a result")
    unit: str = column("what the network calls a sample", default=IMAGES)
    failures: tuple[Failure, ...] = column("why trials have no result", default=())
    samples_per_second: Interval | None = maybe("throughput of the whole cluster", "samples/s")
    speedup: Interval | None = maybe("throughput over that of the series' own 1-device point")
    efficiency: Interval | None = maybe("speed-up divided by devices", "share")
    efficiency_versus_local: Interval | None = maybe("the same against the fastest 1-device `local` point", "share")
    step_seconds: float | None = maybe("median step; a synchronous one lasts as long as its slowest rank", "s")
    jitter: float | None = maybe("robust standard deviation of the throughput from step to step", "samples/s")
    startup_seconds: float | None = maybe("from the start of the slowest process to its first step", "s")
    first_step_seconds: float | None = maybe("the first step of the slowest rank", "s")
    compilation: str = column("cold: programs were compiled; warm: a cache had them; none: there were none", default="")
    input_overhead: Interval | None = maybe("throughput that reading and preparing samples cost", "share")
    waiting_share: float | None = maybe("part of the window in which no samples were ready", "share")
    device_peak_bytes: int | None = maybe("memory by the framework's allocator, largest over ranks", "bytes")
    device_peak_bytes_sum: int | None = maybe("the same, sum over ranks", "bytes")
    nvml_peak_bytes: int | None = maybe("memory by the GPUs' driver, largest over ranks", "bytes")
    nvml_peak_bytes_sum: int | None = maybe("the same, sum over ranks", "bytes")
    nvml_note: str = column("why the driver's count is missing on a GPU", default="")
    host_peak_bytes: int | None = maybe("memory of the process on its host, largest over ranks", "bytes")
    host_peak_bytes_sum: int | None = maybe("the same, sum over ranks", "bytes")
    loaders_peak_bytes: int | None = maybe("memory of a rank's loader processes, largest over ranks", "bytes")
    learning: Learning | None = maybe("what was learned, if it trains to an accuracy")
    verdict: WitnessVerdict | None = maybe("whether all its trials did their work")
    flags: tuple[str, ...] = column("what the checks found, one sentence each", default=())
    records: tuple[TrialRecord, ...] = field(default=(), repr=False)  # good and failed

    @property
    def key(self) -> PointKey:
        return self.config, self.devices

    @property
    def ok(self) -> bool:
        """Whether the point has a result."""
        return self.samples_per_second is not None

    @property
    def status(self) -> str:
        """``ok``, or the kind of the last failure."""
        if self.ok:
            return "ok"
        return self.failures[-1].kind if self.failures else "pending"

    @property
    def reason(self) -> str:
        """One line on why there is no result; empty for a good point."""
        return "" if self.ok or not self.failures else find_first_line(self.failures[-1].message)

    @property
    def witness(self) -> str | None:
        """Whether all its trials did their work: ``proven`` or ``unproven``; None in older journals."""
        return self.verdict.state if self.verdict else None

    @property
    def other_cores(self) -> list[float]:
        """Cores that other programs used during each trial with a result."""
        return [record.machine.other_cores or 0.0 for record in self.records if is_measured(record)]

    @property
    def valid_accuracy(self) -> Interval | None:
        """Validation accuracy after the last epoch."""
        return self.learning.valid_accuracy if self.learning else None

    @property
    def seconds_to_accuracy(self) -> Interval | None:
        """Training time to the accuracy of the run."""
        return self.learning.to_accuracy.seconds if self.learning and self.learning.to_accuracy else None


@dataclass(frozen=True)
class Series:
    """The points of one configuration along its ladder, in order of devices: one line in a plot."""

    title: str = column("short, and unique within the run, e.g. AlexNet · torch · allreduce")
    config: Config = column("the configuration: framework, model, batch, strategy, precision and so on")
    points: tuple[Point, ...] = column("in order of devices")
    versions: dict[str, str] = column("of the framework and its libraries")
    parameters: int | None = maybe("trainable values of the network")
    verdict: Verdict | None = maybe("whether it trained the same network as other frameworks")

    @property
    def parity(self) -> str | None:
        """``proven``, ``unproven`` or ``failed``; None where no other framework trained the network."""
        return self.verdict.state if self.verdict else None

    @property
    def headline(self) -> str:
        """What was found, as the end of a sentence that begins with the title."""
        from ..report.wording import make_headline

        return make_headline(self)

    @property
    def work_is_proven(self) -> bool | None:
        """Whether every trial of every point did its work; None in older journals."""
        states = [point.witness == PROVEN for point in self.good if point.verdict]
        return all(states) if states else None

    @property
    def unit(self) -> str:
        """What the network calls a sample: ``images``."""
        return self.points[0].unit if self.points else IMAGES

    @property
    def good(self) -> tuple[Point, ...]:
        """The points that have a result."""
        return tuple(point for point in self.points if point.ok)

    @property
    def learns(self) -> bool:
        """Whether any point trained to an accuracy."""
        return any(point.learning for point in self.points)

    @property
    def has_baseline(self) -> bool:
        """Whether there is a 1-device point to compare with."""
        return any(point.speedup is not None for point in self.points)

    def chart(self, quantity: str = "speedup") -> altair.LayerChart:
        """Return an Altair chart of this series: ``speedup``, ``throughput``, ``efficiency`` or ``accuracy``."""
        from ..report.charts import make_chart

        return make_chart([self], quantity)

    def _repr_markdown_(self) -> str:
        from ..report.documents import render_series

        return render_series(self)


def find_common_unit(all_series: Iterable[Series]) -> str:
    """Return the unit that all series share, or ``samples`` where they differ."""
    units = {series.unit for series in all_series}
    return units.pop() if len(units) == 1 else "samples" if units else IMAGES


def build_series(
    records: Iterable[TrialRecord],
    parity: Sequence[Verdict] = (),
    accuracy: float | None = None,
    by_budget: bool = False,
) -> list[Series]:
    """Return all series of a run, in order of first appearance. The last record of a trial counts.

    ``accuracy`` replaces that of the configs. ``by_budget``: results decided the number of repeats.
    """
    by_point: dict[PointKey, list[TrialRecord]] = {}
    for record in drop_superseded({record.trial: record for record in records}.values()):
        by_point.setdefault(record.trial.point, []).append(record)
    rates = {point: list_speeds(of_point) for point, of_point in by_point.items()}
    ladders: dict[Config, list[int]] = {}
    best_local: dict[object, list[float]] = {}  # by work, of the fastest 1-device `local` point
    for (config, devices), speeds in rates.items():
        ladders.setdefault(config, []).append(devices)
        if config.strategy == "local" and devices == 1 and speeds:
            work = _make_work_key(config)
            best_local[work] = max(best_local.get(work, speeds), speeds, key=fmean)
    titles = make_series_titles(list(ladders))
    all_series = []
    for config, ladder in ladders.items():
        best_rates = best_local.get(_make_work_key(config), [])
        verdict = find_verdict(config, parity)
        points = []
        for devices in sorted(ladder):
            speeds = rates[config, devices]
            speedup = _compute_ratio(speeds, rates.get((config, 1), []), by_budget)
            versus_local = _compute_ratio(speeds, best_rates, by_budget)
            point = replace(
                make_point(by_point[config, devices], by_budget, accuracy),
                speedup=speedup,
                efficiency=speedup.scaled(1 / devices) if speedup else None,
                efficiency_versus_local=versus_local.scaled(1 / devices) if versus_local else None,
            )
            flags = [verdict.warning] if point.ok and verdict and verdict.warning else []
            if point.ok and point.verdict and point.verdict.state == UNPROVEN:
                flags.append(f"it is not proven that the trials did their work: {point.verdict.reason}")
            points.append(replace(point, flags=(*flags, *find_point_flags(point))))
        title = titles[config] + _TITLE_MARKS[verdict.state if verdict else None]
        if any(point.ok and point.witness == UNPROVEN for point in points):
            title += " · work unproven"
        of_series = [record for point in points for record in point.records]
        parameters = (record.parameters for record in of_series)
        series = Series(
            title=title,
            config=config,
            points=tuple(replace(point, series=title) for point in points),
            versions=next((record.versions for record in reversed(of_series) if record.versions), {}),
            parameters=next((count for count in parameters if count is not None), None),
            verdict=verdict,
        )
        all_series.append(series)
    return all_series


def drop_superseded(records: Iterable[TrialRecord]) -> list[TrialRecord]:
    """Leave out short trials at points that are measured in full."""
    all_records = list(records)
    in_full = {r.trial.point for r in all_records if not r.trial.short and is_measured(r)}
    return [r for r in all_records if not r.trial.short or r.trial.point not in in_full]


def _make_work_key(config: Config) -> tuple[object, ...]:
    """Return the config without how the work is distributed."""
    return tuple(getattr(config, item.name) for item in fields(config) if item.name not in _DISTRIBUTION)


def _compute_ratio(rates: Sequence[float], baseline: Sequence[float], by_budget: bool) -> Interval | None:
    if not rates or not baseline:
        return None
    # A point against itself is exactly 1, without the error of two independent samples.
    return Interval(1.0) if rates is baseline else ratio_interval(rates, baseline, by_budget)


def make_point(records: Sequence[TrialRecord], by_budget: bool = False, accuracy: float | None = None) -> Point:
    config, devices = records[0].trial.point
    speeds = list_speeds(records)
    sequential = by_budget or any(record.trial.short for record in records)
    good = [record for record in records if is_measured(record)]
    startups = [max(rank.startup_seconds for rank in record.ranks) for record in good]
    first_steps = [max(rank.first_step_seconds for rank in record.ranks) for record in good]
    overheads = list_known(map(compute_input_overhead, good))
    waiting_shares = list_known(map(compute_waiting_share, good))
    compilations = Counter(record.compilation for record in good)
    states = [state for state in (COLD, WARM, NONE) if compilations[state]]
    counts = [f"{compilations[state]} {state}" for state in states]
    no_sample = Failure(LOST, "the trial ended without a sample of any rank")
    return Point(
        config=config,
        series="",
        devices=devices,
        hosts=max(record.hosts for record in records),
        batch_per_device=config.batch_per_device(devices),
        global_batch=config.global_batch(devices),
        repeats=len(good),
        unit=(good or records)[0].unit,
        failures=tuple(record.failure or no_sample for record in records if not is_measured(record)),
        samples_per_second=mean_interval(speeds, sequential) if speeds else None,
        input_overhead=mean_interval(overheads, sequential) if overheads else None,
        step_seconds=median_over(step for record in good for step in list_step_seconds(record)),
        jitter=median_over(map(compute_step_jitter, good)),
        **summarise_memory(good),
        startup_seconds=median_over(startups),
        first_step_seconds=median_over(first_steps),
        compilation=states[0] if len(states) == 1 else ", ".join(counts),
        waiting_share=fmean(waiting_shares) if waiting_shares else None,
        learning=summarise_learning(good, accuracy),
        verdict=find_point_verdict(good),
        records=tuple(records),
    )


def summarise_memory(records: Sequence[TrialRecord]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name in ("device_peak_bytes", "nvml_peak_bytes", "host_peak_bytes", "loaders_peak_bytes"):
        peaks = [[getattr(rank, name) for rank in record.ranks] for record in records]
        known = [peak for of_trial in peaks for peak in of_trial if peak is not None]
        values[name] = max(known, default=None)
        if name != "loaders_peak_bytes":
            sums = [sum(of_trial) for of_trial in peaks if None not in of_trial]
            values[f"{name}_sum"] = max(sums, default=None)
    ranks = [rank for record in records for rank in record.ranks]
    notes = dict.fromkeys(rank.nvml_note for rank in ranks if rank.nvml_note)
    return {**values, "nvml_note": "; ".join(notes)}


# ---- training to an accuracy


def summarise_learning(records: Sequence[TrialRecord], target: float | None = None) -> Learning | None:
    """``target`` replaces that of the config."""
    trained = [record for record in records if record.epochs]
    if not trained:
        return None
    target = trained[0].trial.config.until_accuracy if target is None else target
    to_accuracy = None
    if target is not None:
        counts = [(record, count_epochs_to(record, target)) for record in trained]
        reached = [(record, count) for record, count in counts if count is not None]
        to_accuracy = ToAccuracy(target, len(reached), len(trained))
        if len(reached) == len(trained):
            seconds = mean_interval([compute_training_seconds(*each) for each in reached])
            epochs_needed = fmean(count for _, count in reached)
            to_accuracy = replace(to_accuracy, seconds=seconds, epochs=epochs_needed)
    means = []
    for index in range(max(len(record.epochs) for record in trained)):
        reaching = [record for record in trained if len(record.epochs) > index]
        epochs = [record.epochs[index] for record in reaching]
        # The mean of losses of which one was not finite does not exist.
        train_losses = list_known(epoch.train_loss for epoch in epochs)
        valid_losses = list_known(epoch.valid_loss for epoch in epochs)
        mean = EpochMeans(
            epoch=epochs[0].epoch,
            repeats=len(epochs),
            seconds=mean_interval([epoch.seconds for epoch in epochs]),
            trained_seconds=fmean(compute_training_seconds(record, index + 1) for record in reaching),
            train_accuracy=mean_interval([epoch.train_accuracy for epoch in epochs]),
            valid_accuracy=mean_interval([epoch.valid_accuracy for epoch in epochs]),
            train_loss=fmean(train_losses) if len(train_losses) == len(epochs) else None,
            valid_loss=fmean(valid_losses) if len(valid_losses) == len(epochs) else None,
            evaluation_seconds=fmean(epoch.evaluation_seconds for epoch in epochs),
        )
        means.append(mean)
    last_epochs = [record.epochs[-1] for record in trained]
    epoch_seconds = [fmean(epoch.seconds for epoch in record.epochs) for record in trained]
    return Learning(
        epochs=tuple(means),
        training_seconds=mean_interval(list(map(compute_training_seconds, trained))),
        epoch_seconds=mean_interval(epoch_seconds),
        train_accuracy=mean_interval([epoch.train_accuracy for epoch in last_epochs]),
        valid_accuracy=mean_interval([epoch.valid_accuracy for epoch in last_epochs]),
        to_accuracy=to_accuracy,
    )


def compute_training_seconds(record: TrialRecord, epochs: int | None = None) -> float:
    """Return the time of ``epochs`` (or all) and of the first step, without validation."""
    first_step = max((rank.first_step_seconds for rank in record.ranks), default=0.0)
    return first_step + sum(epoch.seconds for epoch in record.epochs[:epochs])


def count_epochs_to(record: TrialRecord, target: float) -> int | None:
    accuracies = (epoch.valid_accuracy for epoch in record.epochs)
    return next((number for number, reached in enumerate(accuracies, 1) if reached >= target), None)


# ---- where a ladder leaves its first host


@dataclass(frozen=True)
class HostBoundary:
    last_on_one_host: int
    first_on_several: int
    fewest_hosts: int
    most_hosts: int


def find_host_boundary(points: Iterable[Point]) -> HostBoundary | None:
    all_points = list(points)
    last = max((point.devices for point in all_points if point.hosts == 1), default=0)
    beyond = [point for point in all_points if point.hosts > 1]
    first = min((point.devices for point in beyond), default=0)
    if not 0 < last < first:
        return None
    hosts = [point.hosts for point in beyond]
    return HostBoundary(last, first, min(hosts), max(hosts))


def find_common_boundary(all_series: Iterable[Series]) -> HostBoundary | None:
    """Return the boundary of all series that begin on one host and leave it."""
    leaving = [series for series in all_series if find_host_boundary(series.points)]
    return find_host_boundary(point for series in leaving for point in series.points)
