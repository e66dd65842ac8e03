"""A table as header and rows of text, and its forms in Markdown and in a terminal. The page's template shows it too.

learning_tables.py, provenance_tables.py and table.py make such tables.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

_GAP = 2  # spaces between columns in a terminal


@dataclass(frozen=True)
class Grid:
    """``left`` are the indices of columns with text, which is aligned left; numbers are aligned right. Every row has as
    many cells as the header. ``note`` explains the numbers.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    left: tuple[int, ...] = (0,)

    def __post_init__(self) -> None:
        assert all(len(row) == len(self.header) for row in self.rows), self.title


def render_markdown(grid: Grid) -> str:
    """Return the table without its title, which is a heading of the document."""
    rules = ["---" if index in grid.left else "---:" for index in range(len(grid.header))]
    lines = [_render_line(grid.header), f"| {' | '.join(rules)} |", *map(_render_line, grid.rows)]
    note = f"\n{escape(grid.note)}\n" if grid.note else ""
    return "\n".join(lines) + "\n" + note


def escape(text: str) -> str:
    """Escape text that a user wrote (names of models, messages), so that Markdown shows it as it is."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(").replace("\n", " ")


def _render_line(cells: Sequence[str]) -> str:
    escaped = [escape(cell).replace("|", "\\|") for cell in cells]
    return f"| {' | '.join(escaped)} |"


class TerminalGrid:
    """A grid for rich. A grid of numbers that is wider than the terminal is split into several, each with the first
    column; in a grid with more columns of text, the text is wrapped.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text(self.grid.title, style="bold")
        for part in split_grid(self.grid, options.max_width):
            table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
            for index, heading in enumerate(part.header):
                table.add_column(Text(heading, style="dim"), justify="left" if index in part.left else "right")
            for row in part.rows:
                table.add_row(*map(Text, row))
            yield table
        if self.grid.note:
            yield Text(self.grid.note, style="dim")
        yield Text("")


def split_grid(grid: Grid, width: int) -> Iterator[Grid]:
    """Yield the grid in parts that fit, each with all rows."""
    widths = [max(map(cell_len, cells)) + _GAP for cells in zip(grid.header, *grid.rows, strict=True)]
    first, others = widths[0], range(1, len(widths))
    if sum(widths) <= width or set(grid.left) - {0}:
        yield grid
        return
    indices: list[int] = []
    for index in others:
        if indices and first + sum(widths[i] for i in indices) + widths[index] > width:
            yield _select_columns(grid, indices)
            indices = []
        indices.append(index)
    yield _select_columns(grid, indices)


def _select_columns(grid: Grid, indices: Sequence[int]) -> Grid:
    shown = (0, *indices)
    rows = tuple(tuple(row[i] for i in shown) for row in grid.rows)
    return replace(grid, header=tuple(grid.header[i] for i in shown), rows=rows)
