"""What stays the same during a run, one trial of it, and which run a command means."""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path

from ..cluster.allocation import is_inside_slurm
from ..errors import AllocationEnded, InputError
from ..launch.launchers.base import Launcher
from ..launch.trial.trial import PortTaken, TrialSettings, Watcher, count_ports, place_trial, supervise_trial
from ..record.trial import REFUSED, Failure, TrialRecord
from ..spec.config import Config, Trial, compute_digest
from ..spec.experiment import Experiment
from ..spec.groups import MeasurementSettings
from ..spec.plan import Plan
from ..worker.events import FrameworkFacts
from ..worker.job import Measure
from ..worker.type_aliases import JsonObject

_LEAST_STEPS, _SHORTER = 10, 5  # a short trial has a fifth of the steps, but no fewer than these
_PORT_TRIES = 3
_FOR_SLURM = ("nodes", "partition", "time", "account", "gres", "sbatch")  # settings


@dataclass(frozen=True)
class RunContext:
    plan: Plan
    launcher: Launcher
    pythons: Mapping[str, str]  # the interpreter of each framework
    frameworks: Mapping[str, FrameworkFacts] = field(default_factory=dict)  # those that can be used
    missing: Mapping[str, str] = field(default_factory=dict)  # those that cannot, with the reasons
    retry_failed: bool = False
    logs: Path | None = None  # the folder for what the ranks print

    @property
    def usable_plan(self) -> Plan:
        return select_configs(self.plan, lambda config: config.framework not in self.missing)


def select_configs(plan: Plan, is_wanted: Callable[[Config], bool]) -> Plan:
    return replace(plan, ladders={c: counts for c, counts in plan.ladders.items() if is_wanted(c)})


def run_trial(
    context: RunContext,
    trial: Trial,
    measure: Measure,
    watch: Watcher = lambda _: None,
    *,
    witness: bool = False,
    memory_share: float = 0.0,
    save_weights: Path | None = None,
) -> TrialRecord:
    """Return the record of a trial. Raise AllocationEnded if the cluster took the hosts back."""
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    plan, safety = context.plan, context.plan.experiment.safety
    slots = place_trial(trial, plan.available)
    settings = TrialSettings(
        measure=measure,
        seed=plan.experiment.work.seed,
        pythons=context.pythons,
        data_dir=plan.dataset.directory,
        timeout_seconds=safety.timeout,
        stall_seconds=safety.stall_timeout,
        logs=context.logs,
        save_weights=save_weights,
        memory_share=memory_share,
        witness=witness,
        explain=plan.experiment.measurement.explain,
        keeps_compiled=plan.experiment.resources.cache,
    )
    for _ in range(_PORT_TRIES):
        try:
            record = supervise_trial(trial, slots, settings, context.launcher, watch)
        except PortTaken:
            continue
        reason = "" if record.ok else context.launcher.find_end()
        if reason:
            raise AllocationEnded(reason)
        return record
    message = f"ports were taken by other programs {_PORT_TRIES} times in a row"
    seconds, hosts = time.monotonic() - began, len(count_ports(slots))
    return TrialRecord(trial, REFUSED, started, seconds, hosts=hosts, failure=Failure(REFUSED, message))


def make_spec(plan: Plan) -> JsonObject:
    """Return what two commands of one run share. It may be continued with other timeouts."""
    work, measurement = plan.experiment.work, plan.experiment.measurement
    interface = plan.experiment.cluster.interface
    has_several_hosts = len(plan.available.hosts) > 1
    ladders = plan.ladders.items()
    spec: JsonObject = {
        "series": [{**config.to_dict(), "ladder": list(counts)} for config, counts in ladders],
        "warmup": measurement.warmup,
        "steps": measurement.steps,
        "seed": work.seed,
    }
    short = make_short_measure(measurement)
    if_set = {
        "max_batch": work.max_batch,
        "hosts": plan.available.devices_per_host if has_several_hosts else None,
        # Over another network the same ladder is another measurement.
        "interface": (interface or None) if has_several_hosts else None,
        # The space itself is in the series.
        "search": {"warmup": short.warmup, "steps": short.steps} if measurement.search else None,
        "budget": measurement.budget,
        "until_interval": measurement.until_interval,
        "repeats": None if measurement.is_sequential else measurement.repeats,
    }
    return spec | {key: value for key, value in if_set.items() if value is not None}


def choose_directory(output: Path | None, fresh: bool, plan: Plan, spec: JsonObject) -> Path:
    """Return the directory of a run, by default named after its spec. ``fresh`` appends a number."""
    if output is None:
        names = list(dict.fromkeys(config.model for config in plan.configs))
        text = "-".join(names) if len(names) < 4 else f"{len(names)}-models"
        text = "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in text)[:60]
        output = Path("runs") / f"{text}-{compute_digest(spec)[:6]}"
    number, directory = 1, output
    while fresh and directory.is_dir() and any(directory.iterdir()):
        number += 1
        directory = output.with_name(f"{output.name}-{number}")
    return directory


def make_short_measure(measurement: MeasurementSettings) -> Measure:
    steps = min(measurement.steps, max(_LEAST_STEPS, measurement.steps // _SHORTER))
    return Measure(max(2, measurement.warmup // 2), steps)


def should_submit(experiment: Experiment, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to submit a job. Settings of Slurm without effect are an InputError."""
    if is_inside_slurm(environment):
        return False
    if experiment.resources.launcher == "slurm" and experiment.cluster.nodes:
        return True
    without_effect = [key for key, value in experiment.to_dict().items() if key in _FOR_SLURM and value]
    if without_effect and experiment.resources.launcher in (None, "local", "ssh"):
        problem = f"{without_effect[0]}: no job is submitted to Slurm here"
        raise InputError(f"{problem}; valid with --launcher slurm and --nodes N")
    return False
