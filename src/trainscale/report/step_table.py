"""The table of a tf_cnn_benchmarks log: a row per step line, then the total, with the digits of the log."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.logs import StepRow
from .epoch_table import MARKDOWN, render_table


def render_step_table(rows: Sequence[StepRow], form: str = MARKDOWN) -> str:
    """Return ``| step | images/sec | +/- | jitter | total_loss |`` and a row per step; several workers add a column."""
    workers = any(row.workers > 1 for row in rows)
    extras = list(dict.fromkeys(name for row in rows for name in row.extras))
    headings = ["step", *(["workers"] if workers else []), "images/sec", "+/-", "jitter", *extras]
    return render_table(headings, [_format_cells(row, workers, extras) for row in rows], form)


def _format_cells(row: StepRow, workers: bool, extras: Sequence[str]) -> list[str | None]:
    speed = f"{row.images_per_second:.2f}" if row.step is None else f"{row.images_per_second:.1f}"
    return [
        "total" if row.step is None else str(row.step),
        *([str(row.workers)] if workers else []),
        speed,
        _format_number(row.uncertainty, 1),
        _format_number(row.jitter, 1),
        *(_format_number(row.extras.get(name), 3) for name in extras),
    ]


def _format_number(value: float | None, decimals: int) -> str | None:
    return None if value is None else f"{value:.{decimals}f}"
