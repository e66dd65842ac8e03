"""report.html: one file that a person understands at a glance, offline, with charts that answer the mouse.

This module decides what the page says; templates/report.html.j2 decides how it looks. The charts are in the
page twice: as still pictures, which need no script, and as specs that the embedded Vega brings to life.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import vl_convert
from markupsafe import Markup

from ..analyse.boundary import host_boundary
from ..analyse.series import Point, Series, common_unit
from ..analyse.text import printable
from ..analyse.titles import model_title
from ..record.parity import Verdict
from ..record.run import RunInfo
from . import charts, drawing, learning_tables, numbers, palette, wording
from .accuracy_charts import accuracy_chart, accuracy_over_time_chart
from .definitions import definitions
from .drawing import Frame, Spec
from .grid import Grid
from .provenance_tables import datasets_grid, machines_grid

WIDE, HALF = Frame(960, 430), Frame(430, 320)


@dataclass(frozen=True)
class Chart:
    """A chart in the page: ``still`` is the SVG shown until, or instead of, the interactive one."""

    name: str
    still: Markup
    spec: Markup
    wide: bool


@dataclass(frozen=True)
class Card:
    """A series at a glance: its one number, what it counts, and what else to know."""

    series: Series
    colour: str
    number: str
    unit: str
    detail: str


def report_html(run: RunInfo, series: Sequence[Series]) -> str:
    template = _environment().get_template("report.html.j2")
    colours = [style.colour for style in palette.styles(series)]
    return template.render(
        title=wording.title(series),
        summary=wording.summary(run, series),
        cards=[_card(one, colour) for one, colour in zip(series, colours, strict=True)],
        charts=_charts(series),
        colours=colours,
        series=series,
        proofs=_proofs(series),
        learning=_learning(run, series) if any(one.learns for one in series) else None,
        places=[grid for grid in (machines_grid(run), datasets_grid(run, series)) if grid],
        has_hosts=any(point.hosts > 1 for one in series for point in one.points),
        boundaries=[host_boundary(one.points) for one in series],
        # A local series is its own measure: a column of 100 % that says nothing.
        has_local=any(
            point.efficiency_versus_local for one in series if one.config.strategy != "local" for point in one.points
        ),
        has_accuracy=any(one.learns for one in series),
        has_overhead=any(point.input_overhead for one in series for point in one.points),
        has_device_memory=any(point.device_peak_bytes is not None for one in series for point in one.points),
        provenance=run.provenance,
        definitions=definitions(common_unit(series)),
        unit=common_unit(series),
        numbers=numbers,
        wording=wording,
        vega=_vega(),
    )


def _proofs(series: Sequence[Series]) -> dict[str, list[Verdict]]:
    """For every network that was compared, its verdicts, one for each framework."""
    found: dict[str, dict[Verdict, None]] = {}
    for one in series:
        if one.parity:
            found.setdefault(model_title(one.config.model), {})[one.parity] = None
    return {model: list(verdicts) for model, verdicts in found.items()}


def _card(series: Series, colour: str) -> Card:
    """The largest point that was measured speaks for the series."""
    if not series.good:
        return Card(series, colour, numbers.MISSING, "no result", "")
    best = series.good[-1]
    if best.learning:
        many = "" if best.learning.last.epoch == 1 else "s"
        unit = f"validation accuracy after {best.learning.last.epoch} epoch{many} on {wording.devices_and_hosts(best)}"
        return Card(series, colour, numbers.accuracy(best.learning.valid_accuracy), unit, _learnt(best))
    rate = numbers.rate(best.samples_per_second.mean if best.samples_per_second else None)
    spread = numbers.plus_minus(best.samples_per_second)
    if best.devices > 1 and best.speedup:
        unit = f"on {wording.devices_and_hosts(best)}"
        detail = f"{numbers.efficiency(best.efficiency)} efficiency, {rate} {best.unit}/s {spread}"
        return Card(series, colour, numbers.times(best.speedup), unit, detail)
    return Card(series, colour, rate, f"{best.unit}/s on {wording.devices_and_hosts(best)}", spread)


def _learnt(point: Point) -> str:
    """Under the accuracy of a card: how fast it came."""
    assert point.learning is not None
    found = point.learning.to_accuracy
    parts = [f"{numbers.rate(point.samples_per_second.mean)} {point.unit}/s" if point.samples_per_second else ""]
    if point.devices > 1 and point.speedup:
        parts.append(f"{numbers.times(point.speedup)} of 1 device")
    parts.append(f"{numbers.duration(point.learning.training_seconds.mean)} of training")
    if found and found.seconds:
        parts.append(f"{found.target:g} after {numbers.duration(found.seconds.mean)}")
    return ", ".join(part for part in parts if part)


def _charts(series: Sequence[Series]) -> list[Chart]:
    """Where a run learns, how it does comes first; and where it has one device count only, nothing scales."""
    learns = any(one.learns for one in series)
    shown = []
    if learns:
        shown += [
            _chart("accuracy", accuracy_chart(series, HALF), wide=False),
            _chart("time", accuracy_over_time_chart(series, HALF), wide=False),
        ]
    if not learns or any(len(one.points) > 1 for one in series):
        shown += [
            _chart("speedup", charts.speedup_chart(series, WIDE), wide=True),
            _chart("images", charts.throughput_chart(series, HALF), wide=False),
            _chart("efficiency", charts.efficiency_chart(series, HALF), wide=False),
        ]
    return shown


def _learning(run: RunInfo, series: Sequence[Series]) -> dict[str, list[Grid]]:
    """The tables of training to an accuracy."""
    return {
        "systems": learning_tables.system_grids(run, series),
        "devices": learning_tables.device_grids(series),
        "epochs": learning_tables.epoch_grids(series),
    }


def _chart(name: str, spec: Spec, *, wide: bool) -> Chart:
    # "<" is the one character that could end the script element which carries the JSON.
    text = json.dumps(spec, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
    return Chart(name, Markup(drawing.to_svg(spec, standalone=False)), Markup(text), wide)


@cache
def _vega() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as vl-convert carries them: 0.9 MB, nothing is downloaded."""
    return Markup(vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script"))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainscale.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plain"] = _plain
    environment.filters["label"] = lambda name: str(name).removesuffix("_bytes").replace("_", " ")
    environment.tests["nested"] = _is_nested
    environment.globals["logs"] = _logs
    return environment


def _logs(point: Point) -> list[str]:
    """The log lines behind a failed point, one text per failure."""
    return [printable("\n".join(failure.tail)) for failure in point.failures if failure.tail]


def _is_nested(value: Any) -> bool:
    return isinstance(value, dict) or (isinstance(value, list | tuple) and any(map(_is_nested, value)))


def _plain(value: Any, name: str = "") -> str:
    """A leaf of the provenance as text, by what its name says it is."""
    if isinstance(value, list | tuple):
        parts = [str(part) for part in value]
        return shlex.join(parts) if "command" in name else ", ".join(parts) or numbers.MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_bytes"):
        return numbers.size(value)
    if isinstance(value, float):
        return numbers.significant(value)
    return numbers.MISSING if value is None or value == "" else str(value)
