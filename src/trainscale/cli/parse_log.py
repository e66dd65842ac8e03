"""``trainscale parse-log FILE…``: make tables of logs, also of other programs."""

import io
import itertools
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO

from ..analyse.logs import AVERAGE, REDUCERS, SUPPORTED, EpochRow, Section, StepRow, read_log
from ..errors import InputError, explain_unknown, shorten_path
from ..record.decoding import remove_unprintable
from ..record.journal import TRIALS
from ..report.documents import Grid
from ..report.numbers import MISSING
from ..spec.settings import whole
from ..worker.regular_files import open_regular
from .parser import Parser, typed

MARKDOWN, TSV = "markdown", "tsv"
FORMATS = (MARKDOWN, TSV)
TRAIN, VALID, TIME, SPEED = "train", "valid", "time", "speed"
COLUMNS = (TRAIN, VALID, TIME, SPEED)

STDIN = "-"
_PIECE = 1 << 16  # characters that are read at once; read_log joins the pieces of a line


def main(argv: list[str]) -> int:
    parser = Parser("parse-log")
    add = parser.add
    add("files", "FILE", "logs or directories of runs; - is standard input", nargs="*")
    reduce = "how metrics of workers are combined (default: average); samples per second are added up"
    add("--reduce --op", None, reduce, choices=REDUCERS, default=AVERAGE)
    formats = "the format of the tables (default: markdown); none means tsv, as in MXNet's parse_log"
    add("--format", None, formats, choices=(*FORMATS, "none"), default=MARKDOWN)
    add("--metrics --metric-names", "NAME,…", "show only these metrics, in this order")
    add("--columns", "NAME,…", f"show only these of {','.join(COLUMNS)}")
    add("--every", "N", "show only every Nth epoch or step, and the last", type=typed(whole(1)), default=1)
    add("--merge", "", "make one table: the FILEs are the logs of one run's workers")
    options = parser.read(argv)
    if not options.files:
        raise InputError("no FILE was given; - is standard input\n  see: trainscale parse-log --help")
    table_format = TSV if options.format == "none" else options.format
    columns = _split_names(options.columns, COLUMNS, "column") if options.columns else COLUMNS
    sections: dict[str, list[Section]] = {}
    if options.merge:
        names = ", ".join(map(_describe_file, options.files))
        lines = itertools.chain.from_iterable(map(_read_lines, options.files))
        sections[names] = read_log(lines, names, options.reduce, one_run=True)
    else:
        for file in dict.fromkeys(options.files):
            name = _describe_file(file)
            sections[name] = read_log(_read_lines(file), name, options.reduce)
    if empty := [name for name, of_file in sections.items() if not of_file]:
        supported = "".join(f"\n    {kind}" for kind in SUPPORTED)
        raise InputError(f"{', '.join(empty)}: nothing here is understood; supported are:{supported}")
    tables = []
    for name, section in ((name, section) for name, of_file in sections.items() for section in of_file):
        epochs = [row for row in section.epochs if row.epoch % options.every == 0 or row is section.epochs[-1]]
        if epochs and options.metrics is not None:
            valid = [metric for row in section.epochs for metric in (*row.train, *row.valid)]
            metrics = _split_names(options.metrics, [*dict.fromkeys(valid)], f"metric in {name}")
            for index, row in enumerate(epochs):
                train = {metric: row.train[metric] for metric in metrics if metric in row.train}
                validation = {metric: row.valid[metric] for metric in metrics if metric in row.valid}
                epochs[index] = replace(row, train=train, valid=validation)
        last = max((row.step for row in section.steps if row.step is not None), default=None)
        steps = [row for row in section.steps if row.step in (None, last) or row.step % options.every == 0]
        table = render_step_table(steps, table_format)
        if epochs:
            table = render_epoch_table(epochs, table_format, columns)
        tables.append((name, section.title, table))
    several = len(tables) > 1
    for number, (name, title, table) in enumerate(tables):
        parts = [name, title] if several and len(options.files) > 1 and not options.merge else [title]
        heading = ": ".join(part for part in parts if part)
        if heading and (several or table_format == MARKDOWN):
            blank = "\n" if number else ""
            print(f"{blank}# {heading}" if table_format == TSV else f"{blank}### {heading}\n")
        print(table, end="")
    return 0


def _describe_file(file: str) -> str:
    return "standard input" if file == STDIN else remove_unprintable(file)


def _read_lines(file: str) -> Iterator[str]:
    """Wrong encodings are tolerated: logs are often cut."""
    path = Path(file)
    if file != STDIN and path.is_dir():
        path = path / TRIALS
        if not path.exists():
            reason = f"this is a directory, and no run was recorded in it (there is no {TRIALS})"
            raise InputError(f"{file}: {reason}")
    try:
        stream: IO[bytes] = sys.stdin.buffer if file == STDIN else open_regular(path, pipes=True)
        text = io.TextIOWrapper(stream, encoding="utf-8", errors="replace")
        try:
            while line := text.readline(_PIECE):
                yield line
        finally:
            text.detach()  # standard input stays open
            if file != STDIN:
                stream.close()
    except OSError as error:
        name = shorten_path(_describe_file(file))
        raise InputError(f"{name}: cannot be read: {error.strerror}") from None


def _split_names(text: str, valid: Sequence[str], what: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in valid:
            raise explain_unknown(what, name, valid)
    return names


# ---- tables, as MXNet's and tf_cnn_benchmarks have them

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
    speeds = [(row.images_per_second, 2 if row.step is None else 1) for row in rows]
    cells["images/sec"] = [_format_decimals(speed, decimals) for speed, decimals in speeds]
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
