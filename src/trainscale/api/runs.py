"""A finished run in Python: its series, points and trials."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..analyse.series import Point, Series
from ..analyse.statistics import Interval
from ..errors import InputError
from ..export import tables
from ..export.columns import TrialRow, column
from ..export.stored_run import StoredRun, read_stored_run

if TYPE_CHECKING:
    import altair
    import pandas
    import polars
    import pyarrow


@dataclass(frozen=True, kw_only=True)
class RunPoint:
    """All repeats of a series on one device count. A value that does not exist is None."""

    series: str = column("title of its series")
    devices: int = column("workers")
    hosts: int = column("machines")
    batch_per_device: int = column("samples of a step on each device", "samples")
    global_batch: int = column("samples of a step on all devices", "samples")
    repeats: int = column("trials with a result")
    status: str = column("ok, or why there is no result")
    reason: str = column("one line on why there is no result; empty for a good point")
    unit: str = column("what the network calls a sample")
    samples_per_second: Interval | None = column("throughput of the whole cluster", "samples/s")
    speedup: Interval | None = column("throughput over that of the series' own 1-device point")
    efficiency: Interval | None = column("speed-up divided by devices", "share")
    efficiency_versus_local: Interval | None = column("the same against the fastest 1-device `local` point", "share")
    step_seconds: float | None = column("median step over all repeats", "s")
    jitter: float | None = column("robust standard deviation of the throughput from step to step", "samples/s")
    startup_seconds: float | None = column("start of the slowest process to its first step, median", "s")
    first_step_seconds: float | None = column("first step of the slowest rank, median", "s")
    input_overhead: Interval | None = column("throughput that reading and preparing samples cost", "share")
    waiting_share: float | None = column("part of the window in which no samples were ready", "share")
    valid_accuracy: Interval | None = column("validation accuracy after the last epoch", "share")
    seconds_to_accuracy: Interval | None = column("training time to the accuracy of the run", "s")
    device_peak_bytes: int | None = column("memory by the framework's allocator, largest over ranks", "bytes")
    nvml_peak_bytes: int | None = column("memory by the GPUs' driver, largest over ranks", "bytes")
    host_peak_bytes: int | None = column("memory of a process on its host, largest over ranks", "bytes")
    witness: str | None = column("whether all its trials did their work: proven or unproven")
    flags: tuple[str, ...] = column("what the checks found, one sentence each")

    @property
    def ok(self) -> bool:
        """Whether the point has a result."""
        return self.status == "ok"


@dataclass(frozen=True, kw_only=True)
class RunSeries:
    """The points of one configuration along its ladder, in order of devices: one line in a plot."""

    title: str = column("short, and unique within the run")
    unit: str = column("what the network calls a sample")
    config: Mapping[str, Any] = column("the configuration: framework, model, batch, strategy, precision and so on")
    points: tuple[RunPoint, ...] = column("in order of devices")
    parameters: int | None = column("trainable values of the network")
    versions: Mapping[str, str] = column("of the framework and its libraries")
    parity: str | None = column("proven, unproven or failed; None where no other framework trained the network")
    headline: str = column("what was found, as the end of a sentence that begins with the title")
    _series: Series = field(repr=False, compare=False)

    def chart(self, quantity: str = "speedup") -> altair.LayerChart:
        """Return an Altair chart of this series: ``speedup``, ``throughput``, ``efficiency`` or ``accuracy``."""
        from .display import make_chart

        return make_chart([self._series], quantity)

    def _repr_html_(self) -> str:
        from .display import render_series

        return render_series(self._series)


@dataclass(frozen=True)
class Run:
    """A run that was measured. Make one with ``load`` or ``run``. Its statistics are computed from its journal."""

    directory: Path
    _stored: StoredRun = field(repr=False, compare=False)

    @cached_property
    def series(self) -> tuple[RunSeries, ...]:
        """The series of the run, in order of first appearance."""
        return tuple(_make_series(series) for series in self._stored.series)

    @property
    def points(self) -> tuple[RunPoint, ...]:
        """The points of all series."""
        return tuple(point for series in self.series for point in series.points)

    @property
    def trials(self) -> tuple[TrialRow, ...]:
        """Every trial, good or failed, in the order of the journal: the rows of the tidy table."""
        return self._stored.rows

    @property
    def settings(self) -> dict[str, Any]:
        """What was measured: configurations with their ladders, steps, repeats, as ``run.json`` holds it."""
        return dict(self._stored.info.spec)

    @property
    def provenance(self) -> dict[str, Any]:
        """When, by which command, on which machine and with which versions, as ``run.json`` holds it."""
        return dict(self._stored.info.provenance)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the trials as a pandas frame, one row for each."""
        return tables.to_pandas(self.trials)

    def to_polars(self) -> polars.DataFrame:
        """Return the trials as a polars frame, one row for each."""
        return tables.to_polars(self.trials)

    def to_arrow(self) -> pyarrow.Table:
        """Return the trials as an Arrow table, one row for each. Units and meanings are metadata of its fields."""
        return tables.to_arrow(self.trials)

    def chart(self, quantity: str = "speedup") -> altair.LayerChart:
        """Return an Altair chart of all series: ``speedup``, ``throughput``, ``efficiency`` or ``accuracy``."""
        from .display import make_chart

        return make_chart(self._stored.series, quantity)

    def _repr_html_(self) -> str:
        from .display import render_run

        return render_run(self._stored)


def load(directory: str | Path) -> Run:
    """Read a run from its directory. Raises ``InputError`` if there is none, or none of its trials has finished. A
    damaged line of its journal is left out, with a warning.
    """
    path = Path(directory)
    stored = read_stored_run(path, lambda message: warnings.warn(message, stacklevel=4))
    if not stored.records:
        raise InputError(f"{path}: no trial of this run has finished; continue it with the command that began it")
    return Run(path, stored)


def _make_series(series: Series) -> RunSeries:
    from ..report.wording import make_headline

    return RunSeries(
        title=series.title,
        unit=series.unit,
        config=series.config.to_dict(),
        points=tuple(_make_point(series, point) for point in series.points),
        parameters=series.parameters,
        versions=series.versions,
        parity=series.parity.state if series.parity else None,
        headline=make_headline(series),
        _series=series,
    )


def _make_point(series: Series, point: Point) -> RunPoint:
    from ..report.wording import find_reason

    learning = point.learning
    others: dict[str, Any] = {
        "series": series.title,
        "reason": find_reason(point),
        "valid_accuracy": learning.valid_accuracy if learning else None,
        "seconds_to_accuracy": learning.to_accuracy.seconds if learning and learning.to_accuracy else None,
        "witness": point.witness.state if point.witness else None,
    }
    same = {item.name: getattr(point, item.name) for item in fields(RunPoint) if item.name not in others}
    return RunPoint(**same, **others)
