"""Tables of training logs, as MXNet's and tf_cnn_benchmarks have them."""

from collections.abc import Sequence

from ..analyse.logs import EpochRow, StepRow
from .documents import Grid
from .numbers import MISSING

MARKDOWN, TSV = "markdown", "tsv"
FORMATS = (MARKDOWN, TSV)
TRAIN, VALID, TIME, SPEED = "train", "valid", "time", "speed"
COLUMNS = (TRAIN, VALID, TIME, SPEED)

Cells = dict[str, list[str | None]]  # by heading


def render_epoch_table(rows: Sequence[EpochRow], form: str = MARKDOWN, columns: Sequence[str] = COLUMNS) -> str:
    """Return ``| epoch | train accuracy | valid accuracy | time |``."""
    cells: Cells = {}
    for column in columns:
        if column in (TRAIN, VALID):
            of_rows = [row.train if column == TRAIN else row.valid for row in rows]
            for name in dict.fromkeys(name for metrics in of_rows for name in metrics):
                cells[f"{column} {name}"] = [_format_decimals(metrics.get(name), 6) for metrics in of_rows]
        elif column == TIME:
            cells["time"] = [_format_decimals(row.seconds, 1) for row in rows]
        else:
            cells["samples/sec"] = [_format_decimals(row.samples_per_second, 2) for row in rows]
    shown = {heading: column for heading, column in cells.items() if any(column)}
    return _render_table({"epoch": [str(row.epoch) for row in rows], **shown}, form)


def render_step_table(rows: Sequence[StepRow], form: str = MARKDOWN) -> str:
    """Return ``| step | images/sec | +/- | jitter | total_loss |``."""
    cells: Cells = {"step": ["total" if row.step is None else str(row.step) for row in rows]}
    if any(row.workers > 1 for row in rows):
        cells["workers"] = [str(row.workers) for row in rows]
    cells["images/sec"] = [_format_decimals(row.images_per_second, 2 if row.step is None else 1) for row in rows]
    cells["+/-"] = [_format_decimals(row.uncertainty, 1) for row in rows]
    cells["jitter"] = [_format_decimals(row.jitter, 1) for row in rows]
    for name in dict.fromkeys(name for row in rows for name in row.extras):
        cells[name] = [_format_decimals(row.extras.get(name), 3) for row in rows]
    return _render_table(cells, form)


def _format_decimals(value: float | None, decimals: int) -> str | None:
    return None if value is None else f"{value:.{decimals}f}"


def _render_table(cells: Cells, form: str) -> str:
    """None is a dash in Markdown, and nothing between two tabs."""
    header, rows = tuple(cells), list(zip(*cells.values(), strict=True))
    if form == TSV:
        return "".join("\t".join(cell or "" for cell in row) + "\n" for row in (header, *rows))
    texts = tuple(tuple(MISSING if cell is None else cell for cell in row) for row in rows)
    return Grid("", header, texts, left=tuple(range(len(header)))).to_markdown()
