"""``trainscale run``, and ``trainscale.run`` of the Python API: both call ``runs.measure``."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..cluster.allocation import SLURM, is_inside_slurm, read_legacy_settings
from ..errors import InputError, TrainscaleError, explain_unknown
from ..launch.launchers.target import run_once_inside_mpi
from ..measure.context import should_submit
from ..runs import Run, RunInterrupted, load, measure
from ..spec.experiment import SEE_SETTINGS
from ..spec.groups import collect_settings
from ..spec.settings import SWITCH
from .parser import Parser, add_experiment, read_experiment
from .signals import INTERRUPTED, interrupt_on_signals
from .views import JSON, TEXT, CommandView, add_view_flags

if TYPE_CHECKING:
    from ..launch.launchers.inside_mpi import InsideMpiLauncher


def main(argv: list[str], after_run: Callable[[Run], None] = lambda _: None) -> int:
    """``after_run`` gets the run, if it was not interrupted."""

    def measure_here(mpi: InsideMpiLauncher | None) -> int:
        try:
            return _measure(argv, after_run, mpi)
        except RunInterrupted:
            return INTERRUPTED

    with interrupt_on_signals():  # from the start, because connecting to hosts may take a minute
        return run_once_inside_mpi(["run", *argv], measure_here)


def _measure(
    argv: list[str],
    after_run: Callable[[Run], None],
    mpi: InsideMpiLauncher | None,
    further: Sequence[str] = (),
) -> int:
    """Measure as a command line says. run.json does not have ``further``."""
    parser = Parser("run", "Measure a scaling curve. The same command again continues where it stopped.")
    parser.add("--fresh", "", "measure everything anew, in a new directory, even if results exist")
    parser.add("--retry-failed", "", "try failed points again")
    parser.add("--summary-line", "", "print lines 'key: value unit' at the end, for the patterns of ReFrame and JUBE")
    parser.add("--dry-run", "", "print the batch script that would be submitted to Slurm, then stop")
    add_view_flags(parser)
    add_experiment(parser)
    options = parser.read([*argv, *further])
    style = options.style
    if style == JSON and options.summary_line:
        reason = "with --json every line is an event"
        raise InputError(f"--json and --summary-line exclude each other: {reason}")
    experiment = read_experiment(options, read_job_settings)
    if should_submit(experiment):
        if style != TEXT:
            flag = f"--{style}"
            valid = f"trainscale watch DIR {flag}"
            raise InputError(f"{flag}: this command submits a job to Slurm; valid: {valid}")
        from .submit import submit_run

        return submit_run(experiment, options)
    if options.dry_run:
        advice = "trainscale plan shows what a run would do"
        raise InputError(f"--dry-run: nothing would be submitted here; {advice}")
    explains = experiment.measurement.explain
    view = CommandView(style, explains=explains, prints_summary=options.summary_line)
    again = {"fresh": options.fresh, "retry_failed": options.retry_failed}
    after_run(measure(experiment, options.output, view=view, command=["run", *argv], mpi=mpi, **again))
    return view.exit_code


def read_job_settings(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return settings from the variables of the older scripts, in a Slurm job."""
    if not is_inside_slurm(os.environ) and given.get("launcher") != SLURM:
        return {}
    settings, description = read_legacy_settings(os.environ, given)
    if settings:
        print(description, file=sys.stderr)
    return settings


def run(
    file: str | Path | None = None,
    *,
    output: str | Path | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Measure a scaling curve, as ``trainscale run`` does, and return the run.

    ``settings`` are those of an experiment file, such as ``models=["resnet50:8"]``, ``devices=[1, 2]``, ``steps=50``;
    they win over ``file``. The same call again continues the run, and returns at once if it is complete. ``output`` is
    its directory, ``fresh`` measures everything anew, ``retry_failed`` tries failed points again, ``quiet`` prints
    nothing. Failed points are part of the run. Raises ``InputError`` for wrong settings, before anything starts, and
    ``KeyboardInterrupt`` if it is interrupted.
    """
    from ..launch.plugins import load_plugins

    load_plugins()
    declared = collect_settings()
    for key, value in settings.items():
        if key not in declared:
            raise explain_unknown("setting", key, declared, "run()", SEE_SETTINGS)
        declared[key].read_value(_simplify(value), "run()")  # as strictly as in a file
    argv = [*([] if file is None else [str(file)]), *_format_flags(settings)]
    given = {"--fresh": fresh, "--retry-failed": retry_failed, f"--output={output}": output is not None}
    further = [flag for flag, is_given in given.items() if is_given]
    runs: list[Run] = []
    hide_output = redirect_stdout(io.StringIO()) if quiet else nullcontext()
    with hide_output, interrupt_on_signals(ends_process=False):
        code = run_once_inside_mpi(["run", *argv], lambda mpi: _measure(argv, runs.append, mpi, further))
    if code == INTERRUPTED:
        raise KeyboardInterrupt
    if runs:
        return runs[0]
    if output is None or fresh:
        remedy = "load its directory, or name one: run(…, output=DIR)"
        raise TrainscaleError(f"the run was submitted to Slurm; {remedy}")
    return load(output)


def _simplify(value: Any) -> Any:
    """Return a value as an experiment file could hold it."""
    if isinstance(value, dict):
        return {str(key): _simplify(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range | set | frozenset):
        return [_simplify(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _format_flags(settings: Mapping[str, Any]) -> list[str]:
    """Return the flags that mean the same, for the command in run.json."""
    declared = collect_settings()
    flags = []
    for key, value in settings.items():
        setting, plain = declared[key], _simplify(value)
        if setting.value_type is SWITCH:
            flags.append(setting.flag if plain else f"--no-{setting.flag[2:]}")
            continue
        items = [f"{name}={item}" for name, item in plain.items()] if isinstance(plain, dict) else plain
        items = items if isinstance(items, list) else [items]
        texts = [str(item).lower() if isinstance(item, bool) else str(item) for item in items]
        is_joined = "," in setting.value_type.separator and not any("," in text for text in texts)
        joined = [",".join(texts)] if is_joined else texts
        flags += [f"{setting.flag}={text}" for text in joined]
    return flags
