"""The candidates of one or several runs, in groups that do the same work, and their value by each criterion.

Only within a group is anything best. Trials of equal setups are pooled, from whichever runs they come.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ...analyse.race import neutralise_choices
from ...analyse.series import compute_training_seconds, count_epochs_to, drop_superseded
from ...analyse.statistics import (
    CONFIDENCE,
    LEAST_REPEATS,
    Estimate,
    Interval,
    make_estimate,
    mean_interval,
    ratio,
)
from ...analyse.throughput import (
    JOULES_PER_WATT_HOUR,
    MILLION,
    Price,
    compute_energy_per_sample,
    compute_samples_per_second,
    is_measured,
)
from ...analyse.titles import describe_differences, find_model_title
from ...analyse.witness import find_point_verdict
from ...record.decoding import find_first_line
from ...record.parity import FAILED, REFUTED, UNPROVEN, Verdict, find_verdict
from ...record.run import RunInfo
from ...record.trial import TrialRecord
from ...spec.config import Config
from ...worker.job import ASYNCHRONOUS

if TYPE_CHECKING:
    from ...runs import Run

SPEED, EFFICIENCY, TIME, MEMORY, COST = CRITERIA = ("images/s", "efficiency", "time-to-accuracy", "memory", "cost")

# The counts of a rank's memory, the most exact first.
_MEMORY_COUNTS = ("nvml_peak_bytes", "device_peak_bytes", "host_peak_bytes")


@dataclass(frozen=True)
class Question:
    """By what to choose. ``accuracy`` replaces the accuracy to which the runs were to train."""

    by: str = SPEED
    price: Price | None = None
    accuracy: float | None = None

    @property
    def more_is_better(self) -> bool:
        return self.by in (SPEED, EFFICIENCY)


@dataclass(frozen=True)
class Quantity:
    """A positive quantity: a factor times some estimates, divided by others."""

    numerators: tuple[Estimate, ...]
    denominators: tuple[Estimate, ...] = ()
    factor: float = 1.0

    @property
    def value(self) -> float:
        tops, bottoms = ((part.mean for part in parts) for parts in (self.numerators, self.denominators))
        return self.factor * math.prod(tops) / math.prod(bottoms)

    def scaled(self, factor: float) -> Quantity:
        return replace(self, factor=self.factor * factor)

    def over(self, other: Quantity) -> Quantity:
        """Return the ratio to another quantity, which is independent."""
        numerators, denominators = self.numerators + other.denominators, self.denominators + other.numerators
        return Quantity(numerators, denominators, self.factor / other.factor)

    def compute_interval(self, error: float = 1 - CONFIDENCE) -> Interval:
        """Return the interval that misses the true value with probability ``error``."""
        return ratio(self.numerators, self.denominators, 1 - error).scaled(self.factor)


def estimate_mean(values: Sequence[float], sequential: bool = False) -> Quantity:
    """Return the mean of positive run means. ``sequential``: the values themselves decided how many there are."""
    return Quantity((make_estimate(mean_interval(values, sequential), len(values), sequential),))


@dataclass(frozen=True)
class Setup:
    """A config with what it ran on."""

    config: Config
    machine: str
    versions: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Candidate:
    """A setup on one device count. ``value`` is by the criterion that was asked for."""

    setup: Setup
    devices: int
    records: tuple[TrialRecord, ...]  # good and failed
    baseline: tuple[TrialRecord, ...]  # those of its 1-device point
    parity: Verdict | None
    is_sequential: bool  # whether the values decided how often it was repeated
    name: str = ""  # unique within the work
    value: Interval | None = None
    cost_per_million: Interval | None = field(default=None)

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
    def unit(self) -> str:
        return self.good[0].unit

    @property
    def speeds(self) -> list[float]:
        return [compute_samples_per_second(record) for record in self.good]

    @property
    def samples_per_second(self) -> Interval:
        return mean_interval(self.speeds, self.is_sequential)

    @property
    def energy_per_million(self) -> Interval | None:
        """Watt-hours; None where no trial, or not every one, recorded it."""
        joules = [compute_energy_per_sample(record) for record in self.good]
        known = [value for value in joules if value is not None]
        if not known or len(known) < len(joules):
            return None
        return mean_interval(known, self.is_sequential).scaled(MILLION / JOULES_PER_WATT_HOUR)

    @property
    def marks(self) -> tuple[str, ...]:
        """What is not proven, or went wrong."""
        good, marks = self.good, []
        if self.parity and self.parity.state == UNPROVEN:
            marks.append("parity unproven")
        witness = find_point_verdict(good)
        if witness and witness.state == UNPROVEN:
            marks.append("work unproven")
        if self.config.strategy in ASYNCHRONOUS:
            marks.append("asynchronous: it may learn less from an image")
        if len(good) < len(self.records):
            marks.append(f"{len(self.records) - len(good)} of {len(self.records)} repeats failed")
        if len(good) < LEAST_REPEATS:
            marks.append(f"measured {'once' if len(good) == 1 else 'twice'} only")
        return tuple(marks)

    @property
    def reason_against(self) -> str:
        """Why it must not be offered, whatever its value. Empty if it may be."""
        if self.parity and self.parity.state == FAILED:
            return f"parity failed: {self.parity.warning}"
        refuted = next((record for record in self.records if record.status == REFUTED), None)
        if refuted:
            return f"a trial did not do its work: {find_first_line(refuted.failure.message) if refuted.failure else ''}"
        if self.config.strategy == "independent":
            return "nothing is exchanged: an upper bound, not training"
        if not self.good:
            failure = self.records[-1].failure
            return f"{failure.kind}: {find_first_line(failure.message)}" if failure else "no trial has a result"
        return ""

    def estimate_cost(self, price: Price) -> Quantity:
        """Return the cost of a million samples."""
        per_second = price.compute_price_per_second(self.devices, self.hosts)
        return Quantity(()).over(estimate_mean(self.speeds, self.is_sequential)).scaled(per_second * MILLION)

    def list_memory_peaks(self, name: str) -> list[float]:
        """Return for each good trial the largest peak of a rank, or nothing where a trial has none."""
        sizes = [[getattr(rank, name) for rank in record.ranks] for record in self.good]
        peaks = [max((size for size in of_trial if size is not None), default=0) for of_trial in sizes]
        return [float(peak) for peak in peaks] if all(peaks) else []


def estimate_value(candidate: Candidate, question: Question, memory_count: str) -> Quantity | str:
    """Return the value of a candidate that has a good trial, or the reason why it has none by this criterion."""
    is_sequential = candidate.is_sequential
    speed = estimate_mean(candidate.speeds, is_sequential)
    if question.by == SPEED:
        return speed
    if question.by == COST:
        assert question.price is not None
        return candidate.estimate_cost(question.price)
    if question.by == EFFICIENCY:
        if candidate.devices == 1:
            return "the efficiency of one device is 1 by definition"
        baseline = [compute_samples_per_second(record) for record in candidate.baseline if is_measured(record)]
        if not baseline:
            return "its point on one device was not measured, so it has no efficiency"
        return speed.over(estimate_mean(baseline, is_sequential)).scaled(1 / candidate.devices)
    if question.by == MEMORY:
        peaks = candidate.list_memory_peaks(memory_count)
        return estimate_mean(peaks, is_sequential) if peaks else "its memory was not recorded"
    trained = [record for record in candidate.good if record.epochs]
    if not trained:
        return "it was not trained to an accuracy"
    target = candidate.config.until_accuracy if question.accuracy is None else question.accuracy
    if target is None:
        return "no accuracy is given; --until-accuracy names one"
    counts = [count_epochs_to(record, target) for record in trained]
    reached = sum(count is not None for count in counts)
    if reached < len(trained):
        return f"{reached} of {len(trained)} repeats reached an accuracy of {target:g}"
    times = [compute_training_seconds(record, count) for record, count in zip(trained, counts, strict=True)]
    return estimate_mean(times, is_sequential)


def choose_memory_count(candidates: Sequence[Candidate]) -> str:
    """Return the most exact count of memory that all candidates have; without one, that of the host."""
    counts = (name for name in _MEMORY_COUNTS if all(each.list_memory_peaks(name) for each in candidates))
    return next(counts, _MEMORY_COUNTS[-1])


# ---- the candidates of runs


def group_by_work(runs: Sequence[Run]) -> list[tuple[str, list[Candidate]]]:
    """Return the title and the candidates of every work, in order of first appearance."""
    groups: defaultdict[tuple[Config, str], list[Candidate]] = defaultdict(list)
    for candidate in _collect_candidates(runs):
        groups[neutralise_choices(candidate.config), candidate.setup.machine].append(candidate)
    works = [work for work, _ in groups]
    has_machines = len({machine for _, machine in groups}) > 1
    result = []
    for (work, machine), candidates in groups.items():
        alike = [other for other in works if (other.model, other.scaling) == (work.model, work.scaling)]
        details = [*describe_differences(alike)[work], *([machine] if has_machines else [])]
        title = " · ".join([find_model_title(work.model), f"{work.scaling} scaling", *details])
        names = _name_setups(list(dict.fromkeys(candidate.setup for candidate in candidates)))
        result.append((title, [replace(candidate, name=names[candidate.setup]) for candidate in candidates]))
    return result


def _collect_candidates(runs: Sequence[Run]) -> list[Candidate]:
    records: defaultdict[Setup, defaultdict[int, list[TrialRecord]]] = defaultdict(lambda: defaultdict(list))
    verdicts: dict[Setup, Verdict | None] = {}
    sequential: set[Setup] = set()
    for run in runs:
        machine = _describe_machines(run.info)
        versions = {record.trial.config: record.versions for record in run.records if record.versions}
        for record in drop_superseded(run.records):
            config = record.trial.config
            own = record.versions or versions.get(config, {})
            setup = Setup(config, machine, tuple(sorted(own.items())))
            records[setup][record.trial.devices].append(record)
            # Where several runs judged a config, the verdict that says more against it counts.
            judged = [verdict for verdict in (verdicts.get(setup), find_verdict(config, run.parity)) if verdict]
            verdicts[setup] = next((verdict for verdict in judged if verdict.warning), judged[0] if judged else None)
            if run.info.is_sequential:
                sequential.add(setup)
    return [
        Candidate(
            setup,
            devices,
            tuple(of_point),
            baseline=tuple(by_devices.get(1, ())),
            parity=verdicts[setup],
            is_sequential=setup in sequential or any(record.trial.short for record in of_point),
        )
        for setup, by_devices in records.items()
        for devices, of_point in by_devices.items()
    ]


def _name_setups(setups: Sequence[Setup]) -> dict[Setup, str]:
    """Return framework and strategy of each setup, then the other choices in which they differ, and the versions."""
    parts = describe_differences([setup.config for setup in setups])
    names = {}
    for setup in setups:
        name = [setup.config.framework, setup.config.strategy_label]
        name += [part for part in parts[setup.config] if part not in name]
        others = [{*other.versions} for other in setups if other.config == setup.config and other != setup]
        name += [" ".join(version) for version in setup.versions if any(version not in versions for versions in others)]
        names[setup] = " · ".join(name)
    return names


def _describe_machines(run: RunInfo) -> str:
    """Return the devices that a run had, in words. Empty where an old run did not record them."""
    provenance = run.read_provenance()
    machines = list((provenance.hosts or {}).values()) or ([provenance.machine] if provenance.machine else [])
    texts = []
    for machine in machines:
        if machine.gpus:
            texts.append(f"{len(machine.gpus)} × {machine.gpus[0]}")
        else:
            texts.append(f"{machine.cores} cores of {machine.cpu}" if machine.cpu else "")
    return ", ".join(dict.fromkeys(texts))
