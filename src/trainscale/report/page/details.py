"""Everything that the page shows besides series: made from the records of a run, before the template lays it out."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field

from ...analyse.best.choose import BestOfWork, find_best
from ...analyse.best.criteria import Question
from ...analyse.best.points import RecordedRun
from ...analyse.cost import Price
from ...analyse.explanation.explain import PointExplanation, explain_records
from ...analyse.explanation.runs import LOCAL
from ...analyse.series import Series
from ...record.trial import TrialRecord
from ...spec.further import without_exchange
from ..best import best_grid, sentences
from ..grid import Grid
from .costs import cost_grid
from .failures import failure_grid
from .figures import NamedChart
from .memory_chart import has_memory, memory_chart
from .redaction import Redaction
from .step_strips import StripTrial, choose_trials, strip_chart
from .time_parts import time_chart, time_grid, time_sentences
from .verdict import find_verdict

_EXPLAIN = "--explain"
_MOST_SENTENCES = 40


@dataclass(frozen=True)
class BestTable:
    """The best configurations of one network. ``grid`` is None where no configuration can be offered."""

    title: str
    grid: Grid | None
    sentences: tuple[str, ...]


@dataclass(frozen=True)
class TimeParts:
    """Where the time of a step went. ``command`` measures what is missing; empty if nothing is."""

    chart: NamedChart
    grid: Grid
    sentences: tuple[tuple[str, tuple[str, ...]], ...]
    command: str


@dataclass(frozen=True)
class PageDetails:
    """The sections of a page; those without content are None or empty."""

    verdict: str = ""
    time_parts: TimeParts | None = None
    memory: NamedChart | None = None
    best: tuple[BestTable, ...] = ()
    strips: tuple[NamedChart, ...] = ()
    costs: Grid | None = None
    failures: Grid | None = None
    command: str = ""
    left_out: int = 0  # series that the charts do not show, because there are too many
    charts: tuple[NamedChart, ...] = field(default=())  # all of the above, for files


def make_details(
    recorded: RecordedRun, all_series: Sequence[Series], charted: Sequence[Series], redaction: Redaction,
    price: Price | None = None,
) -> PageDetails:  # fmt: skip
    """``all_series`` and ``charted`` are redacted already; ``recorded`` is not, and what is made from it will be."""
    run, records = recorded.run, recorded.records
    explanations = explain_records(_records_to_explain(records, all_series, charted))
    command = redaction.text(str(run.provenance.get("command") or ""))
    time_parts = _time_parts(explanations, command, redaction)
    memory = NamedChart("memory", lambda frame: memory_chart(charted, frame)) if has_memory(charted) else None
    trials = choose_trials(charted, records)
    strips = tuple(_strip(number, trial, redaction) for number, trial in enumerate(trials, 1))
    return PageDetails(
        verdict=redaction.text(find_verdict(explanations, all_series)),
        time_parts=time_parts,
        memory=memory,
        best=_best(recorded, price, redaction),
        strips=strips,
        costs=cost_grid(all_series, records, price),
        failures=failure_grid(all_series),
        command=command,
        left_out=len(all_series) - len(charted),
        charts=(*([time_parts.chart] if time_parts else ()), *([memory] if memory else ()), *strips),
    )


def _records_to_explain(
    records: Sequence[TrialRecord], all_series: Sequence[Series], charted: Sequence[Series]
) -> Sequence[TrialRecord]:
    """Return the records of the series that charts show, and of those without exchange, which explain them.

    Where all series are shown, these are all records.
    """
    if len(charted) == len(all_series):
        return records
    configs = {series.config for series in charted}
    needed = configs | {without_exchange(config) for config in configs}
    return [record for record in records if record.trial.config in needed or record.trial.config.strategy == LOCAL]


def _time_parts(points: Sequence[PointExplanation], command: str, redaction: Redaction) -> TimeParts | None:
    if not points:
        return None
    lines = [
        (redaction.text(sentence), tuple(map(redaction.text, notes))) for sentence, notes in time_sentences(points)
    ]
    is_complete = not any(point.missing for point in points)
    complement = "" if is_complete or not command or _EXPLAIN in shlex.split(command) else f"{command} {_EXPLAIN}"
    chart = NamedChart("time_parts", lambda frame: time_chart(points, frame))
    return TimeParts(chart, time_grid(points), tuple(lines), complement)


def _strip(number: int, trial: StripTrial, redaction: Redaction) -> NamedChart:
    redacted = redaction.trial(trial.record)
    return NamedChart(f"step_times_{number}", lambda frame: strip_chart(StripTrial(trial.title, redacted), frame))


def _best(recorded: RecordedRun, price: Price | None, redaction: Redaction) -> tuple[BestTable, ...]:
    """Return a table for each network for which there was something to choose from."""
    question = Question(price=price)
    works = [work for work in find_best([recorded], question) if _has_choice(work)]
    tables = []
    for work in works:
        lines = [redaction.text(sentence) for sentence in sentences(work, question)]
        if len(lines) > _MOST_SENTENCES:
            further = len(lines) - _MOST_SENTENCES
            lines = [*lines[:_MOST_SENTENCES], f"{further} more sentences: trainscale best."]
        has_leader = any(answer.leader for answer in work.answers)
        tables.append(BestTable(work.title, best_grid(work, question) if has_leader else None, tuple(lines)))
    return tuple(tables)


def _has_choice(work: BestOfWork) -> bool:
    return any(answer.others or answer.left_out for answer in work.answers)
