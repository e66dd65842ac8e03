"""What answers are written with: tables, sections, templates, JSON."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from textwrap import fill
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ..analyse.series import Series, find_common_unit, find_host_boundary
from ..analyse.titles import find_model_title
from ..runs import Run
from ..worker.type_aliases import JsonObject
from . import numbers, wording
from .columns import TERMINAL, Column, choose_shown

if TYPE_CHECKING:
    import jinja2

Filter = tuple[str, Callable[..., Any]]  # of jinja2, with its name
_GAP = 2  # spaces between columns in a terminal


@dataclass(frozen=True)
class Grid:
    """``left`` are the columns of text. rich splits a wide grid of numbers."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    left: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.header) for row in self.rows), self.title

    def select(self, columns: Sequence[int]) -> Grid:
        header, *rows = (tuple(row[index] for index in columns) for row in (self.header, *self.rows))
        left = tuple(place for place, index in enumerate(columns) if index in self.left)
        return replace(self, header=header, rows=tuple(rows), left=left)

    def drop_empty_columns(self) -> Grid:
        empty = {"", numbers.MISSING}
        columns = range(len(self.header))
        return self.select([index for index in columns if {row[index] for row in self.rows} - empty])

    def to_markdown(self) -> str:
        """Return the table without its title."""

        def render_line(cells: Sequence[str]) -> str:
            escaped = [escape(cell).replace("|", "\\|") for cell in cells]
            return f"| {' | '.join(escaped)} |"

        rules = ["---" if index in self.left else "---:" for index in range(len(self.header))]
        lines = [render_line(self.header), f"| {' | '.join(rules)} |", *map(render_line, self.rows)]
        note = f"\n{escape(self.note)}\n" if self.note else ""
        return "\n".join(lines) + "\n" + note

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.title, style="bold")
        for part in split_grid(self, options.max_width):
            table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
            for index, heading in enumerate(part.header):
                justify: JustifyMethod = "left" if index in part.left else "right"
                table.add_column(Text(heading, style="dim"), justify=justify)
            for row in part.rows:
                table.add_row(*map(Text, row))
            yield table
        if self.note:
            yield Text(self.note, style="dim")
        yield Text("")


def escape(text: str) -> str:
    """Escape text, so that Markdown shows it as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(").replace("\n", " ")


def make_scaling_grid(series: Series) -> Grid:
    columns = [column for column in choose_shown([series], TERMINAL) if column.name != "efficiency_bar"]
    rows = []
    for point in series.points:
        cells = [column.format_cell(series, point) or numbers.MISSING for column in columns]
        if not point.ok:
            cells[-1] = wording.describe_status_and_reason(point)
        rows.append(tuple(cells))
    headings = [column.format_heading(series.unit) for column in columns]
    header = tuple(" ".join(filter(None, lines)).replace("/ ", "/") for lines in headings)
    return Grid(series.title, header, tuple(rows), left=(len(columns) - 1,))


def render_run(run: Run) -> str:
    """Return what a notebook shows of a run, as Markdown."""
    summary = " · ".join(wording.list_parts("summary", [run], run.series))
    head = f"### {escape(wording.make_title(run.series))}\n\n{escape(summary)}\n"
    return "\n".join([head, *map(render_series, run.series)])


def render_series(series: Series) -> str:
    head = f"#### {escape(series.title)}\n\n{escape(series.headline)}.\n"
    flags = [f"- {points}: {escape(flag)}" for points, flag in wording.group_flags(series)]
    return "\n".join([head, make_scaling_grid(series).to_markdown(), *flags, ""])


def split_grid(grid: Grid, width: int) -> Iterator[Grid]:
    widths = [max(map(cell_len, cells)) + _GAP for cells in zip(grid.header, *grid.rows, strict=True)]
    if sum(widths) <= width or set(grid.left) - {0}:
        yield grid
        return
    parts: list[list[int]] = [[]]
    for index in range(1, len(widths)):
        if parts[-1] and widths[0] + sum(widths[i] for i in parts[-1]) + widths[index] > width:
            parts.append([])
        parts[-1].append(index)
    for part in parts:
        yield grid.select((0, *part))


def select_series_in_full(run: Run) -> list[Series]:
    """Return the series with a trial in full, or all if there is none."""
    in_full = {record.trial.config for record in run.records if not record.trial.short}
    return [series for series in run.series if series.config in in_full] or list(run.series)


@dataclass(frozen=True)
class SeriesTables:
    """The tables of points, whose columns align over all series.

    rich's Table does not serve, because the reason of a failed point runs across the columns.
    """

    all_series: Sequence[Series]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        if not self.all_series:
            yield Text("Nothing was measured.", style="dim")
            return
        unit = find_common_unit(self.all_series)
        columns = choose_shown(self.all_series, TERMINAL)
        headings = {column.name: column.format_heading(unit) for column in columns}
        good = [(series, point) for series in self.all_series for point in series.good]
        widths = {}
        for column in columns:
            cells = [*headings[column.name], *(column.format_cell(*pair) for pair in good)]
            widths[column.name] = max(map(cell_len, cells))
        while len(columns) > 1 and _measure(columns, widths) > options.max_width:
            columns.remove(max(columns, key=lambda column: column.rank))
        table_width = _measure(columns, widths)
        for series in self.all_series:
            yield Text(series.title, style="bold")
            traits = wording.list_parts("traits", series)
            while len(traits) > 1 and cell_len(" · ".join(traits)) > options.max_width:
                traits.pop()  # the last matter least
            yield Text(" · ".join(traits), style="dim", no_wrap=True, overflow="ellipsis")
            for line in (0, 1):
                heads = [(headings[column.name][line], widths[column.name]) for column in columns]
                row = Text(" " * _GAP, no_wrap=True).join(_align(*head) for head in heads)
                row.stylize("dim")
                row.rstrip()
                if row.plain.strip():
                    yield row
            yield Text("─" * table_width, style="dim", no_wrap=True)
            boundary = find_host_boundary(series.points)
            for point in series.points:
                if boundary and point.devices == boundary.first_on_several:
                    yield Text("┄" * table_width, style="dim", no_wrap=True)
                shown = [column for column in columns if point.ok or column.of_failed]
                row = Text(" " * _GAP, no_wrap=True, overflow="ellipsis").join(
                    _align(column.format_cell(series, point), widths[column.name], column.style) for column in shown
                )
                if not point.ok:
                    row.append("  ").append(f"✗ {wording.name_status(point.status)}", "bold red")
                    row.append(f": {point.reason}" if point.reason else "", "red")
                    row.truncate(options.max_width, overflow="ellipsis")
                yield row
            for points_of_flag, flag in wording.group_flags(series):
                line_of_flag = Text.assemble(("⚑ ", "yellow"), (f"{points_of_flag}: ", "bold"), flag)
                yield Padding(line_of_flag, (0, 0, 0, 1), expand=False)
            yield Text("")


def _measure(columns: Sequence[Column], widths: dict[str, int]) -> int:
    return sum(widths[column.name] + _GAP for column in columns) - _GAP


def _align(text: str, width: int, style: str = "") -> Text:
    cell = Text(text, style)
    cell.align("right", width)
    return cell


# ---- sections, templates, JSON


@dataclass(frozen=True)
class Section:
    heading: str
    paragraphs: Sequence[str] = ()
    grid: Grid | None = None
    command: str = ""


def print_sections(sections: Iterable[Section], note: str) -> None:
    console = Console(highlight=False)
    for section in sections:
        if section.grid:
            console.print(section.grid, end="")
        else:
            console.print(Text(section.heading, style="bold"))
        for text in section.paragraphs:
            print(fill(text, console.width, initial_indent="  ", subsequent_indent="    "))
        console.print()
    if note:
        console.print(Text(note, style="dim"))


@cache
def load_template(
    package: str, name: str, filters: tuple[Filter, ...] = (), autoescape: bool = False
) -> jinja2.Template:
    """Return a template; its tags are none of LaTeX or Markdown."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(package),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<<",
        variable_end_string=">>",
        comment_start_string="<#",
        comment_end_string="#>",
        autoescape=autoescape,  # of HTML; the other formats escape in their own way
    )
    environment.filters.update(filters)
    environment.globals |= {"find_model_title": find_model_title, "numbers": numbers, "wording": wording}
    return environment.get_template(name)


def join_lines(text: str) -> str:
    return re.sub(" (?=[.,;:] )", "", re.sub("[ \\n]+", " ", text)).strip()


def split_paragraphs(text: str) -> list[str]:
    return [paragraph for part in text.split("\n\n") if (paragraph := join_lines(part))]


def pick(answer: object, names: str) -> JsonObject:
    """Return attributes of an answer by name."""
    picked = {name: getattr(answer, name) for name in names.split()}
    if config := picked.get("config"):
        picked["config"] = config.to_dict()
    return picked


def encode_json(document: JsonObject) -> str:
    """Return dataclasses, numbers and texts as JSON; infinity becomes null."""
    import msgspec

    def convert(value: Any) -> Any:
        return value.item() if hasattr(value, "item") else str(value)  # numpy's numbers become Python's

    encoded = msgspec.json.encode(document, enc_hook=convert)
    return msgspec.json.format(encoded, indent=2).decode() + "\n"
