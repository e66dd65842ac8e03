"""Everything that the page shows besides series: made from the records of runs, before the template lays it out."""

from __future__ import annotations

import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from ..analyse.series import Series
from ..analyse.statistics import mean_interval
from ..analyse.throughput import JOULES_PER_WATT_HOUR, MILLION, Price, compute_energy_per_sample, is_measured
from ..questions.explain.causes import LOCAL
from ..questions.explain.explain import UNKNOWN, PointExplanation, explain_records, make_explaining_command
from ..questions.explain.text import describe_verdict, format_limits, list_notes, round_to_percents
from ..record.decoding import find_first_line
from ..runs import Run
from ..spec.config import remove_exchange
from . import numbers, wording
from .charts import STRIPS, TIME, NamedChart
from .detail_charts import MOST_STRIPS, choose_bars, choose_trials, draw_strips, draw_time_parts
from .redaction import Redaction
from .search_table import make_search_grids, select_series_in_full
from .table import Grid

MOST_SERIES = 24  # more lines cannot be told apart, and would make the page large
MOST_DOUBTS = 2  # in the first screen; all flags are in the tables of points
MOST_FAILURES = 200
_MOST_FINDINGS = 3  # in the first screen; the others are under the bars of time
_MOST_SENTENCES = 40

_ENERGY_NOTE = (
    "Energy is that of the GPUs (NVML), or of the hosts' processors (RAPL), in the measured windows, without the rest"
    " of the hosts."
)


@dataclass(frozen=True)
class Finding:
    """What was found out about a run, in sentences."""

    subject: str  # the title of the series; empty where there is no other
    result: str
    verdict: str = ""  # of explain; empty where nothing can be explained
    doubts: tuple[str, ...] = ()  # flags of the series, those of the most devices first
    further_doubts: int = 0  # flags that are not in doubts


@dataclass(frozen=True)
class BestTable:
    """The best configurations of one network. ``grid`` is None where no configuration can be offered."""

    title: str
    grid: Grid | None
    sentences: list[str]


@dataclass(frozen=True)
class PageDetails:
    """The sections of a page; those without content are None or empty."""

    findings: Sequence[Finding] = ()
    charts: Sequence[NamedChart] = ()
    time_grid: Grid | None = None
    time_sentences: Sequence[tuple[str, list[str]]] = ()  # the verdict on every point of it, with notes
    commands: Sequence[tuple[str, str]] = ()  # that measure what is missing, with the labels of their runs
    best: Sequence[BestTable] = ()
    searches: Sequence[Grid] = ()
    costs: Grid | None = None
    failures: Grid | None = None
    left_out: int = 0  # series that the charts do not show, because there are too many


def choose_charted(runs: Sequence[Run]) -> list[Series]:
    """Return the series that charts show: all, or the fastest ones if they are too many. The tables have all."""
    all_series = [series for run in runs for series in select_series_in_full(run)]

    def find_speed(series: Series) -> float:
        return max((point.samples_per_second.mean for point in series.good if point.samples_per_second), default=0.0)

    titles = {series.title for series in sorted(all_series, key=find_speed, reverse=True)[:MOST_SERIES]}
    return [series for series in all_series if series.title in titles]


def make_details(
    runs: Sequence[Run], charted: Sequence[Series], redaction: Redaction, price: Price | None = None
) -> PageDetails:
    """Return the sections of a page. ``charted`` and the series of ``runs`` are redacted already; what is made from
    records will be.
    """
    titles = {series.title for series in charted}
    findings: list[Finding] = []
    explained: list[PointExplanation] = []
    commands, trials = [], []
    for run in runs:
        in_full = select_series_in_full(run)
        shown = [series for series in in_full if series.title in titles]
        points = _explain(run, shown) if len(shown) < len(in_full) else explain_records(run.records)
        points = [replace(point, title=run.add_label(point.title)) for point in points]
        finding = find_verdict(points, in_full, redaction, is_named=bool(run.label))
        findings += [finding] if finding else []
        command = run.info.read_provenance().command
        if command and any(point.missing for point in points) and "--explain" not in shlex.split(command):
            commands.append((run.label, make_explaining_command(run.info)))
        explained += points
        trials += choose_trials(shown, run.records)[: max(1, MOST_STRIPS // len(runs))]  # each run has the same share
    charts = []
    if explained:
        charts.append(NamedChart("time_parts", TIME, partial(draw_time_parts, explained), "time_parts", is_wide=True))
    for number, (title, record) in enumerate(trials[:MOST_STRIPS], 1):
        name = f"step_times_{number}"
        charts.append(NamedChart(name, STRIPS, partial(draw_strips, title, record, redaction), name))
    bars = choose_bars(explained)
    with_titles = len({point.title for point in bars}) > 1
    sentences = []
    for point in bars:
        notes = [redaction.redact_text(f"{note[:1].upper()}{note[1:]}.") for note in list_notes(point)]
        sentences.append((redaction.redact_text(f"{describe_verdict(point, with_titles)}."), notes))
    return PageDetails(
        findings=findings[:_MOST_FINDINGS],
        charts=charts,
        time_grid=make_time_grid(bars) if bars else None,
        time_sentences=sentences,
        commands=commands,
        best=_make_best_tables(runs, price, redaction),
        searches=[replace(grid, rows=redaction.redact(grid.rows)) for run in runs for grid in make_search_grids(run)],
        costs=make_cost_grid(runs, price),
        failures=make_failure_grid([series for run in runs for series in select_series_in_full(run)]),
        left_out=sum(len(select_series_in_full(run)) for run in runs) - len(charted),
    )


def _explain(run: Run, shown: Sequence[Series]) -> list[PointExplanation]:
    """Explain some series of a run. That needs their records and those of the series without exchange."""
    configs = {series.config for series in shown}
    needed = configs | {remove_exchange(config) for config in configs}
    return explain_records(r for r in run.records if r.trial.config in needed or r.trial.config.strategy == LOCAL)


def find_verdict(
    explanations: Sequence[PointExplanation],
    all_series: Sequence[Series],
    redaction: Redaction,
    is_named: bool = False,
) -> Finding | None:
    """Return the verdict on the most devices that can be explained; else what the first series with a result reached.

    A run that trains to an accuracy is about that, so its accuracy is the verdict. None if nothing was measured. It
    names its series where there are several, or ``is_named``.
    """
    if not all_series:
        return None
    by_title = {series.title: series for series in all_series}
    known = [p for p in explanations if p.loss is not None and p.verdict != UNKNOWN and p.title in by_title]
    verdict = ""
    if known and not any(series.learns for series in all_series):
        explained = max(known, key=lambda point: point.devices)  # the first of several
        series, verdict = by_title[explained.title], f"{describe_verdict(explained)}."
    else:
        with_result = [series for series in all_series if series.good]
        if not with_result:
            return Finding("", "No trial gave a result.")
        series = with_result[0]
    learnt, result, point = wording.describe_learning(series), wording.describe_scaling(series), series.good[-1]
    if learnt:
        result = f"{learnt}; {result}"
    elif point.devices > 1 and point.speedup and point.samples_per_second:
        devices, one_device = wording.format_devices_and_hosts(point), wording.format_device_count(1)
        factor = numbers.format_times(point.speedup).removesuffix("×")
        slower, faster = f"slower than {one_device}, {factor} times as fast", f"{factor} times as fast as {one_device}"
        rate = f"{numbers.format_number(point.samples_per_second.mean)} {point.unit}/s"
        efficiency = f"{numbers.format_efficiency(point.efficiency)} efficiency"
        result = f"{devices} are {slower if point.speedup.mean < 1 else faster}: {rate}, {efficiency}"
    by_size = sorted(series.good, key=lambda point: point.devices, reverse=True)
    doubts = [f"{wording.format_device_count(point.devices)}: {flag}" for point in by_size for flag in point.flags]
    return Finding(
        subject=series.title if is_named or len(all_series) > 1 else "",
        result=f"{result}.",
        verdict=redaction.redact_text(verdict),
        doubts=tuple(doubts[:MOST_DOUBTS]),
        further_doubts=len(doubts[MOST_DOUBTS:]),
    )


def make_time_grid(points: Sequence[PointExplanation]) -> Grid:
    """Return the table of the bars of time."""
    rows = []
    for point in points:
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True):
            share, milliseconds = f"{percentage}{numbers.THIN}%", numbers.format_number(part.seconds * 1000, 3)
            devices = numbers.format_integer(point.devices)
            rows.append((point.title, devices, part.part, share, format_limits(part), milliseconds))
    header = ("series", "devices", "part", "share", "95 % interval", "ms of a step")
    return Grid("Parts of a step", header, tuple(rows), left=(0, 2))


def _make_best_tables(runs: Sequence[Run], price: Price | None, redaction: Redaction) -> list[BestTable]:
    """Return a table for each network for which there was something to choose from, within a run or between runs."""
    records = [record for run in runs for record in run.records]
    setups = {(record.trial.config, *record.versions.values()) for record in records}
    if len(setups) <= 1 and all(record.ok for record in records):
        return []
    from ..questions.best.best import Question, find_best
    from ..questions.best.text import list_sentences, make_best_grid

    question = Question(price=price)
    tables = []
    for work in find_best(runs, question).works:
        if not any(choice.others or choice.left_out for choice in work.choices):
            continue
        sentences = [redaction.redact_text(sentence) for sentence in list_sentences(work)]
        if further := len(sentences[_MOST_SENTENCES:]):
            sentences[_MOST_SENTENCES:] = [f"{further} more sentences: trainscale best."]
        tables.append(BestTable(work.title, make_best_grid(work, question), sentences))
    return tables


def make_cost_grid(runs: Sequence[Run], price: Price | None) -> Grid | None:
    """Return a row for every point with an energy, which all its good trials have to have counted, or for all points
    if there is a price. None if there is neither.
    """
    points = []
    for series in (series for run in runs for series in select_series_in_full(run)):
        for point in series.good:
            joules = [compute_energy_per_sample(record) for record in point.records if is_measured(record)]
            known = [value for value in joules if value is not None]
            energy = mean_interval(known) if known and len(known) == len(joules) else None
            if price or energy:
                points.append((series, point, energy))
    if not points:
        return None
    has_energy = any(energy for _, _, energy in points)
    rows = []
    for series, point, energy in points:
        speed = point.samples_per_second.mean if point.samples_per_second else 0.0
        row = [series.title, numbers.format_integer(point.devices), numbers.format_number(speed)]
        if price:
            cost = price.compute_price_per_second(point.devices, point.hosts) / speed * MILLION
            row.append(numbers.format_number(cost, 3))
        if energy:
            watt_hours = energy.scaled(MILLION / JOULES_PER_WATT_HOUR)
            watts = numbers.format_number(energy.mean * speed, 3)
            row += [numbers.format_number(watt_hours.mean, 3), numbers.format_plus_minus(energy), watts]
        elif has_energy:
            row += [numbers.MISSING, "", numbers.MISSING]
        rows.append(tuple(row))
    header = ["series", "devices", f"{points[0][1].unit}/s"]
    header += ["cost/million"] if price else []
    header += ["Wh/million", "±", "mean watts"] if has_energy else []
    notes = [f"Costs are at {price}, in the currency of the price."] if price else []
    notes += [_ENERGY_NOTE] if has_energy else ["Energy: no trial recorded it."]
    return Grid("Cost and energy", tuple(header), tuple(rows), " ".join(notes))


def make_failure_grid(all_series: Sequence[Series]) -> Grid | None:
    """Return a row for every kind of failure and its reason. None if every trial gave a result."""
    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for series in all_series:
        for point in series.points:
            for failure in point.failures:
                key = (series.title, wording.name_status(failure.kind), find_first_line(failure.message))
                groups[key].append(point.devices)
    if not groups:
        return None
    rows = []
    for (title, status, reason), counts in list(groups.items())[:MOST_FAILURES]:
        devices = ", ".join(map(numbers.format_integer, dict.fromkeys(counts)))
        rows.append((title, devices, numbers.format_integer(len(counts)), status, reason))
    left_out = len(groups) - len(rows)
    note = f"{numbers.format_integer(left_out)} more kinds of failures are in results.json." if left_out else ""
    header = ("series", "devices", "trials", "status", "reason")
    return Grid("What failed", header, tuple(rows), note, left=(0, 3, 4))
