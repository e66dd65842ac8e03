"""The measured points of one or several runs, in groups that do the same work: only within a group is anything best."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from ...record.parity import Verdict, find_verdict
from ...record.run import RecordedMachine, RunInfo
from ...record.trial import TrialRecord
from ...spec.config import Config
from ..series import drop_superseded
from ..throughput import compute_samples_per_second, is_measured
from ..titles import describe_differences, find_model_title

# What a person may choose for the same work. Two configs that differ in anything else answer different questions.
CHOICES = (
    "framework", "strategy", "servers", "server_placement", "servers_per_host", "placement", "batch", "precision",
    "layout", "compile", "loaders", "allocator", "learning_rate", "momentum", "weight_decay", "schedule",
    "warmup_epochs", "epochs",
)  # fmt: skip


@dataclass(frozen=True)
class RecordedRun:
    """A run as it is on the disk."""

    run: RunInfo
    records: Sequence[TrialRecord]
    verdicts: Sequence[Verdict] = ()


@dataclass(frozen=True)
class Setup:
    """A config with what it ran on. Trials of equal setups are pooled, from whichever runs they come."""

    config: Config
    machine: str
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class MeasuredPoint:
    """All trials of a setup on one device count, good or failed, with those of its 1-device point."""

    setup: Setup
    devices: int
    records: tuple[TrialRecord, ...]
    baseline: tuple[TrialRecord, ...]
    parity: Verdict | None
    is_sequential: bool  # whether the values decided how often the point was repeated

    @property
    def config(self) -> Config:
        return self.setup.config

    @property
    def good(self) -> list[TrialRecord]:
        return [record for record in self.records if is_measured(record)]

    @property
    def hosts(self) -> int:
        return max(record.hosts for record in self.records)

    @property
    def speeds(self) -> list[float]:
        return [compute_samples_per_second(record) for record in self.good]


@dataclass(frozen=True)
class Work:
    """Points that do the same work. ``names`` has a short name for every setup, unique within the work."""

    title: str
    points: tuple[MeasuredPoint, ...]
    names: dict[Setup, str]

    @property
    def device_counts(self) -> list[int]:
        return sorted({point.devices for point in self.points})


def group_by_work(runs: Sequence[RecordedRun]) -> list[Work]:
    """Return the works of all runs, in order of first appearance."""
    groups: defaultdict[tuple[Config, str], list[MeasuredPoint]] = defaultdict(list)
    for point in _collect_measured_points(runs):
        groups[neutralise_choices(point.config), point.setup.machine].append(point)
    works = [work for work, _ in groups]
    has_machines = len({machine for _, machine in groups}) > 1
    result = []
    for (work, machine), points in groups.items():
        alike = [other for other in works if (other.model, other.scaling) == (work.model, work.scaling)]
        details = [*describe_differences(alike)[work], *([machine] if has_machines else [])]
        title = " · ".join([find_model_title(work.model), f"{work.scaling} scaling", *details])
        setups = list(dict.fromkeys(point.setup for point in points))
        result.append(Work(title, tuple(points), _name_setups(setups)))
    return result


def _collect_measured_points(runs: Sequence[RecordedRun]) -> list[MeasuredPoint]:
    records: defaultdict[Setup, defaultdict[int, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    verdicts: dict[Setup, Verdict | None] = {}
    sequential: set[Setup] = set()
    for run in runs:
        machine = _describe_machine(run.run)
        versions = {record.trial.config: record.versions for record in run.records if record.versions}
        for record in drop_superseded(run.records):
            config = record.trial.config
            own = record.versions or versions.get(config, {})
            setup = Setup(config, machine, tuple(sorted(own.items())))
            records[setup][record.trial.devices].append(record)
            verdicts[setup] = _choose_worse(verdicts.get(setup), find_verdict(config, run.verdicts))
            if run.run.is_sequential:
                sequential.add(setup)
    return [
        MeasuredPoint(
            setup,
            n,
            tuple(of_point),
            tuple(by_devices.get(1, ())),
            verdicts[setup],
            is_sequential=setup in sequential or any(record.trial.short for record in of_point),
        )
        for setup, by_devices in records.items()
        for n, of_point in by_devices.items()
    ]


def _choose_worse(first: Verdict | None, second: Verdict | None) -> Verdict | None:
    """Return the verdict that says more against a config, where several runs judged it."""
    verdicts = [verdict for verdict in (first, second) if verdict is not None]
    return next((verdict for verdict in verdicts if verdict.warning), verdicts[0] if verdicts else None)


def neutralise_choices(config: Config) -> Config:
    """Return the config with the same value for every choice, so that configs of the same work become equal."""
    neutral: dict[str, Any] = {field.name: field.default for field in fields(Config) if field.name in CHOICES}
    neutral |= {"framework": "", "strategy": "", "batch": 0, "epochs": int(config.trains_epochs)}
    return replace(config, **neutral)


def _name_setups(setups: Sequence[Setup]) -> dict[Setup, str]:
    """Return framework and strategy of each setup, then the other choices in which they differ."""
    parts = describe_differences([setup.config for setup in setups])
    names = {setup: [setup.config.framework, setup.config.strategy_label] for setup in setups}
    for setup, name in names.items():
        name += [part for part in parts[setup.config] if part not in name]
        alike = [other for other in setups if other.config == setup.config]
        name += _list_version_differences(setup, alike)
    return {setup: " · ".join(name) for setup, name in names.items()}


def _list_version_differences(setup: Setup, alike: Iterable[Setup]) -> list[str]:
    others = [set(other.versions) for other in alike if other != setup]
    return [f"{name} {version}" for name, version in setup.versions if any((name, version) not in o for o in others)]


def _describe_machine(run: RunInfo) -> str:
    """Return the devices that a run had, in words. Empty where an old run did not record them."""
    provenance = run.read_provenance()
    machines = list((provenance.hosts or {}).values()) or ([provenance.machine] if provenance.machine else [])
    return ", ".join(dict.fromkeys(_describe(machine) for machine in machines if machine))


def _describe(machine: RecordedMachine) -> str:
    if machine.gpus:
        return f"{len(machine.gpus)} × {machine.gpus[0]}"
    return f"{machine.cores} cores of {machine.cpu}" if machine.cpu else ""
