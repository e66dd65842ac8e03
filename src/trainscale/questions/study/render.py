"""A study as plain text of 80 columns, as Markdown or as LaTeX, by a template each, or as JSON."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ...report.numbers import THIN
from ...report.table import Grid, escape, render_markdown, split_grid
from ...worker.type_aliases import JsonObject
from .document import Section, make_sections
from .study import Ladder, Study, find_window_seconds, make_measuring_command

COLUMNS = 80
SCHEMA = 1
_GAP = "  "
_UNBROKEN = "\x1f"  # an ASCII character that no text has; textwrap does not break a line there
_GROUPED = re.compile(rf"(?<=\d){THIN}(?=\d\d\d)")
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


def render_studies(studies: Sequence[Study], name: str) -> str:
    """Return studies of one run in a format of FORMATS."""
    command = make_measuring_command(studies[0].info)
    documents = [list(make_sections(study, command)) for study in studies]
    if name == "json":
        document = {
            "schema": SCHEMA,
            "studies": [_encode_study(study, sections) for study, sections in zip(studies, documents, strict=True)],
            "command_for_missing": command if any(study.missing for study in studies) else None,
        }
        return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    return render_document(documents, name)


def render_document(documents: Sequence[Sequence[Section]], name: str) -> str:
    """Return the sections of studies as text, Markdown or LaTeX."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("trainscale.questions.study"),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        autoescape=False,  # each format escapes in its own way
    )
    environment.filters.update(_FILTERS[name])
    return environment.get_template(f"study.{name}.j2").render(studies=documents).rstrip() + "\n"


def convert_to_ascii(text: str, space: str = " ") -> str:
    """Return the text in ASCII, with commas between groups of three digits. Other characters become question marks.

    ``space`` stands where no line may be broken.
    """
    text = _GROUPED.sub(",", text).replace(THIN, space)
    for character, replacement in _ASCII.items():
        text = text.replace(character, replacement)
    return text.encode("ascii", "replace").decode()


def _underline(heading: str, character: str) -> str:
    lines = textwrap.wrap(convert_to_ascii(heading), COLUMNS)
    return "\n".join([*lines, character * max(map(len, lines))])


def _fill(text: str) -> str:
    """Return a paragraph in lines that keep a number and its unit together."""
    filled = textwrap.fill(convert_to_ascii(text, _UNBROKEN), COLUMNS, break_on_hyphens=False)
    return filled.replace(_UNBROKEN, " ")


def _render_tables(grid: Grid) -> str:
    """Return a table; one that is too wide becomes several, each with the first column."""
    header, *rows = (tuple(map(convert_to_ascii, row)) for row in (grid.header, *grid.rows))
    tables = []
    for part in split_grid(Grid(grid.title, header, tuple(rows), left=grid.left), COLUMNS):
        widths = [max(map(len, cells)) for cells in zip(part.header, *part.rows, strict=True)]
        lines = [
            _GAP.join(
                cell.ljust(width) if index in part.left else cell.rjust(width)
                for index, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (part.header, ["-" * width for width in widths], *part.rows)
        ]
        tables.append("\n".join(lines))
    return "\n\n".join(tables)


def _wrap_command(command: str) -> str:
    """Return a command in lines that a shell joins."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1] and len(lines[-1]) + len(word) + 7 > COLUMNS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return " \\\n".join(f"{'    ' if number else '  '}{line}" for number, line in enumerate(lines))


def escape_latex(text: str) -> str:
    """Escape text. Characters that LaTeX may not know become question marks."""
    text = _GROUPED.sub(",", text).replace("--", f"-{_UNBROKEN}-")  # two hyphens would become a dash
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return escaped.encode("ascii", "replace").decode()


def _render_latex_cell(text: str) -> str:
    """Return a number, with its error and unit, as siunitx takes it; other text is escaped."""
    match = _NUMBER.fullmatch(convert_to_ascii(text))
    if match is None:
        return escape_latex(text)
    value, error, unit = (part.replace(",", "") if part else "" for part in match.groups())
    number = f"{value} +- {error}" if error else value
    if unit == " %":
        return f"\\SI{{{number}}}{{\\percent}}"
    return f"\\num{{{number}}}" + (r"\(\times\)" if unit else "")


def _align_latex(grid: Grid) -> str:
    return "".join("l" if index in grid.left else "r" for index in range(len(grid.header)))


_FILTERS: dict[str, dict[str, Callable[..., Any]]] = {
    "text": {"underlined": _underline, "tables": _render_tables, "filled": _fill, "shell_lines": _wrap_command},
    "markdown": {"escape": escape, "table": render_markdown},
    "latex": {
        "escape": escape_latex,
        "cell": _render_latex_cell,
        "alignment": _align_latex,
        "shell_lines": _wrap_command,
    },
}


def _encode_study(study: Study, sections: Sequence[Section]) -> JsonObject:
    """Return full precision. ``sections`` have the sentences of the other formats."""
    return {
        "title": sections[0].heading,
        "devices": study.devices,
        "knee_efficiency": study.efficiency,
        "training": asdict(study.training) if study.training else None,
        "energy_sources": list(study.energy_sources),
        "not_measured": list(study.missing),
        "ladders": [_encode_ladder(study, ladder) for ladder in study.ladders],
        "sections": {section.heading: list(section.paragraphs) for section in sections},
    }


def _encode_ladder(study: Study, ladder: Ladder) -> JsonObject:
    points = []
    for point in ladder.series.points:
        values = {
            "samples_per_second": point.samples_per_second,
            "speedup": point.speedup,
            "efficiency": point.efficiency,
            "joules_per_sample": study.measure_energy(point),
            "cost": study.compute_cost(point),
        }
        points.append(
            {
                "devices": point.devices,
                "nodes": point.hosts,
                "batch_per_device": point.batch_per_device,
                "global_batch": point.global_batch,
                "repeats": point.repeats,
                "status": point.status,
                "flags": list(point.flags),
                "window_seconds": find_window_seconds(point),
                **{name: asdict(value) if value else None for name, value in values.items()},
            }
        )
    return {
        "series": ladder.series.title,
        "scaling": ladder.scaling,
        "unit": ladder.series.unit,
        "config": ladder.series.config.to_dict(),
        "knee": asdict(ladder.knee) if ladder.knee else None,
        "points": points,
        "predicted": asdict(ladder.predicted) if ladder.predicted else None,
    }
