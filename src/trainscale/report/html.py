"""report.html: all results in one file that works offline, with interactive charts.

This module decides what the page says; templates/report.html.j2 decides how it looks. Each chart is in the page twice:
as a static picture, which needs no script, and as a spec that the embedded Vega draws.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup

from ..analyse.series import Interval, Point, Series, find_common_unit, find_host_boundary
from ..analyse.titles import find_model_title
from ..record.decoding import remove_unprintable
from ..record.parity import Verdict
from ..spec.config import STRONG
from ..worker.type_aliases import JsonObject
from . import charts, learning_tables, numbers, palette, wording
from .accuracy_charts import draw_accuracy, draw_accuracy_over_time
from .columns import PAGE, choose_shown, format_heading
from .drawing import Frame, VegaSpec
from .drawing_process import ChartsUnavailable
from .overlay import Overlay
from .page.details import PageDetails, find_command
from .page.figures import HALF, NARROW, WIDE, Chart, make_chart, make_wide_and_narrow
from .page.selection import choose_charted
from .provenance_tables import make_datasets_grid, make_machines_grid, make_versions_grid
from .reported_run import ReportedRun, make_system_tables, summarise
from .run_differences import list_difference_sentences, make_difference_grid
from .table import Grid
from .vega import load_vega_bundle

_LEADING = ("accuracy", "time", "speedup", "speedup-narrow")  # charts of the first screen


@dataclass(frozen=True)
class Card:
    """The summary of a series: its main number, what that counts, and details."""

    series: Series
    colour: str
    number: str
    unit: str
    details: tuple[str, ...]


@dataclass(frozen=True)
class Origin:
    """Where and how a run was measured."""

    label: str
    command: str
    tables: list[Grid]
    provenance: JsonObject


def render_report_html(
    runs: Sequence[ReportedRun], overlay: Overlay | None = None, details: PageDetails | None = None
) -> str:
    template = _make_environment().get_template("report.html.j2")
    all_series = [series for run in runs for series in run.in_full]
    charted = choose_charted(all_series)
    colours = {
        series.title: style.colour for series, style in zip(charted, palette.choose_styles(charted), strict=True)
    }
    headings, point_rows = _make_points_tables(all_series)
    shown_charts = _make_charts(charted, overlay or Overlay())
    return template.render(
        title=wording.make_title(all_series),
        summary=summarise(runs, all_series),
        differences=_describe_differences(runs),
        cards=[_make_card(series, colours[series.title]) for series in charted],
        leading=[chart for chart in shown_charts if chart.name in _LEADING],
        charts=[chart for chart in shown_charts if chart.name not in _LEADING],
        published=(overlay or Overlay()).sentences,
        details=details or PageDetails(),
        detail_charts=_make_detail_charts(details or PageDetails()),
        strong=[series.title for series in charted if series.config.scaling == STRONG],
        colours=[colours.get(series.title, palette.IDEAL) for series in all_series],
        all_series=all_series,
        verdicts_by_model=_group_verdicts_by_model(runs),
        learning=_make_learning_grids(runs) if any(series.learns for series in all_series) else None,
        searches=[grid for run in runs for grid in run.searches],
        origins=[_make_origin(run) for run in runs],
        headings=headings,
        point_rows=point_rows,
        boundaries=[find_host_boundary(series.points) for series in all_series],
        definitions=wording.make_definitions(find_common_unit(all_series)),
        unit=find_common_unit(all_series),
        numbers=numbers,
        wording=wording,
        vega=Markup(_load_vega()),
    )


def _load_vega() -> str:
    """Return the script of Vega. Without it, the page shows its static pictures, or says why there are none."""
    try:
        return load_vega_bundle()
    except ChartsUnavailable:
        return ""


def _describe_differences(runs: Sequence[ReportedRun]) -> tuple[list[str], Grid] | None:
    return (list_difference_sentences(runs), make_difference_grid(runs)) if len(runs) > 1 else None


def _make_origin(run: ReportedRun) -> Origin:
    grids = (make_machines_grid(run.info), make_versions_grid(run.info), make_datasets_grid(run.info, run.in_full))
    tables = [replace(grid, title=run.add_label(grid.title)) for grid in grids if grid]
    return Origin(run.label, find_command(run), tables, run.info.provenance)


@dataclass(frozen=True)
class PointCell:
    """``beside`` is small, ``title`` the interval, and ``share`` the width of the bar behind it, in per cent."""

    text: str
    beside: str
    title: str
    share: float | None
    is_key: bool


def _make_points_tables(all_series: Sequence[Series]) -> tuple[list[tuple[str, str]], list[list[list[PointCell]]]]:
    """Return the headings of the tables of points, and the rows of each series. A point without a result has only its
    first cells.
    """
    columns = choose_shown(all_series, PAGE)
    unit = find_common_unit(all_series)
    headings = [format_heading(column, unit) for column in columns if column.shown and not column.shown.beside]
    tables = []
    for series in all_series:
        rows = []
        for point in series.points:
            cells: list[PointCell] = []
            for column in columns:
                if column.shown is None or not (point.ok or column.shown.of_failed):
                    continue
                value, text = column.read(series, point), column.format_cell(series, point)
                if column.shown.beside:
                    cells[-1] = replace(cells[-1], beside=text)
                    continue
                title = numbers.format_limits(value) if isinstance(value, Interval) else ""
                share = min(value.mean, 1) * 100 if column.name == "efficiency" and value else None
                cells.append(PointCell(text, "", title, share, column.shown.style == "bold"))
            rows.append(cells)
        tables.append(rows)
    return headings, tables


def _make_detail_charts(details: PageDetails) -> dict[str, list[Chart]]:
    """Return the charts of the sections that PageDetails describes."""
    return {
        "time": make_wide_and_narrow(details.time_parts.chart) if details.time_parts else [],
        "memory": [make_chart(details.memory.name, details.memory.draw)] if details.memory else [],
        "strips": [make_chart(chart.name, chart.draw) for chart in details.strips],
    }


def _group_verdicts_by_model(runs: Sequence[ReportedRun]) -> dict[str, list[Verdict]]:
    """Return the verdicts of every network that a run compared, one for each framework."""
    verdicts: dict[str, dict[Verdict, None]] = {}
    for run in runs:
        for series in run.in_full:
            if series.verdict:
                verdicts.setdefault(run.add_label(find_model_title(series.config.model)), {})[series.verdict] = None
    return {model: list(of_model) for model, of_model in verdicts.items()}


def _make_card(series: Series, colour: str) -> Card:
    """Summarise a series by the largest point that was measured."""
    if not series.good:
        return Card(series, colour, numbers.MISSING, "no result", ())
    best = series.good[-1]
    if best.learning:
        epochs = f"{best.learning.last.epoch} epoch{'' if best.learning.last.epoch == 1 else 's'}"
        unit = f"validation accuracy after {epochs} on {wording.format_devices_and_hosts(best)}"
        return Card(
            series,
            colour,
            numbers.format_accuracy(best.learning.valid_accuracy),
            unit,
            (_describe_training_speed(best),),
        )
    rate = numbers.format_rate(best.samples_per_second.mean if best.samples_per_second else None)
    spread = numbers.format_plus_minus(best.samples_per_second)
    if best.devices > 1 and best.speedup:
        unit = f"on {wording.format_devices_and_hosts(best)}"
        details = (
            f"{numbers.format_efficiency(best.efficiency)} efficiency",
            f"{rate} {best.unit}/s {spread}".rstrip(),
        )
        return Card(series, colour, numbers.format_times(best.speedup), unit, details)
    return Card(
        series, colour, rate, f"{best.unit}/s on {wording.format_devices_and_hosts(best)}", (spread,) if spread else ()
    )


def _describe_training_speed(point: Point) -> str:
    """Return how fast an accuracy was reached, for the line under it."""
    assert point.learning is not None
    target = point.learning.to_accuracy
    parts = [f"{numbers.format_rate(point.samples_per_second.mean)} {point.unit}/s" if point.samples_per_second else ""]
    if point.devices > 1 and point.speedup:
        parts.append(f"{numbers.format_times(point.speedup)} of 1 device")
    parts.append(f"{numbers.format_duration(point.learning.training_seconds.mean)} of training")
    if target and target.seconds:
        parts.append(f"{target.target:g} after {numbers.format_duration(target.seconds.mean)}")
    return ", ".join(part for part in parts if part)


def _make_charts(all_series: Sequence[Series], overlay: Overlay) -> list[Chart]:
    """Return the charts of the page: learning first, then scaling unless there is only one device count."""
    learns = any(series.learns for series in all_series)
    with_published = [*all_series, *overlay.series]
    shown = []
    if learns:
        shown += [
            _make_chart("accuracy", draw_accuracy, all_series),
            _make_chart("time", draw_accuracy_over_time, all_series),
        ]
    images = _make_chart("images", lambda series, frame: overlay.draw_throughput(series, frame), all_series)
    if overlay.series or any(len(series.points) > 1 for series in all_series):
        shown += [
            _make_chart("speedup", charts.draw_speedup, with_published, WIDE),
            _make_chart("speedup-narrow", charts.draw_speedup, with_published, NARROW),
            images,
            _make_chart("efficiency", charts.draw_efficiency, with_published),
        ]
    elif not learns:
        shown.append(images)  # a single device count has a speed, but no speed-up to draw
    return shown


def _make_learning_grids(runs: Sequence[ReportedRun]) -> dict[str, list[Grid]]:
    """Return the tables of training to an accuracy."""
    all_series = [series for run in runs for series in run.in_full]
    return {
        "systems": [grid for run in runs for grid in make_system_tables(run, run.in_full)],
        "devices": learning_tables.make_device_grids(all_series),
        "epochs": learning_tables.make_epoch_grids(all_series),
    }


def _make_chart(
    name: str, draw: Callable[[Sequence[Series], Frame], VegaSpec], all_series: Sequence[Series], size: str = HALF
) -> Chart:
    return make_chart(name, lambda frame: draw(all_series, frame), size)


@cache
def _make_environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainscale.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = _format_value
    environment.filters["label"] = lambda name: str(name).removesuffix("_bytes").replace("_", " ")
    environment.tests["nested"] = _is_nested
    environment.globals["logs"] = _list_logs
    return environment


def _list_logs(point: Point) -> list[str]:
    """Return the log lines of a failed point, one text per failure."""
    return [remove_unprintable("\n".join(failure.tail)) for failure in point.failures if failure.tail]


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list | tuple) and any(map(_is_nested, value)))


def _format_value(value: Any, name: str = "") -> str:
    """Format a value of the provenance; its name states the unit."""
    if isinstance(value, list | tuple):
        parts = [str(part) for part in value]
        counts = [f"{count} × {part}" if count > 1 else part for part, count in Counter(parts).items()]
        return shlex.join(parts) if "command" in name else ", ".join(counts) or numbers.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_bytes"):
        return numbers.format_size(value)
    if isinstance(value, float):
        return f"{value:.4g}" if abs(value) < 1e4 else numbers.format_significant(value)
    return numbers.MISSING if value is None or value == "" else str(value)
