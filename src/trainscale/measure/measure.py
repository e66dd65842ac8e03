"""Measures an experiment: connects to its hosts, makes the plan, and runs its trials."""

from __future__ import annotations

import errno
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ..analyse.race import find_failed_parity
from ..analyse.witness import apply_verdict
from ..cluster.allocation import count_restarts
from ..errors import AllocationEnded, InputError, TrainscaleError
from ..launch.hosts import choose_pythons, combine_probes, connect_cluster
from ..launch.launchers.target import make_launcher
from ..launch.trial.state import TrialState
from ..launch.trial.trial import list_plugins
from ..record.journal import LOGS, Journal, check_directory, open_journal
from ..record.parity import write_parity
from ..record.run import RunInfo, collect_provenance
from ..record.trial import MISSING, Failure, TrialRecord
from ..spec import data
from ..spec.choices import choose_network
from ..spec.config import AUTO, Trial
from ..spec.experiment import Experiment
from ..spec.plan import Plan, make_plan
from ..worker import models
from ..worker.events import FrameworkFacts
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.inspection.host import HostFacts
from ..worker.inspection.probe import ProbeRequest, run_probes
from .context import RunContext, choose_directory, make_spec, run_trial, select_configs
from .expectations import Expectations
from .order import NextTrial, choose_next_trial, make_unmeasured, skip_for_memory

if TYPE_CHECKING:
    from ..launch.launchers.inside_mpi import InsideMpiLauncher
    from ..runs import Run

# An earlier start of a requeued job may still run on a host that is cut off.
_LOCK_PATIENCE = 300.0


class RunListener:
    """Is called while a run goes on, for its display. This one ignores everything."""

    def trial_begins(self, trial: NextTrial) -> None:
        return

    def trial_moves(self, state: TrialState) -> None:
        return

    def trial_ends(self, record: TrialRecord) -> None:
        return

    def expectation_begins(self, line: str) -> None:
        """``line`` says what is computed."""


class RunView:
    """Shows a run from its start to its end. This one shows only warnings."""

    def warn(self, text: str) -> None:
        print(f"trainscale: {text}", file=sys.stderr)

    def show_message(self, line: str) -> None:
        return

    def show_trials(self, plan: Plan, journal: Journal, retry_failed: bool) -> AbstractContextManager[RunListener]:
        return nullcontext(RunListener())

    def end(self, run: Run, interruption: str | None, exit_code: int) -> None:
        """Show the results, whose files are written. ``exit_code`` is that of the command."""


@contextmanager
def measure_experiment(
    experiment: Experiment,
    directory: Path | None,
    view: RunView,
    command: Sequence[str],
    fresh: bool = False,
    retry_failed: bool = False,
    mpi: InsideMpiLauncher | None = None,
    check: Callable[[], None] = lambda: None,
) -> Iterator[tuple[Journal, str | None]]:
    """Measure what the journal lacks. Yield it, still locked, and why the run was interrupted.

    The reason is None if it was not, empty if unknown. ``check`` is called before anything is measured.
    """
    launcher = make_launcher(experiment, mpi)
    pythons = choose_pythons(experiment.work.frameworks, dict(experiment.resources.python or ()))
    cluster = connect_cluster(launcher, experiment, pythons, make_probe_requests(experiment))
    try:
        plan = make_plan(experiment, cluster.supply)
        spec = make_spec(plan)
        directory = choose_directory(directory, fresh, plan, spec)
        check_directory(directory, spec)
        check()
        context = RunContext(plan, cluster.launcher, pythons, retry_failed=retry_failed)
        context = check_frameworks(context, cluster.hosts)
        for name, reason in context.missing.items():
            view.warn(f"framework {name!r}: {reason}\n  the others are measured")
        images = plan.dataset.facts if plan.dataset.is_real else None
        allocator = experiment.resources.allocator
        facts = collect_provenance([*command], cluster.machine, context.frameworks, cluster.hosts, images, allocator)
        patience = _LOCK_PATIENCE if count_restarts(os.environ) else 0.0
        with open_journal(directory, RunInfo(spec, facts), patience) as journal:
            context = replace(context, logs=directory / LOGS)
            yield journal, _measure_until_interrupted(context, journal, view)
    except TrainscaleError as error:
        # An error before the first trial may be due to hosts that the cluster took back.
        reason = "" if isinstance(error, AllocationEnded) else cluster.launcher.find_end()
        if reason:
            raise AllocationEnded(f"stopped: {reason}; the same command begins again") from error
        raise
    finally:
        cluster.launcher.close()


def _measure_until_interrupted(context: RunContext, journal: Journal, view: RunView) -> str | None:
    try:
        if any(config.batch == AUTO for config in context.plan.configs):
            from .batches import settle_batches

            context = settle_batches(context, journal, view.show_message)
        if not context.plan.configs:  # nothing fits
            return None
        experiment = context.plan.experiment
        configs, verdicts = context.usable_plan.configs, []
        if len({(config.framework, config.layout) for config in configs}) > 1:
            from .parity import list_unproven, prove

            if experiment.safety.parity:
                verdicts = prove(context, configs, view.show_message)
                doubts = [verdict for verdict in verdicts if verdict.warning]
                for verdict in doubts:
                    view.warn(f"{verdict.framework} {verdict.model}: {verdict.warning}")
                if verdicts and not doubts:
                    models = ", ".join(dict.fromkeys(verdict.model for verdict in verdicts))
                    view.show_message(f"parity: all frameworks train the same {models}")
            else:
                verdicts = list_unproven(configs, "--no-parity left the check out")
        write_parity(journal.directory, verdicts)
        if experiment.measurement.search:
            excluded = find_failed_parity(context.plan.points, verdicts)
            plan = select_configs(context.plan, lambda config: config not in excluded)
            context = replace(context, plan=plan)
        with view.show_trials(context.usable_plan, journal, context.retry_failed) as listener:
            measure_plan(context, journal, listener)
    except KeyboardInterrupt:
        return ""
    except AllocationEnded as error:
        return str(error)
    except OSError as error:
        # The terminal went away: that is an interruption, not a failure.
        if error.errno != errno.EIO:
            raise
        return ""
    return None


def measure_plan(context: RunContext, journal: Journal, listener: RunListener) -> None:
    """Run every trial that the journal lacks. An interruption loses only the trial under way."""
    to_repeat = set()
    for earlier in journal.records:
        # A framework that was missing and is there now is tried without --retry-failed.
        is_there_now = earlier.trial.config.framework not in context.missing
        if is_there_now if earlier.status == MISSING else context.retry_failed and not earlier.ok:
            to_repeat.add(earlier.trial.key)
    recorded = {earlier.trial.key for earlier in journal.records}
    for config, devices in context.plan.points:
        trial = Trial(config, devices, repeat=0)
        if config.framework in context.missing and trial.key not in recorded:
            failure = Failure(MISSING, context.missing[config.framework])
            journal.append(make_unmeasured(context.plan, trial, failure))
    plan = context.usable_plan
    expectations = Expectations(context, listener.expectation_begins)
    while True:
        step = choose_next_trial(plan, [r for r in journal.records if r.trial.key not in to_repeat])
        if step is None:
            return
        listener.trial_begins(step)
        record = skip_for_memory(plan, step.trial, journal.records)
        if record is None:
            expectation = expectations.find(step.trial)
            has_witness = not isinstance(expectation, str)
            moves = listener.trial_moves
            measured = run_trial(context, step.trial, step.measure, moves, witness=has_witness)
            record = apply_verdict(measured, expectation)
        journal.append(record)
        to_repeat.discard(record.trial.key)
        listener.trial_ends(record)


# ---- which frameworks can be used


def make_probe_requests(experiment: Experiment) -> list[ProbeRequest]:
    """Return what to ask each framework before there is a plan."""
    work = experiment.work
    dataset = data.find_dataset(work.data)
    requests = []
    for name in dict.fromkeys(text.lower() for text in work.frameworks):
        if name not in FRAMEWORKS:
            continue  # the plan says so
        framework = FRAMEWORKS[name]
        layout = (work.layout or framework.layouts["cpu"])[0]
        networks = [choose_network(text, framework, work, dataset) for text in work.models]
        configs = [replace(config, layout=layout) for config, _ in networks]
        plugins = {plugin.reference: plugin for config in configs for plugin in list_plugins(config)}
        users_networks = [config for config in configs if models.resolve(config.model) is None]
        request = ProbeRequest(name, users_networks, [str(Path.cwd())], [*plugins.values()], dataset.needs)
        requests.append(request)
    return requests


def check_frameworks(context: RunContext, hosts: Mapping[str, HostFacts] | None = None) -> RunContext:
    """Return the context with the facts of each framework, or why it is missing.

    Without ``hosts``, frameworks are imported on this machine now.
    """
    plan = context.plan
    names = list(dict.fromkeys(config.framework for config in plan.configs))
    if hosts:
        answers = {name: combine_probes(hosts, name) for name in names}
    else:
        plan.dataset.check()
        answers = run_probes(context.pythons, make_probe_requests(plan.experiment))
    frameworks: dict[str, FrameworkFacts] = {}
    missing: dict[str, str] = {}
    for name in names:
        facts = answers[name]
        if not facts.is_available:
            get = f"; get it with: {facts.install_command}" if facts.install_command else ""
            missing[name] = f"{facts.reason}{get}"
            continue
        if plan.available.kind == "cuda" and not facts.gpus:
            missing[name] = f"device 'cuda': version {facts.version} sees no GPU; valid: --device cpu"
            continue
        for model, result in facts.models.items():
            if isinstance(result, str):
                raise InputError(f"model {model!r} cannot be built: {result}")
        frameworks[name] = facts
    if not frameworks:
        reasons = "\n".join(f"framework {name!r}: {reason}" for name, reason in missing.items())
        command = "trainscale check"
        if hosts:
            file = plan.experiment.cluster.hosts
            command += f" --hosts {shlex.quote(file)}" if file else f" --launcher {context.launcher.name}"
        raise InputError(f"{reasons}\n  see: {command}")
    return replace(context, frameworks=frameworks, missing=missing)
