"""A study for a proposal, as text, Markdown, LaTeX and JSON."""

import re
import shlex
import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...analyse.statistics import Interval
from ...report import numbers, run_tables, wording
from ...report.columns import COLUMN
from ...report.documents import Grid, Section, encode_json, escape, load_template, pick, split_grid
from ...report.numbers import THIN, format_integer, format_number
from ...report.wording import format_device_count
from ...spec.config import WEAK
from ..predict import describe_held_out, explain_method
from .study import Study, find_window_seconds, make_measuring_command

COLUMNS = 80
SCHEMA = 1
_UNBROKEN = "\x1f"  # an ASCII character that no text has; textwrap does not break a line there
# Forms of funding bodies may lose anything but ASCII.
_ASCII = {"±": "+-", "×": "x", "–": "-", "−": "-", "·": "-", "…": "...", "√": "sqrt ", "°": " deg"}
_LATEX = {
    **{"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"},
    **{character: f"\\{character}" for character in "&%$#_{}"},
    **{"±": r"\(\pm\)", "×": r"\(\times\)", "–": "--", "−": r"\(-\)", "·": r"\(\cdot\)", "…": r"\ldots{}"},
    **{_UNBROKEN: "{}", "√": r"\(\surd\)", THIN: r"\,"},
    **{"<": r"\textless{}", ">": r"\textgreater{}", '"': r"\textquotedbl{}"},
}
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?: \+- (\d[\d,]*(?:\.\d+)?))?( %|x)?")
_ENERGY_SOURCES = {
    "nvml": "of the GPUs, by their own counters (NVML), without the rest of the hosts",
    "rapl": "of the processors of all hosts, by their own counters (RAPL), with whatever else ran there",
}


def make_sections(study: Study, command: str) -> Iterator[Section]:
    run, grids, costs = study.info, {}, []
    for ladder in study.ladders:
        batch = {"batch_per_device": "batch/device"}
        if ladder.scaling == WEAK:
            batch = {"global_batch": "global batch"}
        headings = {
            "devices": "devices",
            "hosts": "nodes",
            **batch,
            "samples_per_second": f"{ladder.series.unit}/s",
            "plus_minus": "±",
            "speedup": "speed-up",
            "efficiency": "efficiency",
        }
        rows = []
        for point in ladder.series.points:
            cells = (COLUMN[name].format_cell(ladder.series, point) for name in headings)
            rows.append(tuple(cell.removeprefix("±") or numbers.MISSING for cell in cells))
            if cost := study.compute_cost(point):
                costs.append(
                    (
                        ladder.scaling,
                        format_integer(point.devices),
                        format_integer(point.hosts),
                        format_number(cost.hours.mean, 3),
                        numbers.format_plus_minus(cost.hours).removeprefix("±") or numbers.MISSING,
                        format_number(cost.node_hours.mean, 3),
                        format_number(cost.device_hours.mean, 3),
                        format_number(cost.kilowatt_hours.mean if cost.kilowatt_hours else None, 3),
                    )
                )
        grids[ladder.heading] = Grid(ladder.heading, tuple(headings.values()), tuple(rows), left=())
    header = ("scaling", "devices", "nodes", "hours", "±", "node-hours", "device-hours", "kWh")
    grids["Cost of the training"] = Grid("Cost of the training", header, tuple(costs))
    commands = {f"{scaling.capitalize()} scaling": command for scaling in study.missing}
    points = [point for ladder in study.ladders for point in ladder.series.points]
    repeats = sorted({point.repeats for point in points if point.ok})
    often = " to ".join(map(str, sorted({repeats[0], repeats[-1]})))
    windows = [seconds for point in points if (seconds := find_window_seconds(point))]
    text = load_template(__package__, "sections.j2").render(
        study=study,
        run=run,
        provenance=run.read_provenance(),
        spec=run.read_spec(),
        most="at most " if run.is_sequential else "",
        often=f"{often} time{'' if repeats == [1] else 's'}",
        windows=" to ".join(dict.fromkeys(map(numbers.format_duration, (min(windows), max(windows))))),
        run_tables=run_tables,
        with_error=format_with_error,
        with_limits=numbers.format_with_limits,
        describe_energy=_describe_energy,
        describe_held_out=describe_held_out,
        explain_method=explain_method,
    )
    for block in re.split("^# ", text, flags=re.MULTILINE)[1:]:
        parts = [part.strip(" \n") for part in re.split(r"\n *\n", block)]
        heading, *paragraphs = (re.sub("[ \\n]+", " ", part) for part in parts)
        yield Section(heading, tuple(filter(None, paragraphs)), grids.get(heading), commands.get(heading, ""))


def _describe_energy(study: Study) -> str:
    """Return the energy at the size asked for, or the last."""
    measured = []
    for ladder in study.ladders:
        for point in ladder.series.points:
            if energy := study.measure_energy(point):
                value = f"{format_with_error(energy)} J/{study.unit.removesuffix('s')}"
                where = f"on {format_device_count(point.devices)} ({ladder.scaling} scaling)"
                measured.append((point.devices, f"{value} {where}"))
    if not measured:
        return "Not measured: no energy counter of these devices could be read."
    what = " and ".join(_ENERGY_SOURCES.get(source, source) for source in study.energy_sources)
    values = [text for devices, text in measured if devices == study.devices] or [measured[-1][1]]
    return f"{wording.join_names(values)}. It is the energy {what}, in the measured window."


# ---- numbers


def format_with_error(interval: Interval) -> str:
    """Format with the decimals of the error: 24.61 ± 0.12."""
    half = interval.half_width
    if not half:
        return format_number(interval.mean, 3)
    error = format_number(half, 2)
    decimals = len(error.partition(".")[2])
    return f"{interval.mean:,.{decimals}f}{THIN}±{THIN}{error}"


# ---- formats


def render_studies(studies: Sequence[Study], name: str) -> str:
    command = make_measuring_command(studies[0].info)
    documents = [list(make_sections(study, command)) for study in studies]
    if name != "json":
        return render_document(documents, name)
    encoded = []
    for study, sections in zip(studies, documents, strict=True):
        ladders = []
        for ladder in study.ladders:
            names = "devices batch_per_device global_batch repeats status flags samples_per_second speedup efficiency"
            points = [
                {
                    **pick(point, names),
                    "nodes": point.hosts,
                    "window_seconds": find_window_seconds(point),
                    "joules_per_sample": study.measure_energy(point),
                    "cost": study.compute_cost(point),
                }
                for point in ladder.series.points
            ]
            of_series = {"series": ladder.series.title, **pick(ladder.series, "unit config")}
            ladders.append({**of_series, **pick(ladder, "scaling knee predicted"), "points": points})
        encoded.append(
            {
                **pick(study, "devices training energy_sources"),
                "title": sections[0].heading,
                "knee_efficiency": study.efficiency,
                "not_measured": study.missing,
                "ladders": ladders,
                "sections": {section.heading: section.paragraphs for section in sections},
            }
        )
    missing = command if any(study.missing for study in studies) else None
    return encode_json({"schema": SCHEMA, "studies": encoded, "command_for_missing": missing})


def render_document(documents: Sequence[Sequence[Section]], name: str) -> str:
    template = load_template(__package__, f"study.{name}.j2", tuple(_FILTERS[name].items()))
    return template.render(studies=documents).rstrip() + "\n"


def convert_to_ascii(text: str, space: str = " ") -> str:
    """Return ASCII, with ``space`` where no line may break."""
    text = text.replace(THIN, space)
    for character, replacement in _ASCII.items():
        text = text.replace(character, replacement)
    return text.encode("ascii", "replace").decode()


def _fill(text: str) -> str:
    """Return lines that keep a number and its unit together."""
    text = convert_to_ascii(text, _UNBROKEN)
    return textwrap.fill(text, COLUMNS, break_on_hyphens=False).replace(_UNBROKEN, " ")


def _render_tables(grid: Grid) -> str:
    header, *rows = (tuple(map(convert_to_ascii, row)) for row in (grid.header, *grid.rows))
    tables = []
    for part in split_grid(Grid(grid.title, header, tuple(rows), left=grid.left), COLUMNS):
        widths = [max(map(len, cells)) for cells in zip(part.header, *part.rows, strict=True)]
        lines = [
            "  ".join(
                cell.ljust(width) if index in part.left else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (part.header, ["-" * width for width in widths], *part.rows)
        ]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _wrap_command(command: str) -> str:
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1] and len(lines[-1]) + len(word) + 7 > COLUMNS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return " \\\n".join(f"{'    ' if number else '  '}{line}" for number, line in enumerate(lines))


def escape_latex(text: str) -> str:
    text = text.replace("--", f"-{_UNBROKEN}-")  # two hyphens would become a dash
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return escaped.encode("ascii", "replace").decode()


def _render_latex_cell(text: str) -> str:
    """Return a number as siunitx takes it; other text is escaped."""
    match = _NUMBER.fullmatch(convert_to_ascii(text))
    if match is None:
        return escape_latex(text)
    value, error, unit = (part.replace(",", "") if part else "" for part in match.groups())
    number = f"{value} +- {error}" if error else value
    if unit == " %":
        return f"\\SI{{{number}}}{{\\percent}}"
    return f"\\num{{{number}}}" + (r"\(\times\)" if unit else "")


_FILTERS: dict[str, dict[str, Callable[..., Any]]] = {
    "text": {"tables": _render_tables, "filled": _fill, "shell_lines": _wrap_command},
    "markdown": {"escape": escape, "table": Grid.to_markdown},
    "latex": {"escape": escape_latex, "cell": _render_latex_cell, "shell_lines": _wrap_command},
}
