"""report.html, which works offline; report.md, its tables."""

import json
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from markupsafe import Markup

from ..analyse.series import Interval, Series, find_common_unit, find_host_boundary
from ..analyse.titles import find_model_title
from ..record.decoding import remove_unprintable
from ..record.parity import Verdict
from ..runs import Run
from ..spec.config import STRONG
from . import numbers, run_tables
from .charts import FURTHER, LEADING, STRIPS, TIME, list_charts
from .columns import PAGE, choose_shown
from .details import PageDetails, choose_charted
from .documents import Grid, escape, load_template, make_scaling_grid, select_series_in_full
from .drawing import IDEAL, ChartsUnavailable, Frame, choose_styles, load_vega_bundle, to_svg
from .options import Overlay

# The CSS classes of the figures.
_FRAMES = {"wide": Frame(960, 430), "half": Frame(430, 320), "narrow": Frame(310, 270)}


def render_report_html(runs: Sequence[Run], overlay: Overlay, details: PageDetails) -> str:
    in_full = [select_series_in_full(run) for run in runs]
    all_series = [series for of_run in in_full for series in of_run]
    columns = choose_shown(all_series, PAGE)
    charted = choose_charted(runs)
    styles = zip(charted, choose_styles(charted), strict=True)
    colours = {series.title: colour for series, (colour, _) in styles}
    figures: dict[str, list[dict[str, Any]]] = {LEADING: [], FURTHER: [], TIME: [], STRIPS: []}
    for chart in (*list_charts(charted, overlay), *details.charts):
        if chart.section:
            sizes = {"half": chart.name}
            if chart.is_wide:
                sizes = {"wide": chart.name, "narrow": f"{chart.name}-narrow"}
            for size, name in sizes.items():
                spec = chart.draw(_FRAMES[size])
                text = json.dumps(spec, ensure_ascii=False, separators=(",", ":"))
                text = text.replace("<", "\\u003c")  # which could end the script element
                try:
                    static = Markup(to_svg(spec, standalone=False))
                except ChartsUnavailable as error:
                    static = Markup("<p>There is no picture of this chart: {}.</p>").format(str(error))
                figure = {"name": name, "size": size, "title": spec["title"]["text"], "static": static}
                figures[chart.section].append({**figure, "spec": Markup(text)})
    verdicts: dict[str, dict[Verdict, None]] = {}  # of the frameworks, by network
    origins = []
    for run, of_run in zip(runs, in_full, strict=True):
        for series in of_run:
            if series.verdict:
                model = run.add_label(find_model_title(series.config.model))
                verdicts.setdefault(model, {})[series.verdict] = None
        grids = [run_tables.make_machines_grid(run.info), run_tables.make_versions_grid(run.info)]
        grids.append(run_tables.make_datasets_grid(run.info, of_run))
        origins.append((run, [replace(grid, title=run.add_label(grid.title)) for grid in grids if grid]))
    tables = []
    for series in all_series:
        tables.append((series, colours.get(series.title, IDEAL), find_host_boundary(series.points)))
    try:
        vega = load_vega_bundle()
    except ChartsUnavailable:
        vega = ""  # the page says why there are no pictures
    return load_template(__package__, "report.html.j2", _FILTERS, autoescape=True).render(
        _make_context(runs, all_series, overlay, details),
        cards=[(series, colours[series.title]) for series in charted],
        figures=figures,
        strong=[series.title for series in charted if series.config.scaling == STRONG],
        tables=tables,
        headed=[column for column in columns if not column.beside],
        small={column.beside: column for column in columns},
        verdicts=verdicts,
        origins=origins,
        vega=Markup(vega),
    )


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
        return f"{value:.4g}" if abs(value) < 1e4 else numbers.format_number(value)
    return numbers.MISSING if value is None or value == "" else str(value)


_FILTERS = (
    ("label", lambda name: str(name).removesuffix("_bytes").replace("_", " ")),
    ("limits", lambda value: numbers.format_limits(value) if isinstance(value, Interval) else ""),
    ("nested", _is_nested),
    ("plain", _format_value),
    ("printable", remove_unprintable),
)


def render_report_md(runs: Sequence[Run], overlay: Overlay, details: PageDetails) -> str:
    filters = (("escape", escape), ("points", make_scaling_grid), ("table", Grid.to_markdown))
    page = _make_context(runs, [series for run in runs for series in run.series], overlay, details)
    text = load_template(__package__, "report.md.j2", filters).render(page, run_tables=run_tables)
    return text.rstrip() + "\n"


def _make_context(
    runs: Sequence[Run], all_series: Sequence[Series], overlay: Overlay, details: PageDetails
) -> dict[str, Any]:
    """Return what both templates show."""
    return {
        "runs": runs,
        "all_series": all_series,
        "overlay": overlay,
        "details": details,
        "differences": run_tables.make_difference_grid(runs) if len(runs) > 1 else None,
        "devices": run_tables.make_device_grids(all_series),
        "epochs": run_tables.make_epoch_grids(all_series),
        "systems": [grid for run in runs for grid in run_tables.make_system_grids(run)],
        "unit": find_common_unit(all_series),
    }
