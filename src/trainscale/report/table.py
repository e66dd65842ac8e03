"""The tables in the terminal, one per series. On a narrow terminal the least important columns are left out.

They are laid out here and not by rich's Table, because the reason of a failed point runs across the columns of its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.padding import Padding
from rich.text import Text

from ..analyse.boundary import find_host_boundary
from ..analyse.series import Point, Series, find_common_unit
from ..worker.compiled_programs import NONE
from . import numbers, wording
from .grid import Grid

_GAP = 2  # spaces between columns
_BAR_WIDTH = 10  # cells of the efficiency bar
_NO_LIMIT = 10_000  # cells: wider than all columns together
_OF_ALL_POINTS = ("devices", "hosts", "device", "batch")  # headings of columns that failed points fill too


@dataclass(frozen=True)
class Column:
    """``heading`` has two lines. On a narrow terminal, columns of the highest ``rank`` are left out first."""

    heading: tuple[str, str]
    cell: Callable[[Point], str]
    rank: int
    style: str = ""


def make_series_table(all_series: Sequence[Series]) -> RenderableType:
    """Return the tables of all series, with their flags."""
    return SeriesTables(all_series) if all_series else Text("Nothing was measured.", style="dim")


class SeriesTables:
    """For each series its title, its traits, a row per point, and flags. The columns align over all series."""

    def __init__(self, all_series: Sequence[Series]) -> None:
        self.all_series = all_series

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        points = [point for series in self.all_series for point in series.points]
        columns = _choose_fitting(_make_columns(find_common_unit(self.all_series)), points, width)
        widths = [_measure_width(column, points) for column in columns]
        for series in self.all_series:
            yield Text(series.title, style="bold")
            yield Text(_join_fitting_traits(series, width), style="dim", no_wrap=True, overflow="ellipsis")
            yield from _render_head(columns, widths)
            boundary = find_host_boundary(series.points)
            for point in series.points:
                if boundary and point.devices == boundary.first_on_several:
                    yield _render_rule("┄", widths)
                yield (
                    _render_row(point, columns, widths)
                    if point.ok
                    else _render_failed_row(point, columns, widths, width)
                )
            for points_of_flag, flag in wording.group_flags(series):
                line = Text.assemble(("⚑ ", "yellow"), (f"{points_of_flag}: ", "bold"), flag)
                yield Padding(line, (0, 0, 0, 1), expand=False)
            yield Text("")


def _format_cluster_rate(point: Point) -> str:
    return numbers.format_rate(point.samples_per_second.mean if point.samples_per_second else None)


def _format_device_rate(point: Point) -> str:
    return numbers.format_rate(point.samples_per_second.mean / point.devices if point.samples_per_second else None)


def _format_memory(point: Point) -> str:
    on_device = point.nvml_peak_bytes if point.device_peak_bytes is None else point.device_peak_bytes
    return numbers.format_size(point.host_peak_bytes if point.config.device == "cpu" else on_device)


def _format_compilation(point: Point) -> str:
    """Frameworks that compile nothing leave the column out."""
    return "" if point.compilation == NONE else point.compilation


def _format_accuracy(point: Point) -> str:
    return numbers.format_accuracy(point.learning.valid_accuracy if point.learning else None)


def _draw_bar(point: Point) -> str:
    share = min(1.0, point.efficiency.mean) if point.efficiency else 0.0
    filled = round(share * _BAR_WIDTH)
    return "━" * filled + " " * (_BAR_WIDTH - filled)


_BAR = Column(("", ""), _draw_bar, 11, "cyan")
_HOSTS = Column(("", "hosts"), lambda point: numbers.format_integer(point.hosts), 2)


def _make_columns(unit: str) -> tuple[Column, ...]:
    return (
        Column(("", "devices"), lambda point: numbers.format_integer(point.devices), 0, "bold"),
        _HOSTS,
        Column(("batch/", "device"), lambda point: numbers.format_integer(point.batch_per_device), 5),
        Column(("global", "batch"), lambda point: numbers.format_integer(point.global_batch), 6),
        Column((f"{unit}/s", "cluster"), _format_cluster_rate, 0, "bold"),
        Column(("", "±"), lambda point: numbers.format_plus_minus(point.samples_per_second), 2, "dim"),
        Column((f"{unit}/s", "per device"), _format_device_rate, 7),
        Column(("", "speed-up"), lambda point: numbers.format_times(point.speedup), 1),
        Column(("", "efficiency"), lambda point: numbers.format_efficiency(point.efficiency), 1, "bold"),
        _BAR,
        Column(("valid", "accuracy"), _format_accuracy, 1, "bold"),
        Column(("input", "overhead"), lambda point: numbers.format_overhead(point.input_overhead), 3),
        Column(("step", "ms"), lambda point: numbers.format_milliseconds(point.step_seconds), 4),
        Column(("jitter", f"{unit}/s"), lambda point: numbers.format_jitter(point.jitter), 9),
        Column(("peak", "memory"), _format_memory, 8),
        Column(("start-up", "s"), lambda point: numbers.format_seconds(point.startup_seconds), 12),
        Column(("1st step", "s"), lambda point: numbers.format_seconds(point.first_step_seconds), 13),
        Column(("compile", "cache"), _format_compilation, 14),
        Column(("vs", "local"), lambda point: numbers.format_efficiency(point.efficiency_versus_local), 10),
        Column(("", "status"), lambda point: "ok ⚑" if point.flags else "ok", 3),
    )


def make_scaling_grid(series: Series) -> Grid:
    """Return the table for Markdown: every column that has values. The status of a failed point holds the reason."""
    columns = [
        column for column in _choose_fitting(_make_columns(series.unit), series.points, _NO_LIMIT) if column is not _BAR
    ]
    rows = []
    for point in series.points:
        cells = [column.cell(point) or numbers.MISSING for column in columns]
        if not point.ok:
            blank = [
                cell if column.heading[1] in _OF_ALL_POINTS else numbers.MISSING
                for column, cell in zip(columns, cells, strict=True)
            ]
            cells = [*blank[:-1], wording.describe_status_and_reason(point)]
        rows.append(tuple(cells))
    header = tuple(" ".join(part for part in column.heading if part).replace("/ ", "/") for column in columns)
    return Grid(series.title, header, tuple(rows), left=(len(columns) - 1,))


def _choose_fitting(columns: Sequence[Column], points: Sequence[Point], width: int) -> list[Column]:
    """Return the columns that fit, without those in which no point has a value."""
    shown = [column for column in columns if column.rank == 0 or _has_values(column, points)]
    if all(point.hosts == 1 for point in points):
        shown = [column for column in shown if column is not _HOSTS]
    while len(shown) > 1 and sum(_measure_width(column, points) + _GAP for column in shown) - _GAP > width:
        shown.remove(max(shown, key=lambda column: column.rank))
    return shown


def _has_values(column: Column, points: Sequence[Point]) -> bool:
    return any(point.ok and column.cell(point).strip() not in ("", numbers.MISSING) for point in points)


def _join_fitting_traits(series: Series, width: int) -> str:
    """Return as many of a series' traits as fit on a line. The last matter least."""
    traits = wording.list_traits(series)
    while len(traits) > 1 and cell_len(" · ".join(traits)) > width:
        traits.pop()
    return " · ".join(traits)


def _measure_width(column: Column, points: Iterable[Point]) -> int:
    cells = [column.cell(point) for point in points if point.ok]
    return max(map(cell_len, [*column.heading, *cells]))


def _render_head(columns: Sequence[Column], widths: Sequence[int]) -> Iterable[Text]:
    for line in (0, 1):
        cells = [_align_right(column.heading[line], width) for column, width in zip(columns, widths, strict=True)]
        if "".join(cells).strip():
            yield Text((" " * _GAP).join(cells).rstrip(), style="dim", no_wrap=True)
    yield _render_rule("─", widths)


def _render_rule(line: str, widths: Sequence[int]) -> Text:
    return Text(line * (sum(widths) + _GAP * (len(widths) - 1)), style="dim", no_wrap=True)


def _render_row(point: Point, columns: Sequence[Column], widths: Sequence[int]) -> Text:
    row = Text(no_wrap=True, overflow="ellipsis")
    for index, (column, width) in enumerate(zip(columns, widths, strict=True)):
        row.append(" " * _GAP if index else "").append(_align_right(column.cell(point), width), column.style)
    return row


def _render_failed_row(point: Point, columns: Sequence[Column], widths: Sequence[int], table_width: int) -> Text:
    """Show devices and batch in their columns, then the reason across the other columns."""
    row = Text(no_wrap=True, overflow="ellipsis")
    for column, width in zip(columns, widths, strict=True):
        if column.heading[1] not in _OF_ALL_POINTS:
            break
        row.append(_align_right(column.cell(point), width) + " " * _GAP, column.style)
    row.append(f"✗ {wording.describe_status(point)}", "bold red")
    reason = wording.find_reason(point)
    if reason:
        row.append(f": {reason}", "red")
    row.truncate(table_width, overflow="ellipsis")
    return row


def _align_right(text: str, width: int) -> str:
    return " " * (width - cell_len(text)) + text if cell_len(text) <= width else set_cell_size(text, width)
