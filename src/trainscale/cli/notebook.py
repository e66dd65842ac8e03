"""``trainscale notebook DIR``: write a notebook that draws the analysis of a run again."""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import InputError
from ..export.base import write_file
from ..export.notebook import analysis_cells, notebook_json
from ..export.stored_run import StoredRun, read_stored_run
from .explain import check_can_explain
from .parser import Parser

_FILE = "analysis.ipynb"


def main(argv: list[str]) -> int:
    parser = Parser("notebook", "Write a notebook that draws the analysis of a run again, by the Python interface.")
    parser.add_argument("directory", type=Path, metavar="DIR", help="the directory of a run")
    parser.add_argument("-o", "--output", metavar="FILE", help=f"the notebook (default: DIR/{_FILE})")
    options = parser.read(argv)
    run = read_stored_run(options.directory)
    if not run.records:
        raise InputError(
            f"{run.directory}: no trial of this run has finished; continue it with the command that began it"
        )
    path = Path(options.output or options.directory / _FILE)
    if path.suffix != ".ipynb":
        raise InputError(f"--output {path}: the name of a notebook ends with .ipynb")
    from ..report.wording import title

    directory = os.path.relpath(run.directory, path.parent)
    learns = any(series.learns for series in run.series)
    cells = analysis_cells(directory, title(run.series), _can_explain(run), learns)
    text = notebook_json(cells)
    if path.is_file() and path.read_text(errors="replace") != text:
        raise InputError(
            f"{path}: this notebook was changed and is not overwritten; name another with -o, or remove it"
        )
    print(f"{write_file(str(path), text)}: open it with jupyter lab, or run it with jupyter execute")
    return 0


def _can_explain(run: StoredRun) -> bool:
    try:
        check_can_explain(run.directory, run.records)
    except InputError:
        return False
    return True
