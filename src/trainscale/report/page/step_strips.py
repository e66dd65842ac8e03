"""The step times of every rank of a trial as strips, which show stragglers and drift. Long windows are thinned out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import altair as alt

from ...analyse.series import Series
from ...analyse.throughput import compute_samples_per_second, is_measured
from ...record.trial import RankSample, TrialRecord
from .. import numbers, wording
from ..drawing import INK, Frame, Row, VegaSpec, apply_theme, chart_rows, without_schema_checks

MOST_STRIPS = 4  # charts in a page
MOST_RANKS = 24  # strips in a chart
MOST_TICKS = 480  # in a chart
_LEAST_TICKS = 12  # of a rank
_LEAST_STEPS = 2
# Parts of the window, in its order.
_THIRDS = {"first third of the window": "#56B4E9", "middle third": "#009E73", "last third": "#D55E00"}


@dataclass(frozen=True)
class StripTrial:
    """A trial whose steps are drawn, with the name of its series."""

    title: str
    record: TrialRecord


def choose_trials(all_series: Sequence[Series], records: Sequence[TrialRecord]) -> list[StripTrial]:
    """Return a trial of the largest point of each series: the repeat of median speed. Most devices come first."""
    by_point: defaultdict[object, list[TrialRecord]] = defaultdict(list)
    for record in {record.trial: record for record in records}.values():
        if is_measured(record) and all(len(rank.step_seconds) >= _LEAST_STEPS for rank in record.ranks):
            by_point[record.trial.point].append(record)
    trials = []
    for series in all_series:
        points = [point for point in series.good if (series.config, point.devices) in by_point]
        if points:
            repeats = sorted(by_point[series.config, points[-1].devices], key=compute_samples_per_second)
            trials.append(StripTrial(series.title, repeats[(len(repeats) - 1) // 2]))
    return sorted(trials, key=lambda trial: -trial.record.trial.devices)[:MOST_STRIPS]


def choose_ranks(record: TrialRecord) -> list[RankSample]:
    """Return the ranks that are drawn: all, or the slowest half and the fastest half of as many as fit."""
    if len(record.ranks) <= MOST_RANKS:
        return sorted(record.ranks, key=lambda rank: rank.rank)
    by_speed = sorted(record.ranks, key=lambda rank: -fmean(rank.step_seconds))
    half = MOST_RANKS // 2
    return sorted((*by_speed[:half], *by_speed[-half:]), key=lambda rank: rank.rank)


def thin_out(seconds: Sequence[float], most: int) -> list[tuple[int, float]]:
    """Return (step, seconds) of at most ``most`` steps: evenly spaced, and always the slowest. Steps count from 1."""
    count = len(seconds)
    if count <= most:
        return list(enumerate(seconds, 1))
    chosen = {index * (count - 1) // (most - 2) for index in range(most - 1)}
    chosen.add(max(range(count), key=seconds.__getitem__))
    return [(index + 1, seconds[index]) for index in sorted(chosen)]


@without_schema_checks
def draw_strips(trial: StripTrial, frame: Frame) -> VegaSpec:
    """Return a tick for every step that is drawn: its place is the step time, its colour the part of the window."""
    ranks = choose_ranks(trial.record)
    most = max(_LEAST_TICKS, MOST_TICKS // len(ranks))
    with_hosts = len({rank.host for rank in trial.record.ranks}) > 1
    names = {rank.rank: f"{rank.rank} · {rank.host}" if with_hosts else f"{rank.rank}" for rank in ranks}
    ticks = [row for rank in ranks for row in _make_ticks(names[rank.rank], rank, most)]
    medians = [_make_median_row(names[rank.rank], rank) for rank in ranks]
    y = alt.Y("rank:N", title="Rank", sort=list(names.values()), axis=alt.Axis(labelLimit=160, ticks=False))
    x = alt.X("ms:Q", title="Step time, ms", scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(labelFlush=False))
    colour = alt.Color(
        "when:N",
        scale=alt.Scale(domain=list(_THIRDS), range=list(_THIRDS.values())),
        legend=alt.Legend(title=None, orient="bottom", columns=1, symbolType="square", labelLimit=frame.width),
    )
    tooltip = [alt.Tooltip(f"{field}:N") for field in ("Rank", "Step", "Time")]
    layers = [
        chart_rows(ticks)
        .mark_tick(thickness=1.5, opacity=0.75)
        .encode(x, y, colour, description=alt.Description("text:N"), tooltip=tooltip),
        chart_rows(medians)
        .mark_tick(thickness=3, size=24, color=INK)
        .encode(x, y, description=alt.Description("text:N"), tooltip=[alt.Tooltip("Rank:N"), alt.Tooltip("Median:N")]),
    ]
    title = f"Step times by rank: {wording.format_device_count(trial.record.trial.devices)}"
    height = max(60, (22 if len(ranks) > 8 else 34) * len(ranks))
    return apply_theme(layers, title, _list_notes(trial, ranks, most), Frame(frame.width, height))


def _list_notes(trial: StripTrial, ranks: Sequence[RankSample], most: int) -> list[str]:
    notes = [f"{trial.title}. Thick: median. A strip to the right is a straggler; colours that part are drift."]
    longest = max(len(rank.step_seconds) for rank in ranks)
    if longest > most:
        notes.append(f"{most} of {numbers.format_integer(longest)} steps of each rank, the slowest among them.")
    if len(ranks) < len(trial.record.ranks):
        notes.append(
            f"The {len(ranks) // 2} slowest and fastest of {numbers.format_integer(len(trial.record.ranks))} ranks."
        )
    return notes


def _make_ticks(name: str, rank: RankSample, most: int) -> list[Row]:
    return [
        {
            "rank": name,
            "when": list(_THIRDS)[(step - 1) * len(_THIRDS) // len(rank.step_seconds)],
            "ms": round(seconds * 1000, 4),
            "text": f"Rank {name}, step {step}: {numbers.format_milliseconds(seconds)} ms",
            "Rank": name,
            "Step": numbers.format_integer(step),
            "Time": f"{numbers.format_milliseconds(seconds)} ms",
        }
        for step, seconds in thin_out(rank.step_seconds, most)
    ]


def _make_median_row(name: str, rank: RankSample) -> Row:
    middle = median(rank.step_seconds)
    text = f"{numbers.format_milliseconds(middle)} ms"
    return {"rank": name, "ms": middle * 1000, "text": f"Rank {name}: median {text}", "Rank": name, "Median": text}
