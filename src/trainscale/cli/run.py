"""``trainscale run``: measure a scaling curve, from one command to the plots."""

from __future__ import annotations

import errno
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ..cluster.allocation import inside_slurm, read_legacy_settings
from ..cluster.target import SLURM
from ..errors import InputError
from ..launch.inspection.cluster import Cluster, connect_cluster
from ..launch.inspection.pythons import choose_pythons
from ..launch.launchers.base import Launcher
from ..launch.launchers.inside_mpi import InsideMpiLauncher, run_once_inside_mpi
from ..launch.launchers.target import find_target
from ..record.journal import Journal, check_directory, open_journal
from ..record.parity import read_parity, write_parity
from ..record.provenance import provenance
from ..record.run import RunInfo
from ..run.measure import measure_plan, spec_of, without
from ..spec.config import digest
from ..spec.experiment import Experiment
from ..spec.plan import Plan, make_plan
from . import submit
from .batches import settle_batches
from .parser import Parser, add_experiment, read_experiment
from .preflight import Facts, check_parity, preflight
from .signals import signals_interrupt

DEFAULT_FOLDER = Path("runs")


def main(words: list[str], and_then: Callable[[Journal], None] = lambda _: None) -> int:
    """``and_then`` gets the journal of a run that was not interrupted, after its outputs were written."""
    return run_once_inside_mpi(["run", *words], lambda company: _main(words, and_then, company))


def _main(words: list[str], and_then: Callable[[Journal], None], company: InsideMpiLauncher | None) -> int:
    parser = Parser("run", "Measure a scaling curve. The same command again continues where it stopped.")
    parser.add_argument("-o", "--output", type=Path, metavar="DIR", help="where results go (default: runs/NAME)")
    parser.add_argument(
        "--fresh", action="store_true", help="measure anew, in a new directory, even if this was measured"
    )
    parser.add_argument("--retry-failed", action="store_true", help="try the points again that failed")
    parser.add_argument(
        "--dry-run", action="store_true", help="print the batch script that would be submitted to Slurm, and end"
    )
    add_experiment(parser)
    options = parser.read(words)
    experiment = read_experiment(options, settings_of_job)
    if submit.wanted(experiment):
        return submit.run(words, options, experiment, choose_directory)
    if options.dry_run:
        raise InputError("--dry-run: nothing would be submitted here; trainscale plan says what a run would do")
    place = find_target(experiment, mpi_hosts=company.hosts() if company else ())
    pythons = choose_pythons(experiment.work.frameworks, dict(experiment.resources.python or ()))
    reached = connect_cluster(place, experiment, pythons, company.using(place.access) if company else None)
    try:
        return _run(words, options, experiment, reached, pythons, and_then)
    finally:
        reached.launcher.close()


def _run(
    words: list[str],
    options: Namespace,
    experiment: Experiment,
    reached: Cluster,
    pythons: Mapping[str, str],
    and_then: Callable[[Journal], None],
) -> int:
    plan = make_plan(experiment, reached.supply)
    spec = spec_of(plan)
    directory = choose_directory(options.output, options.fresh, plan, spec)
    check_directory(directory, spec)
    facts, missing = preflight(plan, pythons, reached.launcher)
    images = plan.images.facts() if plan.images.real else None
    run = RunInfo(spec, provenance(["run", *words], reached.machine, facts, reached.hosts, images))
    with open_journal(directory, run) as journal, signals_interrupt():
        interrupted = _measure(plan, journal, reached.launcher, pythons, facts, missing, options.retry_failed)
        code = _finish(journal, interrupted)
        if not interrupted:
            and_then(journal)
        return code


def settings_of_job(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Inside a Slurm job, return the settings of the older scripts' variables that neither flag nor file gives."""
    if not inside_slurm(os.environ) and given.get("launcher") != SLURM:
        return {}
    legacy = read_legacy_settings(os.environ, given)
    if legacy.settings:
        print(legacy.description, file=sys.stderr)
    return legacy.settings


def choose_directory(output: Path | None, fresh: bool, plan: Plan, spec: dict[str, Any]) -> Path:
    """By default named after the experiment, so that the same command finds its journal again."""
    named = output or DEFAULT_FOLDER / f"{_slug(plan)}-{digest(spec)[:6]}"
    if not fresh:
        return named
    number, candidate = 1, named
    while candidate.is_dir() and any(candidate.iterdir()):
        number += 1
        candidate = named.with_name(f"{named.name}-{number}")
    return candidate


def _slug(plan: Plan) -> str:
    names = dict.fromkeys(config.model for config in plan.configs)
    text = "-".join(names) if len(names) < 4 else f"{len(names)}-models"
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in text)[:60]


def _measure(
    plan: Plan,
    journal: Journal,
    how: Launcher,
    pythons: Mapping[str, str],
    facts: Facts,
    missing: Mapping[str, str],
    retry_failed: bool,
) -> bool:
    """Whether the person stopped it."""
    from .live import live

    try:
        plan = settle_batches(plan, journal, how, pythons, missing, retry_failed)
        if not plan.configs:  # nothing fits
            return False
        write_parity(journal.directory, check_parity(plan, pythons, facts, missing, how))
        with live(without(plan, missing), journal, retry_failed) as listener:
            measure_plan(plan, journal, how, pythons, listener, retry_failed, missing)
    except KeyboardInterrupt:
        return True
    except OSError as error:
        # The terminal went away, with the view that was drawn on it: that is an interruption too, not a failure.
        if error.errno != errno.EIO:
            raise
        return True
    return False


def _finish(journal: Journal, interrupted: bool) -> int:
    from ..report.outputs import write_outputs
    from .results import print_results

    verdicts = read_parity(journal.directory)
    write_outputs(journal.directory, journal.run, journal.records, verdicts)
    print_results(journal.directory, journal.records, verdicts, journal.run)
    if interrupted:
        kept = len(journal.records)
        print(f"stopped; {kept} finished trial{'s are' if kept != 1 else ' is'} kept; the same command continues")
        return 130
    return 0 if all(record.ok for record in journal.records) else 1
