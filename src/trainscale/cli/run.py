"""``trainscale run``: measure a scaling curve, from one command to the plots."""

from __future__ import annotations

import errno
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..analyse.race import find_failed_parity
from ..cluster.allocation import is_inside_slurm, read_legacy_settings
from ..cluster.slurm_job import was_requeued
from ..cluster.target import SLURM
from ..errors import AllocationEnded, InputError, TrainscaleError
from ..launch.inspection.hosts import Cluster, choose_pythons, connect_cluster
from ..launch.launchers.base import Launcher
from ..launch.launchers.inside_mpi import InsideMpiLauncher, run_once_inside_mpi
from ..launch.launchers.target import find_target
from ..measure.batches import needs_search, settle_batches
from ..measure.context import RunContext, choose_directory, make_spec, select_configs
from ..measure.measure import measure_plan
from ..measure.parity import check_parity
from ..measure.preflight import check_frameworks, make_probe_requests
from ..measure.submission import should_submit
from ..record.journal import TRIALS, Journal, check_directory, open_journal
from ..record.parity import Verdict, read_parity, write_parity
from ..record.run import RunInfo, collect_provenance
from ..record.trial import SKIPPED
from ..report.installation import check_can_report
from ..spec.plan import make_plan
from . import submit
from .parser import Parser, add_experiment, read_experiment
from .results import print_missing_charts, print_summary_lines
from .signals import interrupt_on_signals
from .views import RunView, add_view_flags, choose_view

# A job that Slurm requeued may have an earlier start on a host that is cut off, and that start may still run.
_LOCK_PATIENCE = 300.0

JournalUser = Callable[[Journal], None]


def main(argv: list[str], after_run: JournalUser = lambda _: None, is_command: bool = True) -> int:
    """Run the command and return its exit code.

    ``after_run`` gets the journal of a run that was not interrupted, after its outputs were written. ``is_command``:
    this process is the command, so that a second Ctrl-C may end it.
    """
    with interrupt_on_signals(ends_process=is_command):  # from the start, because connecting to hosts may take a minute
        return run_once_inside_mpi(["run", *argv], lambda mpi: _main(argv, after_run, mpi))


def _main(argv: list[str], after_run: JournalUser, mpi: InsideMpiLauncher | None) -> int:
    options = _make_parser().read(argv)
    view = choose_view(options)
    if options.json and options.summary_line:
        raise InputError("--json and --summary-line exclude each other: with --json every line is an event")
    experiment = read_experiment(options, read_job_settings)
    if should_submit(experiment):
        _check_follows(options)
        return submit.main(options, experiment)
    if options.dry_run:
        raise InputError("--dry-run: nothing would be submitted here; trainscale plan shows what a run would do")
    target = find_target(experiment, mpi_hosts=mpi.hosts() if mpi else ())
    pythons = choose_pythons(experiment.work.frameworks, dict(experiment.resources.python or ()))
    launcher = mpi.use_access(target.access) if mpi else None
    cluster = connect_cluster(target, experiment, pythons, launcher, make_probe_requests(experiment))
    try:
        plan = make_plan(experiment, cluster.supply)
        context = RunContext(plan, cluster.launcher, pythons, retry_failed=options.retry_failed)
        return _run(argv, options, context, cluster, view, after_run)
    except TrainscaleError as error:
        _check_allocation(error, cluster.launcher)
        raise
    finally:
        cluster.launcher.close()


def _check_allocation(error: TrainscaleError, launcher: Launcher) -> None:
    """Raise AllocationEnded if an error before the first trial is due to hosts that the cluster took back."""
    reason = "" if isinstance(error, AllocationEnded) else launcher.find_end()
    if reason:
        raise AllocationEnded(f"stopped: {reason}; the same command begins again") from error


def _make_parser() -> Parser:
    parser = Parser("run", "Measure a scaling curve. The same command again continues where it stopped.")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="DIR", help="the directory for the results (default: runs/NAME)"
    )
    parser.add_argument(
        "--fresh", action="store_true", help="measure everything anew, in a new directory, even if results exist"
    )
    parser.add_argument("--retry-failed", action="store_true", help="try failed points again")
    parser.add_argument(
        "--summary-line",
        action="store_true",
        help="print lines 'key: value unit' at the end, for the patterns of ReFrame and JUBE",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the batch script that would be submitted to Slurm, then stop"
    )
    add_view_flags(parser)
    add_experiment(parser)
    return parser


def _check_follows(options: Namespace) -> None:
    """Refuse the views that only a run of this process has."""
    for flag in ("json", "quiet"):
        if getattr(options, flag):
            raise InputError(f"--{flag}: this command submits a job to Slurm; valid: trainscale watch DIR --{flag}")


def read_job_settings(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Read settings in a Slurm job from the variables of the older scripts, if neither flag nor file gives them."""
    if not is_inside_slurm(os.environ) and given.get("launcher") != SLURM:
        return {}
    legacy = read_legacy_settings(os.environ, given)
    if legacy.settings:
        print(legacy.description, file=sys.stderr)
    return legacy.settings


def _run(
    argv: list[str],
    options: Namespace,
    context: RunContext,
    cluster: Cluster,
    view: RunView,
    after_run: JournalUser,
) -> int:
    plan = context.plan
    spec = make_spec(plan)
    directory = choose_directory(options.output, options.fresh, plan, spec)
    check_directory(directory, spec)
    check_can_report()
    context = check_frameworks(context, cluster.hosts)
    print_missing(context.missing)
    images = plan.dataset.read_facts() if plan.dataset.is_real else None
    allocator = plan.experiment.resources.allocator
    facts = collect_provenance(["run", *argv], cluster.machine, context.frameworks, cluster.hosts, images, allocator)
    run = RunInfo(spec, facts)
    with open_journal(directory, run, _LOCK_PATIENCE if was_requeued(os.environ) else 0.0) as journal:
        interruption = _measure(replace(context, logs=journal.logs), journal, view)
        is_interrupted = interruption is not None
        exit_code = _finish(journal, interruption, view)
        if plan.experiment.measurement.explain and not is_interrupted:
            view.show_explanation(journal.run, journal.records)
        if options.summary_line:
            print_summary_lines(directory)
        view.end(directory, journal.run, journal.records, exit_code)
        if not is_interrupted:
            after_run(journal)
        return exit_code


def print_missing(missing: Mapping[str, str]) -> None:
    for name, reason in missing.items():
        print(f"trainscale: framework {name!r}: {reason}\n  the others are measured", file=sys.stderr)


def _measure(context: RunContext, journal: Journal, view: RunView) -> str | None:
    """Return why the run was interrupted, which may be unknown; None if it was not."""
    try:
        if needs_search(context.plan):
            with view.show_batches() as search_listener:
                context = settle_batches(context, journal, search_listener)
        if not context.plan.configs:  # nothing fits
            return None
        verdicts = check_parity(context, view.show_message)
        if context.plan.experiment.safety.parity:
            _print_verdicts(verdicts, view)
        write_parity(journal.directory, verdicts)
        if context.plan.experiment.measurement.search:
            excluded = find_failed_parity(context.plan.points, verdicts)
            context = replace(context, plan=select_configs(context.plan, lambda config: config not in excluded))
        with view.show_trials(context.usable_plan, journal, context.retry_failed) as run_listener:
            measure_plan(context, journal, run_listener)
    except KeyboardInterrupt:
        return ""
    except AllocationEnded as error:
        return str(error)
    except OSError as error:
        # The terminal went away, and with it the view that was drawn on it: that is an interruption, not a failure.
        if error.errno != errno.EIO:
            raise
        return ""
    return None


def _print_verdicts(verdicts: Sequence[Verdict], view: RunView) -> None:
    doubts = [verdict for verdict in verdicts if verdict.warning]
    for verdict in doubts:
        print(f"trainscale: {verdict.framework} {verdict.model}: {verdict.warning}", file=sys.stderr)
    if verdicts and not doubts:
        models = ", ".join(dict.fromkeys(verdict.model for verdict in verdicts))
        view.show_message(f"parity: all frameworks train the same {models}")


def _finish(journal: Journal, interruption: str | None, view: RunView) -> int:
    """Write and show the results. Return the exit code."""
    is_written = _write_outputs(journal)
    view.show_results(journal.directory, journal.run, journal.records)
    if interruption is not None:
        count = len(journal.records)
        kept = f"{count} finished trial{'s are' if count != 1 else ' is'} kept"
        view.show_message(f"stopped{f': {interruption}' if interruption else ''}; {kept}; the same command continues")
        return 130
    return 0 if is_written and all(record.ok or record.status == SKIPPED for record in journal.records) else 1


def _write_outputs(journal: Journal) -> bool:
    """Return whether all outputs could be written."""
    from ..report.outputs import write_outputs

    directory, count = journal.directory, len(journal.records)
    try:
        outputs = write_outputs(directory, journal.run, journal.records, read_parity(directory))
    except OSError as error:
        kept = f"all {count} finished trials are kept in {directory / TRIALS}"
        later = f"trainscale report {directory} writes the outputs later"
        print(f"trainscale: {error.filename or directory}: {error.strerror}; {kept}; {later}", file=sys.stderr)
        return False
    print_missing_charts(outputs)
    return True
