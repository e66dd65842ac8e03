"""What the page shows besides series."""

import itertools
import shlex
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean, median

import altair as alt

from ..analyse.series import Series, find_common_unit
from ..analyse.throughput import (
    JOULES_PER_WATT_HOUR,
    MILLION,
    Price,
    average_energy_per_sample,
    compute_samples_per_second,
    is_measured,
)
from ..questions.explain import explain, text
from ..questions.explain.causes import CAUSES, LOCAL
from ..questions.explain.explain import PointExplanation
from ..record.decoding import find_first_line
from ..record.trial import TrialRecord
from ..runs import Run
from ..spec.config import PointKey, remove_exchange
from . import numbers, wording
from .charts import STRIPS, TIME, NamedChart
from .documents import Grid, Section, select_series_in_full
from .drawing import INK, Frame, Row, VegaSpec, apply_theme, chart_rows, make_legend, without_schema_checks
from .numbers import format_integer, format_milliseconds, format_number
from .redaction import Redaction
from .run_tables import make_search_grids

MOST_SERIES = 24  # more lines cannot be told apart
MOST_DOUBTS = 2  # in the first screen; all flags are in the tables of points
MOST_FAILURES = 200
_MOST_FINDINGS = 3  # in the first screen; the others are under the bars of time
_MOST_SENTENCES = 40


@dataclass(frozen=True)
class Finding:
    """What was found out about a run, in sentences."""

    subject: str  # the title of the series; empty where there is no other
    result: str
    verdict: str = ""  # of explain; empty where nothing can be explained
    doubts: tuple[str, ...] = ()  # flags of the series, those of the most devices first
    further_doubts: int = 0  # flags that are not in doubts


@dataclass(frozen=True)
class PageDetails:
    """The sections of a page; those without content are None or empty."""

    findings: Sequence[Finding] = ()
    charts: Sequence[NamedChart] = ()
    time_grid: Grid | None = None
    time_sentences: Sequence[tuple[str, list[str]]] = ()  # the verdict on every point of it, with notes
    commands: Sequence[tuple[str, str]] = ()  # labels of runs; commands that measure what is missing
    best: Sequence[Section] = ()
    searches: Sequence[Grid] = ()
    costs: Grid | None = None
    failures: Grid | None = None
    left_out: int = 0  # series that the charts do not show, because there are too many


def choose_charted(runs: Sequence[Run]) -> list[Series]:
    """Return the series that charts show: all, or the fastest."""
    all_series = [series for run in runs for series in select_series_in_full(run)]
    speeds = {}
    for series in all_series:
        rates = [point.samples_per_second for point in series.good]
        speeds[series.title] = max((rate.mean for rate in rates if rate), default=0.0)
    fastest = sorted(speeds, key=lambda title: -speeds[title])[:MOST_SERIES]
    return [series for series in all_series if series.title in fastest]


def make_details(
    runs: Sequence[Run], charted: Sequence[Series], redaction: Redaction, price: Price | None = None
) -> PageDetails:
    """The series are redacted already; what is made from records will be."""
    all_series = [series for run in runs for series in select_series_in_full(run)]
    titles = {series.title for series in charted}
    findings: list[Finding] = []
    explained: list[PointExplanation] = []
    commands, trials, searches = [], [], list[Grid]()
    for run in runs:
        in_full = select_series_in_full(run)
        shown = [series for series in in_full if series.title in titles]
        records = run.records
        if len(shown) < len(in_full):  # those of the series that are shown, and of what explains them
            needed = {series.config for series in shown}
            needed |= set(map(remove_exchange, needed))
            needed |= {r.trial.config for r in records if r.trial.config.strategy == LOCAL}
            records = [record for record in records if record.trial.config in needed]
        points = explain.explain_records(records)
        points = [replace(point, title=run.add_label(point.title)) for point in points]
        if finding := find_verdict(points, in_full, redaction, is_named=bool(run.label)):
            findings.append(finding)
        command = run.info.read_provenance().command
        is_incomplete = any(point.missing for point in points)
        if command and is_incomplete and "--explain" not in shlex.split(command):
            commands.append((run.label, explain.make_explaining_command(run.info)))
        if run.info.is_search:
            for grid in make_search_grids(run):
                searches.append(replace(grid, rows=redaction.redact(grid.rows)))
        explained += points
        trials += choose_trials(shown, run.records)[: max(1, MOST_STRIPS // len(runs))]
    charts = []
    if explained:
        draw_parts = partial(draw_time_parts, explained)
        charts.append(NamedChart("time_parts", TIME, draw_parts, "time_parts", is_wide=True))
    for number, (title, record) in enumerate(trials[:MOST_STRIPS], 1):
        name = f"step_times_{number}"
        charts.append(NamedChart(name, STRIPS, partial(draw_strips, title, record, redaction), name))
    bars = choose_bars(explained)
    with_titles = len({point.title for point in bars}) > 1
    sentences, rows_of_time = [], []
    for point in bars:
        for part, percentage in text.round_to_percents(point.parts):
            share = f"{percentage}{numbers.THIN}%", text.format_limits(part)
            own = (point.title, format_integer(point.devices), part.part)
            rows_of_time.append((*own, *share, format_milliseconds(part.seconds)))
        notes = [f"{note[:1].upper()}{note[1:]}." for note in text.list_notes(point)]
        verdict = f"{text.describe_verdict(point, with_titles)}."
        sentences.append((redaction.redact(verdict), redaction.redact(notes)))
    header = ("series", "devices", "part", "share", "95 % interval", "ms of a step")
    return PageDetails(
        findings=findings[:_MOST_FINDINGS],
        charts=charts,
        time_grid=Grid("Parts of a step", header, tuple(rows_of_time), left=(0, 2)) if bars else None,
        time_sentences=sentences,
        commands=commands,
        best=_make_best_tables(runs, price, redaction),
        searches=searches,
        costs=make_cost_grid(runs, price),
        failures=make_failure_grid(all_series),
        left_out=len(all_series) - len(charted),
    )


def find_verdict(
    explanations: Sequence[PointExplanation],
    all_series: Sequence[Series],
    redaction: Redaction,
    is_named: bool = False,
) -> Finding | None:
    """Return the verdict on the most devices, or what was reached."""
    if not all_series:
        return None
    by_title = {series.title: series for series in all_series}
    known = [p for p in explanations if p.loss is not None and p.verdict != explain.UNKNOWN]
    known = [point for point in known if point.title in by_title]
    verdict = ""
    if known and not any(series.learns for series in all_series):
        explained = max(known, key=lambda point: point.devices)  # the first of several
        series, verdict = by_title[explained.title], f"{text.describe_verdict(explained)}."
    else:
        with_result = [series for series in all_series if series.good]
        if not with_result:
            return Finding("", "No trial gave a result.")
        series = with_result[0]
    doubts = []
    for point in sorted(series.good, key=lambda point: point.devices, reverse=True):
        devices = wording.format_device_count(point.devices)
        doubts += [f"{devices}: {flag}" for flag in point.flags]
    return Finding(
        subject=series.title if is_named or len(all_series) > 1 else "",
        result=" ".join(wording.list_parts("result", series)),
        verdict=redaction.redact(verdict),
        doubts=tuple(doubts[:MOST_DOUBTS]),
        further_doubts=len(doubts[MOST_DOUBTS:]),
    )


def _make_best_tables(runs: Sequence[Run], price: Price | None, redaction: Redaction) -> list[Section]:
    """Return a section for each network with a choice."""
    records = [record for run in runs for record in run.records]
    setups = {(record.trial.config, *record.versions.values()) for record in records}
    if len(setups) <= 1 and all(record.ok for record in records):
        return []
    from ..questions.best.best import Question, find_best
    from ..questions.best.text import make_sections

    best = find_best(runs, Question(price=price))
    sections = []
    for work, section in zip(best.works, make_sections(best), strict=True):
        if any(choice.others or choice.left_out for choice in work.choices):
            sentences = [redaction.redact(sentence) for sentence in section.paragraphs]
            if further := len(sentences[_MOST_SENTENCES:]):
                sentences[_MOST_SENTENCES:] = [f"{further} more sentences: trainscale best."]
            sections.append(replace(section, paragraphs=sentences))
    return sections


def make_cost_grid(runs: Sequence[Run], price: Price | None) -> Grid | None:
    """Return a row for every point with an energy or a price."""
    all_series = [series for run in runs for series in select_series_in_full(run)]
    rows = []
    for series in all_series:
        for point in series.good:
            energy = average_energy_per_sample(point.records)
            if not price and not energy:
                continue
            speed = point.samples_per_second.mean if point.samples_per_second else 0.0
            per_second = price.compute_price_per_second(point.devices, point.hosts) if price else None
            cost = per_second / speed * MILLION if per_second else None
            watt_hours = energy.mean * MILLION / JOULES_PER_WATT_HOUR if energy else None
            watts = energy.mean * speed if energy else None
            own = (series.title, format_integer(point.devices), format_number(speed))
            costs = (format_number(cost, 3), format_number(watt_hours, 3))
            error = numbers.format_plus_minus(energy)
            rows.append((*own, *costs, error, format_number(watts, 3)))
    if not rows:
        return None
    unit = find_common_unit(all_series)
    header = ("series", "devices", f"{unit}/s", "cost/million", "Wh/million", "±", "mean watts")
    has_energy = any(row[-1] != numbers.MISSING for row in rows)
    notes = wording.list_parts("note_on_energy") if has_energy else ["Energy: no trial recorded it."]
    if price:
        notes.insert(0, f"Costs are at {price}, in the currency of the price.")
    return Grid("Cost and energy", header, tuple(rows), " ".join(notes)).drop_empty_columns()


def make_failure_grid(all_series: Sequence[Series]) -> Grid | None:
    groups: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for series in all_series:
        for point in series.points:
            for failure in point.failures:
                status, reason = wording.name_status(failure.kind), find_first_line(failure.message)
                groups[series.title, status, reason].append(point.devices)
    if not groups:
        return None
    rows = []
    for (title, status, reason), counts in list(groups.items())[:MOST_FAILURES]:
        devices = ", ".join(map(format_integer, dict.fromkeys(counts)))
        rows.append((title, devices, format_integer(len(counts)), status, reason))
    left_out = len(groups) - len(rows)
    note = f"{format_integer(left_out)} more kinds of failures are in results.json." if left_out else ""
    header = ("series", "devices", "trials", "status", "reason")
    return Grid("What failed", header, tuple(rows), note, left=(0, 3, 4))


# ---- where the time of a step went: a bar for each point, split into parts

MOST_BARS = 24
_BAR, _BAR_STEP, _LINE = 18, 46, 15  # pixels of a bar, from bar to bar, and of a line of text
_LETTER, _MOST_LINES = 6, 2  # pixels of an average letter; lines of a name
# Paul Tol's bright scheme for single causes; browns and greys for several together.
_BRIGHT = ("#4477AA", "#CCBB44", "#EE6677", "#AA3377", "#228833", "#66CCEE", "#BBBBBB")
_COLOURS = dict(zip(CAUSES, _BRIGHT, strict=True))
_TOGETHER = ("#997755", "#777788", "#BB9966", "#555566")


def choose_bars(points: Sequence[PointExplanation]) -> list[PointExplanation]:
    if len(points) <= MOST_BARS:
        return list(points)
    largest = {point.title: point for point in sorted(points, key=lambda point: point.devices)}
    return [largest[title] for title in dict.fromkeys(point.title for point in points)][:MOST_BARS]


@without_schema_checks
def draw_time_parts(points: Sequence[PointExplanation], frame: Frame) -> VegaSpec:
    shown = choose_bars(points)
    with_titles = len({point.title for point in shown}) > 1
    rows: list[Row] = []
    names = []
    for point in shown:
        hosts = f" on {wording.format_host_count(point.hosts)}" if point.hosts > 1 else ""
        step = f"{text.format_milliseconds(point.step_seconds)} a step"
        name = f"{wording.format_device_count(point.devices)}{hosts}, {step}"
        names.append(f"{name} · {point.title}" if with_titles else name)  # the end may be cut off
        begin = 0.0
        for part, percentage in text.round_to_percents(point.parts):
            share, time = f"{percentage}{numbers.THIN}%", text.format_milliseconds(part.seconds)
            interval, end = text.format_limits(part), begin + part.share * 100
            rows.append(
                {
                    "point": names[-1],
                    "from": begin,
                    "to": end,
                    "cause": part.part,
                    "text": f"{part.part}: {share} {interval}, {time} · {names[-1]}",
                    "Point": names[-1],
                    "Part": part.part,
                    "Share": share,
                    "Interval": interval or "none, too few repeats",
                    "Time": f"{time} of a step",
                }
            )
            begin = end
    headings = [textwrap.wrap(name, frame.width // _LETTER)[:_MOST_LINES] for name in names]
    most_lines = max(map(len, headings))
    pixels = _BAR_STEP + _LINE * (most_lines - 1)
    outer = (pixels - _BAR) / pixels * 0.75  # room for the name above the first bar
    band = alt.Scale(paddingInner=1 - _BAR / pixels, paddingOuter=outer, domain=names)
    y = alt.Y("point:N", sort=names, axis=None, scale=band)
    axis = alt.Axis(labelFlush=False)  # flush labels at the ends come too close to their neighbours
    scale = alt.Scale(domain=[0, 100], nice=False)
    x = alt.X("from:Q", title="Share of the step, %", scale=scale, axis=axis)
    labels = list(dict.fromkeys(row["cause"] for row in rows))
    together = [label for label in labels if label not in _COLOURS]
    colours = dict(zip(together, itertools.cycle(_TOGETHER), strict=False)) | _COLOURS
    colour_scale = alt.Scale(domain=labels, range=[colours[label] for label in labels])
    legend = make_legend(labels, frame, symbolType="square")
    colour = alt.Color("cause:N", scale=colour_scale, legend=legend)
    tooltip = ["Point:N", "Part:N", "Share:N", "Interval:N", "Time:N"]
    bars = chart_rows(rows).mark_bar()
    layers = [bars.encode(x, y, colour, x2="to:Q", description="text:N", tooltip=tooltip)]
    for number in range(most_lines):  # a layer for all last lines of the names, one for those before
        lines = [
            {"point": name, "line": heading[-1 - number]}
            for name, heading in zip(names, headings, strict=True)
            if number < len(heading)
        ]
        place: VegaSpec = {"align": "left", "baseline": "bottom", "dy": -12 - number * _LINE}
        words = chart_rows(lines).mark_text(fontSize=12, limit=frame.width, aria=False, **place)
        layers.append(words.encode(y, x=alt.value(0), text="line:N", color=alt.value(INK)))
    notes = ["A step of each point, split by cause. More work is better."]
    if left_out := len(points) - len(shown):
        notes.append(f"{left_out} more points: trainscale explain.")
    return apply_theme(layers, "Where the time went", notes, Frame(frame.width, pixels * len(shown)))


# ---- the step times of every rank of a trial as strips

MOST_STRIPS = 4  # charts in a page
MOST_RANKS = 24  # strips in a chart
MOST_TICKS = 480  # in a chart
_LEAST_TICKS = 12  # of a rank
_LEAST_STEPS = 2
# Parts of the window, in its order.
_THIRDS = {"first third of the window": "#56B4E9", "middle third": "#009E73", "last third": "#D55E00"}


def choose_trials(all_series: Sequence[Series], records: Sequence[TrialRecord]) -> list[tuple[str, TrialRecord]]:
    """Return titles, and the median repeat of the largest point."""
    by_point: defaultdict[PointKey, list[TrialRecord]] = defaultdict(list)
    for record in {record.trial: record for record in records}.values():
        steps = min((len(rank.step_seconds) for rank in record.ranks), default=0)
        if is_measured(record) and steps >= _LEAST_STEPS:
            by_point[record.trial.point].append(record)
    trials = []
    for series in all_series:
        points = [point for point in series.good if point.key in by_point]
        if points:
            repeats = sorted(by_point[points[-1].key], key=compute_samples_per_second)
            trials.append((series.title, repeats[(len(repeats) - 1) // 2]))
    return sorted(trials, key=lambda trial: -trial[1].trial.devices)[:MOST_STRIPS]


def thin_out(seconds: Sequence[float], most: int) -> list[tuple[int, float]]:
    """Return (step, seconds), evenly spaced, and always the slowest."""
    count = len(seconds)
    if count <= most:
        return list(enumerate(seconds, 1))
    chosen = {index * (count - 1) // (most - 2) for index in range(most - 1)}
    chosen.add(max(range(count), key=seconds.__getitem__))
    return [(index + 1, seconds[index]) for index in sorted(chosen)]


@without_schema_checks
def draw_strips(title: str, record: TrialRecord, redaction: Redaction, frame: Frame) -> VegaSpec:
    """Return a tick for every step, in the colour of its third."""
    by_speed = sorted(record.ranks, key=lambda rank: -fmean(rank.step_seconds))
    if len(by_speed) > MOST_RANKS:
        by_speed = [*by_speed[: MOST_RANKS // 2], *by_speed[-MOST_RANKS // 2 :]]
    ranks = sorted(by_speed, key=lambda rank: rank.rank)
    most = max(_LEAST_TICKS, MOST_TICKS // len(ranks))
    with_hosts = len({rank.host for rank in record.ranks}) > 1
    names, ticks, medians = [], [], []
    for rank in ranks:
        name = f"{rank.rank} · {redaction.redact(rank.host)}" if with_hosts else f"{rank.rank}"
        names.append(name)
        for step, seconds in thin_out(rank.step_seconds, most):
            time = f"{format_milliseconds(seconds)} ms"
            third = (step - 1) * len(_THIRDS) // len(rank.step_seconds)
            ticks.append(
                {
                    "rank": name,
                    "when": list(_THIRDS)[third],
                    "ms": round(seconds * 1000, 4),
                    "text": f"Rank {name}, step {step}: {time}",
                    "Rank": name,
                    "Step": format_integer(step),
                    "Time": time,
                }
            )
        middle = median(rank.step_seconds)
        time = f"{format_milliseconds(middle)} ms"
        row = {"rank": name, "ms": middle * 1000, "text": f"Rank {name}: median {time}"}
        medians.append({**row, "Rank": name, "Median": time})
    y = alt.Y("rank:N", title="Rank", sort=names, axis=alt.Axis(labelLimit=160, ticks=False))
    x_scale, x_axis = alt.Scale(zero=False, nice=True), alt.Axis(labelFlush=False)
    x = alt.X("ms:Q", title="Step time, ms", scale=x_scale, axis=x_axis)
    legend = make_legend(list(_THIRDS), frame, direction=alt.Undefined, columns=1, symbolType="square")
    scale = alt.Scale(domain=list(_THIRDS), range=list(_THIRDS.values()))
    colour = alt.Color("when:N", scale=scale, legend=legend)
    tick_marks = chart_rows(ticks).mark_tick(thickness=1.5, opacity=0.75)
    median_marks = chart_rows(medians).mark_tick(thickness=3, size=24, color=INK)
    layers = [
        tick_marks.encode(x, y, colour, description="text:N", tooltip=["Rank:N", "Step:N", "Time:N"]),
        median_marks.encode(x, y, description="text:N", tooltip=["Rank:N", "Median:N"]),
    ]
    meaning = "A strip to the right is a straggler; colours that part are drift."
    notes = [f"{title}. Thick: median. {meaning}"]
    longest = max(len(rank.step_seconds) for rank in ranks)
    if longest > most:
        notes.append(f"{most} of {format_integer(longest)} steps of each rank, the slowest among them.")
    if len(ranks) < len(record.ranks):
        count = format_integer(len(record.ranks))
        notes.append(f"The {len(ranks) // 2} slowest and fastest of {count} ranks.")
    heading = f"Step times by rank: {wording.format_device_count(record.trial.devices)}"
    height = max(60, (22 if len(ranks) > 8 else 34) * len(ranks))
    return apply_theme(layers, heading, notes, Frame(frame.width, height))
