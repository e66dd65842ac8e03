"""``trainscale export`` and ``trainscale notebook``: runs for other programs and for Jupyter."""

import json
import os
import re
import shutil
import sys
import webbrowser
from argparse import Namespace
from pathlib import Path

from ..errors import InputError, TrainscaleError
from ..export.base import DEFAULT_PROJECT, EXPORTERS, Destination, list_exporters, load_exporter
from ..launch.notebook_host import NotebookRequest
from ..launch.notebooks import JupyterTarget, open_notebook
from ..measure.watching import copy_journal
from ..questions.explain.explain import check_can_explain
from ..record.files import write_output
from ..runs import Run
from ..spec.devices import Host
from ..spec.settings import whole
from ..worker.type_aliases import JsonObject
from .parser import Parser, add_settings, read_experiment, typed, warn_of_damage
from .signals import interrupt_on_signals

_FILE = "analysis.ipynb"
_SLURM = "slurm"
_SETTINGS = ("ssh_config", "forward_agent", "partition", "account", "gres", "time")
_HOST = re.compile(r"(?:(?P<user>[\w.-]+)@)?(?P<host>\[[^\]]+\]|[\w.-]+)", re.ASCII)


def export(argv: list[str]) -> int:
    parser = Parser("export")
    add = parser.add
    add("directories", "DIR", "directories of runs", nargs="+", type=Path)
    further = [name for name in list_exporters() if name not in EXPORTERS]
    plugins = f"; of plug-ins: {', '.join(further)}" if further else ""
    add("--to", "FORMAT", f"{', '.join(EXPORTERS)}{plugins}")
    add("-o --output", "FILE", "the file (default: standard output); for mlflow the tracking URI, for wandb the folder")
    project = f"MLflow's experiment or W&B's project (default: {DEFAULT_PROJECT})"
    add("--project", "NAME", project, default=DEFAULT_PROJECT)
    options = parser.read(argv)
    if options.to is None:
        raise InputError(f"--to: no format is named; valid: {', '.join(list_exporters())}")
    exporter = load_exporter(options.to)
    runs = [Run(directory, _on_damage=warn_of_damage) for directory in options.directories]
    for run in runs:
        if not run.records:
            warning = f"{run.directory}: no trial of this run has finished; it is left out"
            print(f"trainscale: {warning}", file=sys.stderr)
    finished = [run for run in runs if run.records]
    if not finished:
        again = "continue them with the commands that began them"
        raise InputError(f"no trial of these runs has finished; {again}")
    print(exporter.export(finished, Destination(options.output, options.project)), end="")
    return 0


def notebook(argv: list[str]) -> int:
    parser = Parser("notebook")
    add = parser.add
    add("directory", "DIR", "a run; with --on HOST, its path there", type=Path)
    add("-o --output", "FILE", f"the notebook (default: DIR/{_FILE})")
    add("--open", "", "start Jupyter and open the notebook")
    add("--on", "WHERE", f"where Jupyter runs: a HOST, over ssh, or {_SLURM} (default: here)")
    add("--port", "N", "the port here (default: a free one)", type=typed(whole(1, 65535)))
    add("--no-browser", "", "start no browser")
    add("--jupyter", "PROGRAM", "the jupyter to use there (default: next to Python, else on the PATH)", default="")
    add_settings(parser, _SETTINGS)
    options = parser.read(argv)
    if not options.open:
        for name in ("on", "port", "jupyter", "no_browser"):
            if getattr(options, name):
                raise InputError(f"--{name.replace('_', '-')}: valid together with --open")
        print(f"{_write(options)}: open it with --open, or run it with jupyter execute")
        return 0
    experiment = read_experiment(options)
    host, slurm = None, experiment.slurm if options.on == _SLURM else None
    if slurm and not shutil.which("srun"):
        raise InputError("--on slurm: there is no srun here; it works where jobs are submitted")
    if options.on is not None and not slurm:
        match = _HOST.fullmatch(options.on)
        if match is None:
            raise InputError(f"--on {options.on}: valid: a host, such as user@node1, or {_SLURM}")
        host = Host(match["host"].strip("[]"), user=match["user"] or "")
    target = JupyterTarget(host, experiment.ssh, slurm)
    if host:  # read the run over ssh; the notebook is written beside it
        if options.output:
            reason = "there it is in the directory of the run"
            raise InputError(f"--output: valid without --on HOST: {reason}")
        directory = str(options.directory)
        with copy_journal(host, directory, experiment.ssh) as (copy, _):
            run = Run(copy, _on_damage=warn_of_damage)
            if not run.records:
                raise InputError(f"{host.name}:{directory}: no trial of this run has finished")
            text = _make_notebook(run, ".")
        request = NotebookRequest(f"{directory}/{_FILE}", text, options.jupyter)
    else:  # a notebook that somebody changed is opened as it is
        path = _write(options, keeps_changed=True).resolve()
        request = NotebookRequest(str(path), jupyter=options.jupyter)
    try:  # until Ctrl-C, or until somebody shuts Jupyter down in the browser
        with interrupt_on_signals():
            if target.slurm:
                print("waiting for Slurm to start the job; Ctrl-C cancels it", flush=True)
            with open_notebook(target, request, options.port or 0) as session:
                print(f"Jupyter{target.name} has {session.notebook}")
                print(f"  address: {session.url}")
                print(f"  open {session.redirect} in a browser: it holds the token, and only you can read it")
                print("  Ctrl-C ends Jupyter and its kernels", flush=True)
                # A browser without a window would take over the terminal.
                has_window = {"DISPLAY", "WAYLAND_DISPLAY", "BROWSER"} & {*os.environ}
                if not options.no_browser and (has_window or sys.platform == "darwin"):
                    webbrowser.open(session.redirect.as_uri())
                session.wait()
    except KeyboardInterrupt:
        print(f"Jupyter{target.name} has ended", file=sys.stderr)
        return 130
    raise TrainscaleError(f"Jupyter{target.name} has ended by itself, or the connection to it is lost")


def _write(options: Namespace, keeps_changed: bool = False) -> Path:
    """Write the notebook, never over one that was changed."""
    run = Run.open(options.directory, warn_of_damage)
    path = Path(options.output or options.directory / _FILE)
    if path.suffix != ".ipynb":
        raise InputError(f"--output {path}: the name of a notebook ends with .ipynb")
    text = _make_notebook(run, os.path.relpath(run.directory, path.parent))
    if path.is_file() and path.read_text(errors="replace") != text:
        if keeps_changed:
            return path
        remedy = "name another with -o, or remove it"
        raise InputError(f"{path}: this notebook was changed and is not overwritten; {remedy}")
    return write_output(path, text)


def _make_notebook(run: Run, directory: str) -> str:
    """``directory``: of the run, relative to the notebook."""
    from ..report.documents import load_template
    from ..report.wording import make_title

    is_explained = True
    try:
        check_can_explain(run)
    except InputError:
        is_explained = False
    charts = ["speedup", "throughput", "efficiency"]
    if any(series.learns for series in run.series):
        charts.append("accuracy")
    text = load_template(__package__, "notebook.j2").render(
        title=make_title(run.series), directory=repr(directory), charts=charts, is_explained=is_explained
    )
    cells: list[JsonObject] = []
    for number, cell in enumerate(text.removeprefix("%%").split("\n%%")):
        kind, _, source = cell.partition("\n")
        lines = source.splitlines(keepends=True)
        content: JsonObject = {"id": f"cell-{number}", "metadata": {}, "source": lines}
        if kind == "code":
            content |= {"execution_count": None, "outputs": []}
        cells.append({"cell_type": kind, **content})
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel}
    document = {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
