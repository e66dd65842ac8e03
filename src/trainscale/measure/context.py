"""What stays the same during a run: its plan, how its processes are started, what its frameworks are; and which run a
command means, by its specification and its directory.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..launch.launchers.base import Launcher
from ..spec.config import Config, compute_digest
from ..spec.groups import MeasurementSettings
from ..spec.plan import Plan
from ..worker.events import FrameworkFacts
from ..worker.job import Measure
from ..worker.type_aliases import JsonObject


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
        """The plan without the frameworks that are missing."""
        return leave_out(self.plan, self.missing)


def leave_out(plan: Plan, frameworks: Container[str]) -> Plan:
    """Return the plan without these frameworks."""
    return select_configs(plan, lambda config: config.framework not in frameworks)


def select_configs(plan: Plan, is_wanted: Callable[[Config], bool]) -> Plan:
    """Return the plan with only the wanted configs and their ladders."""
    pairs = [pair for pair in zip(plan.configs, plan.ladders, strict=True) if is_wanted(pair[0])]
    return replace(plan, configs=tuple(config for config, _ in pairs), ladders=tuple(ladder for _, ladder in pairs))


_DEFAULT_FOLDER = Path("runs")
_LEAST_STEPS, _SHORTER = 10, 5  # a short trial has a fifth of the steps, but no fewer than these


def make_spec(plan: Plan) -> JsonObject:
    """Return what makes two commands the same run: the configs and ladders they lead to, and how those are measured.

    The spelling of a command does not matter. Neither do the timeouts: a run may be continued with longer ones.
    """
    work, measurement, interface = plan.experiment.work, plan.experiment.measurement, plan.experiment.cluster.interface
    has_several_hosts = len(plan.available.hosts) > 1
    spec: JsonObject = {
        "series": [
            {**config.to_dict(), "ladder": list(counts)}
            for config, counts in zip(plan.configs, plan.ladders, strict=True)
        ],
        "warmup": measurement.warmup,
        "steps": measurement.steps,
        "seed": work.seed,
    }
    if work.max_batch is not None:
        spec["max_batch"] = work.max_batch
    if has_several_hosts:
        spec["hosts"] = plan.available.devices_per_host
    if has_several_hosts and interface:  # over another network the same ladder is another measurement
        spec["interface"] = interface
    if measurement.search:  # the space itself is in the series
        short = make_short_measure(measurement)
        spec["search"] = {"warmup": short.warmup, "steps": short.steps}
    if measurement.budget is not None:
        spec["budget"] = measurement.budget
    if measurement.until_interval is not None:
        spec["until_interval"] = measurement.until_interval
    if not measurement.is_sequential:
        spec["repeats"] = measurement.repeats
    return spec


def choose_directory(output: Path | None, fresh: bool, plan: Plan, spec: JsonObject) -> Path:
    """Return the directory of a run. Its default name comes from the spec, so the same command finds its journal.

    With ``fresh`` a number is appended until the directory is new.
    """
    directory = output or _DEFAULT_FOLDER / f"{_format_models(plan)}-{compute_digest(spec)[:6]}"
    if not fresh:
        return directory
    number, candidate = 1, directory
    while candidate.is_dir() and any(candidate.iterdir()):
        number += 1
        candidate = directory.with_name(f"{directory.name}-{number}")
    return candidate


def _format_models(plan: Plan) -> str:
    names = dict.fromkeys(config.model for config in plan.configs)
    text = "-".join(names) if len(names) < 4 else f"{len(names)}-models"
    return "".join(letter if letter.isalnum() or letter in "-_" else "-" for letter in text)[:60]


def make_short_measure(measurement: MeasurementSettings) -> Measure:
    """Return how long the short trials of a race are. The start of a trial takes longer than its steps."""
    steps = min(measurement.steps, max(_LEAST_STEPS, measurement.steps // _SHORTER))
    return Measure(max(2, measurement.warmup // 2), steps)
