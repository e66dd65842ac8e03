"""The application: a ``Run``, and a function for each thing that a person does with runs.

The commands parse, call one of these functions and print; Python programs call the same functions. A function imports
what it needs when it is called, so that importing this module stays light.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .analyse.series import Point, Series, build_series
from .errors import InputError, explain_unknown
from .record.journal import TRIALS, read_run, read_trials
from .record.parity import Verdict, read_parity
from .record.run import RunInfo
from .record.trial import TrialRecord
from .worker.config import compute_digest

if TYPE_CHECKING:
    import altair
    import pandas
    import polars
    import pyarrow

    from .export.columns import TrialRow
    from .launch.launchers.inside_mpi import InsideMpiLauncher
    from .measure.measure import RunView
    from .questions.best.best import BestChoices
    from .questions.compare.compare import RunComparison
    from .questions.explain.explain import RunExplanation
    from .spec.experiment import Experiment

__all__ = ["Run", "RunInterrupted", "best", "compare", "explain", "load", "measure"]


@dataclass(frozen=True, eq=False)
class Run:
    """A run that was measured. Make one with ``load`` or ``run``. Its statistics are computed from its journal."""

    directory: Path
    label: str = ""  # tells it apart from other runs in a report
    _accuracy: float | None = field(default=None, repr=False)
    _on_damage: Callable[[str], None] | None = field(default=None, repr=False)

    @classmethod
    def open(cls, directory: Path, on_damage: Callable[[str], None] | None = None, label: str = "") -> Run:
        """Read a run. Raises ``InputError`` if there is none, or none of its trials has finished.

        A damaged line of the journal is an ``InputError``, too. With ``on_damage`` it is left out, and ``on_damage`` is
        called with the message.
        """
        run = cls(directory, label, _on_damage=on_damage)
        if not run.records:
            raise InputError(
                f"{directory}: no trial of this run has finished; continue it with the command that began it"
            )
        return run

    @classmethod
    def from_records(
        cls,
        info: RunInfo,
        records: Iterable[TrialRecord],
        parity: Iterable[Verdict] = (),
        directory: Path = Path(),
        label: str = "",
        all_series: Iterable[Series] | None = None,
    ) -> Run:
        """Return a run whose journal is in memory: one that is being measured, or a selection of trials.

        ``all_series`` are its series, if they are not those that the records give.
        """
        run = cls(directory, label)
        vars(run).update(info=info, records=list(records), parity=list(parity))
        if all_series is not None:
            vars(run)["series"] = tuple(all_series)
        return run

    @cached_property
    def info(self) -> RunInfo:
        """run.json: what was asked for, and where it was measured."""
        return read_run(self.directory)

    @cached_property
    def records(self) -> list[TrialRecord]:
        """The trials as the journal has them. If a trial was measured again, the last record counts."""
        return read_trials(self.directory, self._on_damage) if self.info else []  # no run.json: says so

    @cached_property
    def parity(self) -> list[Verdict]:
        """Whether the frameworks trained the same networks."""
        return list(read_parity(self.directory))

    @cached_property
    def series(self) -> tuple[Series, ...]:
        """The series of the run, in the order in which they were asked for."""
        all_series = build_series(self.records, self.parity, self._accuracy, self.info.is_sequential)
        order: dict[str, int] = {}
        for index, values in enumerate(self.info.read_spec().series):
            # A config whose batch was searched has another key in its trials.
            order[compute_digest({name: value for name, value in values.items() if name != "ladder"})] = index
        all_series.sort(key=lambda series: order.get(series.config.key, len(order)))
        return tuple(replace(series, title=self.add_label(series.title)) for series in all_series)

    @property
    def points(self) -> tuple[Point, ...]:
        """The points of all series."""
        return tuple(point for series in self.series for point in series.points)

    @property
    def name(self) -> str:
        return self.directory.resolve().name

    def add_label(self, title: str) -> str:
        """Return a title that begins with the label of the run."""
        return f"{self.label} · {title}" if self.label else title

    def select(self, is_wanted: Callable[[TrialRecord], bool]) -> Run:
        """Return the run with only the wanted trials."""
        return self._copy(replace(self), records=[record for record in self.records if is_wanted(record)])

    def with_accuracy(self, accuracy: float | None) -> Run:
        """Return the run with times to another accuracy than it was asked to train to."""
        return self._copy(replace(self, _accuracy=accuracy))

    def _copy(self, run: Run, **values: Any) -> Run:
        """Let ``run`` have what was read of this one."""
        vars(run).update({"info": self.info, "records": self.records, "parity": self.parity, **values})
        return run

    @cached_property
    def trials(self) -> tuple[TrialRow, ...]:
        """Every trial, good or failed, in the order of the journal: the rows of the tidy table."""
        from .export.columns import make_rows

        return tuple(make_rows(self.name, self.info, self.records, self.series))

    @property
    def rows(self) -> tuple[TrialRow, ...]:
        """The trials, under the name that exporters of other packages use."""
        return self.trials

    @property
    def settings(self) -> dict[str, Any]:
        """What was measured: configurations with their ladders, steps, repeats, as ``run.json`` holds it."""
        return dict(self.info.spec)

    @property
    def provenance(self) -> dict[str, Any]:
        """When, by which command, on which machine and with which versions, as ``run.json`` holds it."""
        return dict(self.info.provenance)

    def to_pandas(self) -> pandas.DataFrame:
        """Return the trials as a pandas frame, one row for each."""
        from .export import tables

        return tables.to_pandas(self.trials)

    def to_polars(self) -> polars.DataFrame:
        """Return the trials as a polars frame, one row for each."""
        from .export import tables

        return tables.to_polars(self.trials)

    def to_arrow(self) -> pyarrow.Table:
        """Return the trials as an Arrow table, one row for each. Units and meanings are metadata of its fields."""
        from .export import tables

        return tables.to_arrow(self.trials)

    def chart(self, quantity: str = "speedup") -> altair.LayerChart:
        """Return an Altair chart of all series: ``speedup``, ``throughput``, ``efficiency`` or ``accuracy``."""
        from .report.charts import make_chart

        return make_chart(self.series, quantity)

    def _repr_markdown_(self) -> str:
        from .report.documents import render_run

        return render_run(self)


class RunInterrupted(KeyboardInterrupt):
    """A run was interrupted, by Ctrl-C, a signal or a cluster. What had finished is in its directory."""


def measure(
    experiment: Experiment,
    directory: Path | None = None,
    *,
    view: RunView | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
    command: Sequence[str] = ("run",),
    mpi: InsideMpiLauncher | None = None,
) -> Run:
    """Measure what the journal in ``directory`` does not hold yet, write the outputs, and return the run.

    Failed points are part of the run. ``command`` is what run.json says of how the run was asked for; ``mpi`` are the
    hosts of an mpirun that this process is part of. Raises ``RunInterrupted``.
    """
    from .measure.measure import RunView, measure_experiment
    from .record.trial import SKIPPED
    from .report import check_can_report

    view = view or RunView()
    with measure_experiment(experiment, directory, view, command, fresh, retry_failed, mpi, check_can_report) as (
        journal,
        interruption,
    ):
        from .report.outputs import write_report  # needs libraries: check_can_report names the one that is missing

        run = Run.from_records(journal.run, journal.records, read_parity(journal.directory), journal.directory)
        try:
            problem = write_report(run.directory, [run])
            is_good = all(record.ok or record.status == SKIPPED for record in run.records)
            if problem:
                view.warn(f"charts are missing: {problem}")
        except OSError as error:
            kept = f"all {len(run.records)} finished trials are kept in {run.directory / TRIALS}"
            later = f"trainscale report {run.directory} writes the outputs later"
            view.warn(f"{error.filename or run.directory}: {error.strerror}; {kept}; {later}")
            is_good = False
        view.end(run, interruption, 130 if interruption is not None else 0 if is_good else 1)
    if interruption is not None:
        raise RunInterrupted(interruption)
    return run


def load(directory: str | Path) -> Run:
    """Read a run from its directory. Raises ``InputError`` if there is none, or none of its trials has finished. A
    damaged line of its journal is left out, with a warning.
    """
    return Run.open(Path(directory), lambda message: warnings.warn(message, stacklevel=5))


def explain(run: Run) -> RunExplanation:
    """Say where the efficiency of a run went, as ``trainscale explain`` does.

    Raises ``InputError`` if no point of the run can be explained.
    """
    from .questions.explain.explain import explain

    return explain(run)


def compare(
    a: Run | str | Path,
    b: Run | str | Path,
    *,
    threshold: float | str | None = None,
    at_least: float | str | None = None,
    despite: Sequence[str] = (),
    devices: Sequence[int] | None = None,
) -> RunComparison:
    """Say whether B is faster or slower than A, as ``trainscale compare`` does.

    A side is a run, or a text as the command takes it: a directory, a ``results.json``, ``DIR:SERIES`` or
    ``published:ID``. ``threshold`` (0.02 or ``"2%"``) and ``at_least`` are gates. ``despite`` names what may differ.
    Raises ``InputError`` if the sides cannot be compared.
    """
    from .questions.compare.compare import compare_runs

    return compare_runs(a, b, threshold=threshold, at_least=at_least, despite=despite, devices=devices)


def best(
    *runs: Run, by: str = "images/s", price: str | None = None, until_accuracy: float | None = None
) -> BestChoices:
    """Find the best configuration for every network and device count, as ``trainscale best`` does.

    ``by`` is ``images/s``, ``efficiency``, ``time-to-accuracy``, ``memory`` or ``cost``; ``price`` is a text such as
    ``"2.5/device-hour"``. ``until_accuracy`` is the validation accuracy for ``by="time-to-accuracy"``.
    """
    from .analyse.throughput import parse_price
    from .questions.best.best import CRITERIA, Question, find_best

    if by not in CRITERIA:
        raise explain_unknown("criterion", by, CRITERIA)
    return find_best(runs, Question(by, None if price is None else parse_price(price), until_accuracy))
