"""``trainscale notebook DIR``: write a notebook that repeats the analysis of a run; with ``--open``, open it."""

from __future__ import annotations

import os
from argparse import Namespace
from pathlib import Path

from ..errors import InputError
from ..export.base import write_file
from ..export.notebook import make_analysis_cells, render_notebook_json
from ..export.stored_run import StoredRun, read_stored_run
from ..launch.notebooks.session import NotebookRequest
from ..measure.remote_journal import RemoteJournal
from .damage import warn_of_damage
from .explain import check_can_explain
from .notebook_server import SETTINGS, SLURM, JupyterTarget, read_target, serve
from .parser import Parser, add_settings

_FILE = "analysis.ipynb"


def main(argv: list[str]) -> int:
    options = _make_parser().read(argv)
    if not options.open:
        _check_flags_of_open(options)
        print(f"{_write(options)}: open it with --open, or run it with jupyter execute")
        return 0
    target, port = read_target(options), _read_port(options.port)
    request = _make_request_on_host(options, target) if target.host else _make_request_here(options)
    return serve(target, request, port, open_browser=not options.no_browser)


def _make_parser() -> Parser:
    parser = Parser(
        "notebook",
        "Write a notebook that repeats the analysis of a run with the Python interface. With --open, Jupyter shows"
        " it until Ctrl-C: here, on a host, or in a Slurm job.",
    )
    add = parser.add_argument
    add("directory", type=Path, metavar="DIR", help="the directory of a run; with --on HOST, its path there")
    add("-o", "--output", metavar="FILE", help=f"the notebook (default: DIR/{_FILE})")
    add("--open", action="store_true", help="start Jupyter and open the notebook")
    add("--on", metavar="WHERE", help=f"where Jupyter runs: a HOST, over ssh, or {SLURM} (default: here)")
    add("--port", metavar="N", help="the port on this machine (default: a free one)")
    add("--no-browser", action="store_true", help="start no browser")
    add(
        "--jupyter",
        default="",
        metavar="PROGRAM",
        help="the jupyter to use there (default: next to Python, else on the PATH)",
    )
    add_settings(parser, SETTINGS)
    return parser


def _check_flags_of_open(options: Namespace) -> None:
    given = {"--on": options.on, "--port": options.port, "--jupyter": options.jupyter}
    given["--no-browser"] = options.no_browser
    for flag, value in given.items():
        if value:
            raise InputError(f"{flag}: valid together with --open")


def _read_port(text: str | None) -> int:
    if text is None:
        return 0
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise InputError(f"--port: {text!r} is not a port; valid: 1 to 65535")
    return int(text)


def _make_request_here(options: Namespace) -> NotebookRequest:
    """Write the notebook. One that somebody changed is opened as it is."""
    return NotebookRequest(str(_write(options, keeps_changed=True).resolve()), jupyter=options.jupyter)


def _make_request_on_host(options: Namespace, target: JupyterTarget) -> NotebookRequest:
    """Read the run over ssh, and have the notebook written beside it, unless there is one."""
    if options.output:
        raise InputError("--output: valid without --on HOST, where the notebook is in the directory of the run")
    assert target.host is not None
    directory = str(options.directory)
    with RemoteJournal(target.host, directory, target.ssh) as remote:
        text = _make_notebook(read_stored_run(remote.directory, warn_of_damage), ".", f"{target.host.name}:{directory}")
    return NotebookRequest(f"{directory}/{_FILE}", text, options.jupyter)


def _write(options: Namespace, keeps_changed: bool = False) -> Path:
    """Write the notebook and return its path. One that somebody changed is never overwritten."""
    run = read_stored_run(options.directory, warn_of_damage)
    path = Path(options.output or options.directory / _FILE)
    if path.suffix != ".ipynb":
        raise InputError(f"--output {path}: the name of a notebook ends with .ipynb")
    text = _make_notebook(run, os.path.relpath(run.directory, path.parent), str(run.directory))
    if path.is_file() and path.read_text(errors="replace") != text:
        if keeps_changed:
            return path
        raise InputError(
            f"{path}: this notebook was changed and is not overwritten; name another with -o, or remove it"
        )
    return Path(write_file(str(path), text))


def _make_notebook(run: StoredRun, directory: str, where: str) -> str:
    """Return the notebook of a run in ``directory``, a path that is relative to the notebook's folder."""
    if not run.records:
        raise InputError(f"{where}: no trial of this run has finished; continue it with the command that began it")
    from ..report.wording import make_title

    learns = any(series.learns for series in run.series)
    return render_notebook_json(make_analysis_cells(directory, make_title(run.series), _can_explain(run), learns))


def _can_explain(run: StoredRun) -> bool:
    try:
        check_can_explain(run.directory, run.records)
    except InputError:
        return False
    return True
