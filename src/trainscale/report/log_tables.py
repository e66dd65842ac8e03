"""Tables of training logs, with the columns and digits of MXNet's parse_log and of tf_cnn_benchmarks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..analyse.logs import EpochRow, StepRow

MARKDOWN, TSV = "markdown", "tsv"
FORMATS = (MARKDOWN, TSV)
TRAIN, VALID, TIME, SPEED = "train", "valid", "time", "speed"
COLUMNS = (TRAIN, VALID, TIME, SPEED)


def render_epoch_table(rows: Sequence[EpochRow], form: str = MARKDOWN, columns: Sequence[str] = COLUMNS) -> str:
    """Return ``| epoch | train accuracy | valid accuracy | time |``."""
    cells = {"epoch": [str(row.epoch) for row in rows]}
    values: dict[str, list[str | None]] = {}
    for column in columns:
        if column in (TRAIN, VALID):
            of_rows = [row.train if column == TRAIN else row.valid for row in rows]
            for name in dict.fromkeys(name for metrics in of_rows for name in metrics):
                values[f"{column} {name}"] = [_format_decimals(metrics.get(name), 6) for metrics in of_rows]
        elif column == TIME:
            values["time"] = [_format_decimals(row.seconds, 1) for row in rows]
        else:
            values["samples/sec"] = [_format_decimals(row.samples_per_second, 2) for row in rows]
    shown = {heading: column for heading, column in values.items() if any(column)}
    return _render_table([*cells, *shown], list(zip(*cells.values(), *shown.values(), strict=True)), form)


def render_step_table(rows: Sequence[StepRow], form: str = MARKDOWN) -> str:
    """Return ``| step | images/sec | +/- | jitter | total_loss |``."""
    workers = any(row.workers > 1 for row in rows)
    extras = list(dict.fromkeys(name for row in rows for name in row.extras))
    cells = [
        [
            "total" if row.step is None else str(row.step),
            *([str(row.workers)] if workers else []),
            _format_decimals(row.images_per_second, 2 if row.step is None else 1),
            _format_decimals(row.uncertainty, 1),
            _format_decimals(row.jitter, 1),
            *(_format_decimals(row.extras.get(name), 3) for name in extras),
        ]
        for row in rows
    ]
    return _render_table(
        ["step", *(["workers"] if workers else []), "images/sec", "+/-", "jitter", *extras], cells, form
    )


def _format_decimals(value: float | None, decimals: int) -> str | None:
    return None if value is None else f"{value:.{decimals}f}"


def _render_table(headings: Sequence[str], rows: Iterable[Sequence[str | None]], form: str) -> str:
    """None is a dash in Markdown, and nothing between two tabs."""
    if form == TSV:
        return "".join("\t".join(cell or "" for cell in row) + "\n" for row in (headings, *rows))
    lines = []
    for row in (headings, ["---"] * len(headings), *rows):
        cells = [("–" if cell is None else cell).replace("|", "\\|") for cell in row]
        lines.append(f"| {' | '.join(cells)} |\n")
    return "".join(lines)
