"""The charts of the parts of a step, and of the step times of every rank."""

from __future__ import annotations

import itertools
import textwrap
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median

import altair as alt

from ..analyse.series import Series
from ..analyse.throughput import compute_samples_per_second, is_measured
from ..questions.explain.causes import CAUSES
from ..questions.explain.explain import PointExplanation
from ..questions.explain.text import format_limits, format_milliseconds, round_to_percents
from ..record.trial import RankSample, TrialRecord
from ..spec.config import PointKey
from . import numbers, wording
from .drawing import (
    INK,
    Frame,
    Row,
    VegaSpec,
    apply_theme,
    chart_rows,
    make_legend,
    without_schema_checks,
)
from .numbers import THIN
from .redaction import Redaction

# ---- where the time of a step went: a bar for each point, split into the parts of its explanation

MOST_BARS = 24
_BAR, _BAR_STEP, _LINE = 18, 46, 15  # pixels of a bar, from bar to bar, and of a line of text
_LETTER, _MOST_LINES = 6, 2  # pixels of an average letter; lines of a name
# Paul Tol's bright scheme for single causes; browns and greys for causes that the records do not separate.
_BRIGHT = ("#4477AA", "#CCBB44", "#EE6677", "#AA3377", "#228833", "#66CCEE", "#BBBBBB")
_COLOURS = dict(zip(CAUSES, _BRIGHT, strict=True))
_TOGETHER = ("#997755", "#777788", "#BB9966", "#555566")


def choose_bars(points: Sequence[PointExplanation]) -> list[PointExplanation]:
    """Return the points that are drawn: all, or if these are too many, the largest of each series."""
    if len(points) <= MOST_BARS:
        return list(points)
    largest: dict[str, PointExplanation] = {}
    for point in points:
        if point.title not in largest or point.devices > largest[point.title].devices:
            largest[point.title] = point
    return list(largest.values())[:MOST_BARS]


@without_schema_checks
def draw_time_parts(points: Sequence[PointExplanation], frame: Frame) -> VegaSpec:
    """Return stacked bars of the parts of a step, in per cent."""
    shown = choose_bars(points)
    with_titles = len({point.title for point in shown}) > 1
    rows: list[Row] = []
    names = []
    for point in shown:
        hosts = f" on {wording.format_host_count(point.hosts)}" if point.hosts > 1 else ""
        step = f"{format_milliseconds(point.step_seconds)} a step"
        name = f"{wording.format_device_count(point.devices)}{hosts}, {step}"
        names.append(f"{name} · {point.title}" if with_titles else name)  # the end may be cut off
        begin = 0.0
        for part, percentage in zip(point.parts, round_to_percents(point.parts), strict=True):
            share, time = f"{percentage}{THIN}%", format_milliseconds(part.seconds)
            interval, end = format_limits(part), begin + part.share * 100
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
        text = chart_rows(lines).mark_text(fontSize=12, limit=frame.width, aria=False, **place)
        layers.append(text.encode(y, x=alt.value(0), text="line:N", color=alt.value(INK)))
    notes = ["A step of each point, split by cause. More work is better."]
    if left_out := len(points) - len(shown):
        notes.append(f"{left_out} more points: trainscale explain.")
    return apply_theme(layers, "Where the time went", notes, Frame(frame.width, pixels * len(shown)))


# ---- the step times of every rank of a trial as strips, which show stragglers and drift

MOST_STRIPS = 4  # charts in a page
MOST_RANKS = 24  # strips in a chart
MOST_TICKS = 480  # in a chart
_LEAST_TICKS = 12  # of a rank
_LEAST_STEPS = 2
# Parts of the window, in its order.
_THIRDS = {"first third of the window": "#56B4E9", "middle third": "#009E73", "last third": "#D55E00"}


def choose_trials(all_series: Sequence[Series], records: Sequence[TrialRecord]) -> list[tuple[str, TrialRecord]]:
    """Return the title of each series with the repeat of median speed of its largest point."""
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


def choose_ranks(record: TrialRecord) -> list[RankSample]:
    """Return the ranks that are drawn: all, or as many of the slowest and the fastest as fit."""
    if len(record.ranks) <= MOST_RANKS:
        return sorted(record.ranks, key=lambda rank: rank.rank)
    by_speed = sorted(record.ranks, key=lambda rank: -fmean(rank.step_seconds))
    half = MOST_RANKS // 2
    return sorted((*by_speed[:half], *by_speed[-half:]), key=lambda rank: rank.rank)


def thin_out(seconds: Sequence[float], most: int) -> list[tuple[int, float]]:
    """Return (step, seconds) of at most ``most`` steps, evenly spaced, and always the slowest."""
    count = len(seconds)
    if count <= most:
        return list(enumerate(seconds, 1))
    chosen = {index * (count - 1) // (most - 2) for index in range(most - 1)}
    chosen.add(max(range(count), key=seconds.__getitem__))
    return [(index + 1, seconds[index]) for index in sorted(chosen)]


@without_schema_checks
def draw_strips(title: str, record: TrialRecord, redaction: Redaction, frame: Frame) -> VegaSpec:
    """Return a tick for every step that is drawn, with a colour for each third of the window."""
    ranks = choose_ranks(record)
    most = max(_LEAST_TICKS, MOST_TICKS // len(ranks))
    with_hosts = len({rank.host for rank in record.ranks}) > 1
    names, ticks, medians = [], [], []
    for rank in ranks:
        name = f"{rank.rank} · {redaction.redact_text(rank.host)}" if with_hosts else f"{rank.rank}"
        names.append(name)
        for step, seconds in thin_out(rank.step_seconds, most):
            time = f"{numbers.format_milliseconds(seconds)} ms"
            third = (step - 1) * len(_THIRDS) // len(rank.step_seconds)
            ticks.append(
                {
                    "rank": name,
                    "when": list(_THIRDS)[third],
                    "ms": round(seconds * 1000, 4),
                    "text": f"Rank {name}, step {step}: {time}",
                    "Rank": name,
                    "Step": numbers.format_integer(step),
                    "Time": time,
                }
            )
        middle = median(rank.step_seconds)
        time = f"{numbers.format_milliseconds(middle)} ms"
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
    notes = [f"{title}. Thick: median. A strip to the right is a straggler; colours that part are drift."]
    longest = max(len(rank.step_seconds) for rank in ranks)
    if longest > most:
        notes.append(f"{most} of {numbers.format_integer(longest)} steps of each rank, the slowest among them.")
    if len(ranks) < len(record.ranks):
        count = numbers.format_integer(len(record.ranks))
        notes.append(f"The {len(ranks) // 2} slowest and fastest of {count} ranks.")
    heading = f"Step times by rank: {wording.format_device_count(record.trial.devices)}"
    height = max(60, (22 if len(ranks) > 8 else 34) * len(ranks))
    return apply_theme(layers, heading, notes, Frame(frame.width, height))
