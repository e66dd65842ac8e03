"""``trainscale export DIR… --to FORMAT``: hand finished runs to other programs, from their journals."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from ..export.base import DEFAULT_PROJECT, EXPORTERS, Destination, list_exporter_names, load_exporter
from ..runs import Run
from .damage import warn_of_damage
from .parser import Parser


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    if options.to is None:
        raise InputError(f"--to: no format is named; valid: {', '.join(list_exporter_names())}")
    exporter = load_exporter(options.to)
    runs = _read_runs(options.directories)
    print(exporter.export(runs, Destination(options.output, options.project)), end="")
    return 0


def _make_parser() -> Parser:
    parser = Parser(
        "export",
        "Export finished runs: one tidy table with a row for each trial, or points for other programs. Nothing is"
        " measured.",
    )
    add = parser.add_argument
    add("directories", nargs="+", type=Path, metavar="DIR", help="directories of runs")
    further = [name for name in list_exporter_names() if name not in EXPORTERS]
    plugins = f"; of plug-ins: {', '.join(further)}" if further else ""
    add("--to", metavar="FORMAT", help=f"{', '.join(EXPORTERS)}{plugins}")
    add(
        "-o",
        "--output",
        metavar="FILE",
        help="the file (default: standard output); for mlflow the tracking URI, for wandb the folder",
    )
    add(
        "--project",
        default=DEFAULT_PROJECT,
        metavar="NAME",
        help=f"MLflow's experiment or W&B's project (default: {DEFAULT_PROJECT})",
    )
    return parser


def _read_runs(directories: Sequence[Path]) -> list[Run]:
    """Read the runs. Those in which no trial has finished are named and left out."""
    runs = []
    for directory in directories:
        run = Run(directory, _on_damage=warn_of_damage)
        if run.records:
            runs.append(run)
        else:
            print(f"trainscale: {directory}: no trial of this run has finished; it is left out", file=sys.stderr)
    if not runs:
        raise InputError("no trial of these runs has finished; continue them with the commands that began them")
    return runs
