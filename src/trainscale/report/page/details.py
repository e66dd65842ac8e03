"""Everything that the page shows besides series: made from the records of runs, before the template lays it out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...analyse.series import Series
from ...analyse.throughput import Price
from ...questions.explain.causes import LOCAL
from ...questions.explain.explain import PointExplanation, explain_records, make_explaining_command
from ...spec.config import remove_exchange
from ..reported_run import ReportedRun
from ..table import Grid
from .costs import make_cost_grid
from .failures import make_failure_grid
from .figures import NamedChart
from .memory_chart import draw_memory, has_memory
from .redaction import Redaction
from .step_strips import MOST_STRIPS, StripTrial, choose_trials, draw_strips
from .time_parts import draw_time_parts, list_time_sentences, make_time_grid
from .verdict import Finding, find_verdict

_EXPLAIN = "--explain"
_MOST_SENTENCES = 40
_MOST_FINDINGS = 3  # in the first screen; the others are under the bars of time


@dataclass(frozen=True)
class BestTable:
    """The best configurations of one network. ``grid`` is None where no configuration can be offered."""

    title: str
    grid: Grid | None
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A command of a run; ``label`` is that of the run."""

    label: str
    text: str


@dataclass(frozen=True)
class TimeParts:
    """Where the time of a step went. ``commands`` measure what is missing."""

    chart: NamedChart
    grid: Grid
    sentences: tuple[tuple[str, tuple[str, ...]], ...]
    commands: tuple[Command, ...]


@dataclass(frozen=True)
class PageDetails:
    """The sections of a page; those without content are None or empty."""

    findings: tuple[Finding, ...] = ()
    time_parts: TimeParts | None = None
    memory: NamedChart | None = None
    best: tuple[BestTable, ...] = ()
    strips: tuple[NamedChart, ...] = ()
    costs: Grid | None = None
    failures: Grid | None = None
    left_out: int = 0  # series that the charts do not show, because there are too many
    charts: tuple[NamedChart, ...] = field(default=())  # all of the above, for files


def make_details(
    runs: Sequence[ReportedRun], charted: Sequence[Series], redaction: Redaction, price: Price | None = None
) -> PageDetails:
    """Return the sections of a page. ``charted`` and the series of ``runs`` are redacted already; what is made from
    records will be.
    """
    all_series = [series for run in runs for series in run.in_full]
    explanations = [_explain(run, charted) for run in runs]
    time_parts = _make_time_parts(runs, explanations, redaction)
    memory = NamedChart("memory", lambda frame: draw_memory(charted, frame)) if has_memory(charted) else None
    strips = tuple(
        _make_strip(number, trial, redaction) for number, trial in enumerate(_choose_trials(runs, charted), 1)
    )
    findings = [
        finding.redact(redaction)
        for run, points in zip(runs, explanations, strict=True)
        if (finding := find_verdict(points, run.in_full, is_named=bool(run.label)))
    ]
    return PageDetails(
        findings=tuple(findings[:_MOST_FINDINGS]),
        time_parts=time_parts,
        memory=memory,
        best=_make_best_tables(runs, price, redaction),
        strips=strips,
        costs=make_cost_grid([(run.in_full, run.recorded.records) for run in runs], price),
        failures=make_failure_grid(all_series),
        left_out=len(all_series) - len(charted),
        charts=(*([time_parts.chart] if time_parts else ()), *([memory] if memory else ()), *strips),
    )


def find_command(run: ReportedRun) -> str:
    """Return the command that measured a run. Empty if it is not recorded."""
    return run.info.read_provenance().command or ""


def _explain(run: ReportedRun, charted: Sequence[Series]) -> list[PointExplanation]:
    """Return the explanations of the series of a run that charts show. Their titles begin with its label.

    They need the records of these series and of those without exchange. Where all series are shown, these are all.
    """
    records, shown = run.recorded.records, _select_series(run, charted)
    if len(shown) < len(run.in_full):
        configs = {series.config for series in shown}
        needed = configs | {remove_exchange(config) for config in configs}
        records = [
            record for record in records if record.trial.config in needed or record.trial.config.strategy == LOCAL
        ]
    return [replace(point, title=run.add_label(point.title)) for point in explain_records(records)]


def _select_series(run: ReportedRun, charted: Sequence[Series]) -> list[Series]:
    titles = {series.title for series in charted}
    return [series for series in run.in_full if series.title in titles]


def _choose_trials(runs: Sequence[ReportedRun], charted: Sequence[Series]) -> list[StripTrial]:
    """Return the trials whose steps are drawn. Every run has the same share of the charts, and at least one."""
    share = max(1, MOST_STRIPS // len(runs)) if runs else 0
    trials = [choose_trials(_select_series(run, charted), run.recorded.records)[:share] for run in runs]
    return [trial for of_run in trials for trial in of_run][:MOST_STRIPS]


def _make_time_parts(
    runs: Sequence[ReportedRun], explanations: Sequence[Sequence[PointExplanation]], redaction: Redaction
) -> TimeParts | None:
    points = [point for of_run in explanations for point in of_run]
    if not points:
        return None
    lines = [
        (redaction.redact_text(sentence), tuple(map(redaction.redact_text, notes)))
        for sentence, notes in list_time_sentences(points)
    ]
    commands = [
        Command(run.label, make_explaining_command(run.info))
        for run, of_run in zip(runs, explanations, strict=True)
        if (command := find_command(run))
        and any(point.missing for point in of_run)
        and _EXPLAIN not in shlex.split(command)
    ]
    chart = NamedChart("time_parts", lambda frame: draw_time_parts(points, frame))
    return TimeParts(chart, make_time_grid(points), tuple(lines), tuple(commands))


def _make_strip(number: int, trial: StripTrial, redaction: Redaction) -> NamedChart:
    redacted = redaction.redact_trial(trial.record)
    return NamedChart(f"step_times_{number}", lambda frame: draw_strips(StripTrial(trial.title, redacted), frame))


def _make_best_tables(runs: Sequence[ReportedRun], price: Price | None, redaction: Redaction) -> tuple[BestTable, ...]:
    """Return a table for each network for which there was something to choose from, within a run or between runs."""
    records = [record for run in runs for record in run.recorded.records]
    setups = {(record.trial.config, *record.versions.values()) for record in records}
    if len(setups) <= 1 and all(record.ok for record in records):
        return ()
    from ...questions.best.best import Question, find_best
    from ...questions.best.text import list_sentences, make_best_grid

    question = Question(price=price)
    tables = []
    for work in find_best([run.recorded for run in runs], question).works:
        if not any(choice.others or choice.left_out for choice in work.choices):
            continue
        lines = [redaction.redact_text(sentence) for sentence in list_sentences(work)]
        if len(lines) > _MOST_SENTENCES:
            further = len(lines) - _MOST_SENTENCES
            lines = [*lines[:_MOST_SENTENCES], f"{further} more sentences: trainscale best."]
        tables.append(BestTable(work.title, make_best_grid(work, question), tuple(lines)))
    return tuple(tables)
