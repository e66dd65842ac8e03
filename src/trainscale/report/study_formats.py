"""Writes the blocks of a study as plain text of 80 columns, as Markdown, as LaTeX or as JSON."""

from __future__ import annotations

import json
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from ..analyse.study import Ladder, Study, StudyPoint
from ..worker.type_aliases import JsonObject
from .grid import Grid, escape, render_markdown, split_grid
from .numbers import THIN
from .study_document import Block

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
    **{
        _UNBROKEN: "{}",
        "√": r"\(\surd\)",
        THIN: r"\,",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        '"': r"\textquotedbl{}",
    },
}
_NUMBER = re.compile(r"(\d[\d,]*(?:\.\d+)?)(?: \+- (\d[\d,]*(?:\.\d+)?))?( %|x)?")
_PREAMBLE = r"""% Needs: \usepackage[T1]{fontenc}, \usepackage{booktabs}, \usepackage{siunitx}
\sisetup{separate-uncertainty=true}
"""


def convert_to_ascii(text: str, space: str = " ") -> str:
    """Return the text in ASCII, with commas between groups of three digits. Other characters become question marks.

    ``space`` stands where no line may be broken.
    """
    text = _GROUPED.sub(",", text).replace(THIN, space)
    for character, replacement in _ASCII.items():
        text = text.replace(character, replacement)
    return text.encode("ascii", "replace").decode()


# ---- text


def render_study_text(documents: Iterable[Sequence[Block]]) -> str:
    return "\n\n".join("\n\n".join(_render_text_blocks(blocks)) for blocks in documents) + "\n"


def _render_text_blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        lines = textwrap.wrap(convert_to_ascii(block.heading), COLUMNS)
        yield "\n".join([*lines, ("-" if number else "=") * max(map(len, lines))])
        if block.grid:
            yield "\n\n".join(
                _render_text_table(part) for part in split_grid(_convert_grid_to_ascii(block.grid), COLUMNS)
            )
        if block.paragraphs:
            yield "\n".join(map(_fill, block.paragraphs))
        if block.command:
            yield _wrap_command(block.command)


def _fill(text: str) -> str:
    """Return a paragraph in lines that keep a number and its unit together."""
    filled = textwrap.fill(convert_to_ascii(text, _UNBROKEN), COLUMNS, break_on_hyphens=False)
    return filled.replace(_UNBROKEN, " ")


def _convert_grid_to_ascii(grid: Grid) -> Grid:
    rows = tuple(tuple(map(convert_to_ascii, row)) for row in grid.rows)
    return Grid(convert_to_ascii(grid.title), tuple(map(convert_to_ascii, grid.header)), rows, left=grid.left)


def _render_text_table(grid: Grid) -> str:
    widths = [max(map(len, cells)) for cells in zip(grid.header, *grid.rows, strict=True)]

    def line(cells: Sequence[str]) -> str:
        aligned = [
            cell.ljust(width) if index in grid.left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return _GAP.join(aligned).rstrip()

    return "\n".join([line(grid.header), line(["-" * width for width in widths]), *map(line, grid.rows)])


def _wrap_command(command: str) -> str:
    """Return a command in lines that a shell joins."""
    lines = [""]
    for word in map(shlex.quote, shlex.split(command)):
        if lines[-1] and len(lines[-1]) + len(word) + 7 > COLUMNS:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}" if lines[-1] else word
    return " \\\n".join(f"{'    ' if number else '  '}{line}" for number, line in enumerate(lines))


# ---- Markdown


def render_study_markdown(documents: Iterable[Sequence[Block]]) -> str:
    return "\n".join("\n".join(_render_markdown_blocks(blocks)) for blocks in documents)


def _render_markdown_blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        yield f"{'##' if number else '#'} {escape(block.heading)}\n"
        if block.grid:
            yield render_markdown(block.grid)
        if len(block.paragraphs) > 1:
            yield "".join(f"- {escape(text)}\n" for text in block.paragraphs)
        elif block.paragraphs:
            yield f"{escape(block.paragraphs[0])}\n"
        if block.command:
            yield f"```sh\n{block.command}\n```\n"


# ---- LaTeX


def render_study_latex(documents: Iterable[Sequence[Block]]) -> str:
    """Return sections for a document. What its preamble must load is in the first line."""
    return _PREAMBLE + "\n".join("\n".join(_render_latex_blocks(blocks)) for blocks in documents)


def escape_latex(text: str) -> str:
    """Escape text. Characters that LaTeX may not know become question marks."""
    text = _GROUPED.sub(",", text).replace("--", f"-{_UNBROKEN}-")  # two hyphens would become a dash
    escaped = "".join(_LATEX.get(character, character) for character in text)
    return escaped.encode("ascii", "replace").decode()


def _render_latex_blocks(blocks: Sequence[Block]) -> Iterator[str]:
    for number, block in enumerate(blocks):
        yield f"\\{'subsection' if number else 'section'}*{{{escape_latex(block.heading)}}}"
        if block.grid:
            yield _render_latex_table(block.grid)
        yield from (f"{escape_latex(text)}\n" for text in block.paragraphs)
        if block.command:
            yield f"\\begin{{verbatim}}\n{_wrap_command(block.command)}\n\\end{{verbatim}}\n"


def _render_latex_table(grid: Grid) -> str:
    columns = "".join("l" if index in grid.left else "r" for index in range(len(grid.header)))
    lines = [
        r"{\centering\setlength{\tabcolsep}{4pt}%",  # not a center environment, which may begin on the next page
        f"\\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        " & ".join(map(escape_latex, grid.header)) + r" \\",
        r"\midrule",
        *(" & ".join(map(_render_latex_cell, row)) + r" \\" for row in grid.rows),
        r"\bottomrule",
        r"\end{tabular}\par}",
        r"\medskip",
    ]
    return "\n".join(lines) + "\n"


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


# ---- JSON


def render_study_json(studies: Sequence[Study], documents: Sequence[Sequence[Block]], command: str) -> str:
    """Return full precision. ``sections`` have the sentences of the other formats."""
    document = {
        "schema": SCHEMA,
        "studies": [_encode_study(study, blocks) for study, blocks in zip(studies, documents, strict=True)],
        "command_for_missing": command if any(study.missing for study in studies) else None,
    }
    return json.dumps(document, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def _encode_study(study: Study, blocks: Sequence[Block]) -> JsonObject:
    return {
        "title": blocks[0].heading,
        "devices": study.devices,
        "knee_efficiency": study.efficiency,
        "training": asdict(study.training) if study.training else None,
        "energy_sources": list(study.energy_sources),
        "not_measured": list(study.missing),
        "ladders": [_encode_ladder(ladder) for ladder in study.ladders],
        "sections": {block.heading: list(block.paragraphs) for block in blocks},
    }


def _encode_ladder(ladder: Ladder) -> JsonObject:
    return {
        "series": ladder.series.title,
        "scaling": ladder.scaling,
        "unit": ladder.series.unit,
        "config": ladder.series.config.to_dict(),
        "knee": asdict(ladder.knee) if ladder.knee else None,
        "points": [_encode_point(point) for point in ladder.points],
        "predicted": asdict(ladder.predicted) if ladder.predicted else None,
    }


def _encode_point(study_point: StudyPoint) -> JsonObject:
    point = study_point.point
    intervals = {
        "samples_per_second": point.samples_per_second,
        "speedup": point.speedup,
        "efficiency": point.efficiency,
        "joules_per_sample": study_point.joules_per_sample,
        "cost": study_point.cost,
    }
    return {
        "devices": point.devices,
        "nodes": point.hosts,
        "batch_per_device": point.batch_per_device,
        "global_batch": point.global_batch,
        "repeats": point.repeats,
        "status": point.status,
        "flags": list(point.flags),
        "window_seconds": study_point.window_seconds,
        **{name: asdict(value) if value else None for name, value in intervals.items()},
    }
