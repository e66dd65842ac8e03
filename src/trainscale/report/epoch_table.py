"""Tables of epochs in the format of MXNet's parse_log: Markdown or tab-separated text.

The digits are also those of parse_log, six decimals for a metric and one for seconds, so that tables can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..analyse.logs import EpochRow

MARKDOWN, TSV = "markdown", "tsv"
FORMATS = (MARKDOWN, TSV)
TRAIN, VALID, TIME, SPEED = "train", "valid", "time", "speed"
COLUMNS = (TRAIN, VALID, TIME, SPEED)
_MISSING = {MARKDOWN: "–", TSV: ""}
Column = tuple[str, Callable[[EpochRow], str | None]]


def render_epoch_table(rows: Sequence[EpochRow], form: str = MARKDOWN, columns: Sequence[str] = COLUMNS) -> str:
    """Return ``| epoch | train accuracy | valid accuracy | time |`` and a row per epoch, ending in a line feed.

    ``columns`` names the columns besides the epoch. A column for which no row has a value is left out.
    """
    shown = [column for name in columns for column in _make_columns(name, rows)]
    cells = [[str(row.epoch), *(cell(row) for _, cell in shown)] for row in rows]
    return render_table(["epoch", *(heading for heading, _ in shown)], cells, form)


def render_table(headings: Sequence[str], rows: Iterable[Sequence[str | None]], form: str = MARKDOWN) -> str:
    """Return a table as text. None is a value that does not exist: a dash in Markdown, nothing between two tabs."""
    lines = [_render_line(headings, form)]
    if form == MARKDOWN:
        lines.append(_render_line(["---"] * len(headings), form))
    lines += [_render_line([_MISSING[form] if cell is None else cell for cell in row], form) for row in rows]
    return "".join(f"{line}\n" for line in lines)


def _render_line(cells: Sequence[str], form: str) -> str:
    if form == TSV:
        return "\t".join(cells)
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def _make_columns(name: str, rows: Sequence[EpochRow]) -> list[Column]:
    """Return the columns of a kind. Metrics have one column for each name, in the order of first appearance."""
    if name == TRAIN:
        return [
            (f"train {metric}", _make_metric_cell(TRAIN, metric)) for metric in _list_names(row.train for row in rows)
        ]
    if name == VALID:
        return [
            (f"valid {metric}", _make_metric_cell(VALID, metric)) for metric in _list_names(row.valid for row in rows)
        ]
    if name == TIME:
        return [("time", _format_seconds)] if any(row.seconds is not None for row in rows) else []
    return [("samples/sec", _format_speed)] if any(row.samples_per_second is not None for row in rows) else []


def _list_names(metrics: Iterable[Iterable[str]]) -> list[str]:
    return list(dict.fromkeys(name for names in metrics for name in names))


def _make_metric_cell(which: str, name: str) -> Callable[[EpochRow], str | None]:
    def cell(row: EpochRow) -> str | None:
        value = (row.train if which == TRAIN else row.valid).get(name)
        return None if value is None else f"{value:.6f}"

    return cell


def _format_seconds(row: EpochRow) -> str | None:
    return None if row.seconds is None else f"{row.seconds:.1f}"


def _format_speed(row: EpochRow) -> str | None:
    return None if row.samples_per_second is None else f"{row.samples_per_second:.2f}"
