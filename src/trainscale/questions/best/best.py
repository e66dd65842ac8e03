"""The best configuration of every device count, and whether its lead is more than noise.

Only candidates that do the same work are compared; equal setups are pooled over runs. The leader has the best mean
of k. Each other one is compared with it by Welch's t interval on the ratio, at a level divided by k - 1 (Bonferroni).
So the truly best one is with 95 % the leader or one that does not differ from it, although the data chose the leader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean, variance
from typing import TYPE_CHECKING

from ...analyse.race import neutralise_choices, replay_races_of_run
from ...analyse.series import column, compute_training_seconds, count_epochs_to, drop_superseded
from ...analyse.statistics import (
    CONFIDENCE,
    LEAST_REPEATS,
    Estimate,
    Interval,
    make_estimate,
    mean_interval,
    ratio,
    ratio_interval,
    student_t,
)
from ...analyse.throughput import (
    JOULES_PER_WATT_HOUR,
    MILLION,
    Price,
    average_energy_per_sample,
    is_measured,
    list_speeds,
)
from ...analyse.titles import describe_differences, find_model_title
from ...analyse.witness import find_point_verdict
from ...record.decoding import find_first_line
from ...record.parity import FAILED, REFUTED, UNPROVEN, Verdict, find_verdict
from ...record.trial import TrialRecord
from ...spec.config import Config, PointKey
from ...worker.job import ASYNCHRONOUS

if TYPE_CHECKING:
    from ...runs import Run

SPEED, EFFICIENCY, TIME, MEMORY, COST = CRITERIA = ("images/s", "efficiency", "time-to-accuracy", "memory", "cost")

# What is known about the lead of the best candidate.
CLEAR, TIE, UNKNOWN, ONLY, NONE = "clear", "tie", "unknown", "only", "none"

# The counts of a rank's memory, the most exact first.
_MEMORY_COUNTS = ("nvml_peak_bytes", "device_peak_bytes", "host_peak_bytes")

# A config, with the machines and the versions that it ran on.
Setup = tuple[Config, str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Question:
    """By what to choose. ``accuracy`` replaces that of the runs."""

    by: str = SPEED
    price: Price | None = None
    accuracy: float | None = None

    @property
    def more_is_better(self) -> bool:
        return self.by in (SPEED, EFFICIENCY)


@dataclass(frozen=True)
class Quantity:
    """A factor times some estimates, divided by others."""

    numerators: tuple[Estimate, ...]
    denominators: tuple[Estimate, ...] = ()
    factor: float = 1.0

    def over(self, other: Quantity) -> Quantity:
        return Quantity(
            self.numerators + other.denominators,
            self.denominators + other.numerators,
            self.factor / other.factor,
        )

    def compute_interval(self, error: float = 1 - CONFIDENCE) -> Interval:
        return ratio(self.numerators, self.denominators, 1 - error).scaled(self.factor)


def estimate_mean(values: Sequence[float], sequential: bool = False) -> Quantity:
    """Estimate the mean. ``sequential``: the values decided how many there are."""
    return Quantity((make_estimate(mean_interval(values, sequential), len(values), sequential),))


@dataclass(frozen=True)
class Candidate:
    """A configuration on one device count. ``value`` is by the criterion."""

    config: Config
    devices: int
    records: tuple[TrialRecord, ...]  # good and failed
    baseline: tuple[TrialRecord, ...] = ()  # those of its 1-device point
    parity: Verdict | None = None
    is_sequential: bool = False  # whether the values decided how often it was repeated
    name: str = ""  # unique within the work, on one device count
    value: Interval | None = None
    cost_per_million: Interval | None = None
    reason: str = ""  # why it is not offered

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
        return list_speeds(self.records)

    @property
    def samples_per_second(self) -> Interval:
        return mean_interval(self.speeds, self.is_sequential)

    @property
    def energy_per_million(self) -> Interval | None:
        """Watt-hours; None unless every trial recorded it."""
        energy = average_energy_per_sample(self.records, self.is_sequential)
        return energy.scaled(MILLION / JOULES_PER_WATT_HOUR) if energy else None

    @property
    def marks(self) -> tuple[str, ...]:
        good, count = len(self.good), len(self.records)
        witness = find_point_verdict(self.good)
        marks = {
            "parity unproven": self.parity and self.parity.state == UNPROVEN,
            "work unproven": witness and witness.state == UNPROVEN,
            "asynchronous: it may learn less from an image": self.config.strategy in ASYNCHRONOUS,
            f"{count - good} of {count} repeats failed": good < count,
            f"measured {'once' if good == 1 else 'twice'} only": good < LEAST_REPEATS,
        }
        return tuple(mark for mark, is_set in marks.items() if is_set)

    def estimate_cost(self, price: Price) -> Quantity:
        """Estimate the price of a million samples."""
        per_second = price.compute_price_per_second(self.devices, self.hosts)
        speed = estimate_mean(self.speeds, self.is_sequential)
        return Quantity((), speed.numerators, per_second * MILLION)

    def list_memory_peaks(self, name: str) -> list[float]:
        """Return the largest peak of each good trial; nothing if any lacks it."""
        peaks = [max((getattr(rank, name) or 0 for rank in record.ranks), default=0) for record in self.good]
        return list(map(float, peaks)) if all(peaks) else []


@dataclass(frozen=True)
class Rival:
    """Another candidate. ``lead``: how many times better the leader is."""

    candidate: Candidate
    lead: Interval
    differs: bool | None  # whether the difference is more than noise; None where there are too few repeats


@dataclass(frozen=True, kw_only=True)
class BestChoice:
    """The best configuration of a network on one device count."""

    work: str = column("network and scaling mode")
    devices: int = column("workers")
    leader: Candidate | None = column("the best candidate with its trials; None if none can be offered", repr=False)
    others: tuple[Rival, ...] = column("the other candidates, the runner-up first", repr=False)
    left_out: tuple[Candidate, ...] = column("configurations that are not offered, and why", repr=False)

    @property
    def configuration(self) -> str | None:
        """The best that was measured; None if none can be offered."""
        return self.leader.name if self.leader else None

    @property
    def verdict(self) -> str:
        """``clear``, ``tie``, ``unknown`` (too few repeats), ``only`` (nothing else was measured) or ``none``."""
        if self.leader is None:
            return NONE
        if not self.others:
            return ONLY
        differs = {other.differs for other in self.others}
        return TIE if False in differs else UNKNOWN if None in differs else CLEAR

    @property
    def value(self) -> Interval | None:
        """By the criterion that was asked for."""
        return self.leader.value if self.leader else None

    @property
    def samples_per_second(self) -> Interval | None:
        """Throughput of the whole cluster, in samples/s."""
        return self.leader.samples_per_second if self.leader else None

    @property
    def runner_up(self) -> str | None:
        """The next best configuration."""
        return self.others[0].candidate.name if self.others else None

    @property
    def lead(self) -> Interval | None:
        """How many times better the best is than the runner-up."""
        return self.others[0].lead if self.others else None


@dataclass(frozen=True)
class Step:
    """What a step from ``before`` to ``after`` devices gains and costs, along the leaders.

    Costs are infinite where nothing is gained, and have an infinite upper limit where that is possible.
    """

    before: int
    after: int
    gained: Interval  # samples/s
    factor: Interval  # the cost of a gained sample divided by that of one before
    cost_per_million: Interval | None = None  # of gained samples


@dataclass(frozen=True)
class Work:
    """The choices of one network and scaling mode, and their steps."""

    title: str
    choices: tuple[BestChoice, ...]
    steps: tuple[Step, ...]

    @property
    def leaders(self) -> list[Candidate]:
        return [choice.leader for choice in self.choices if choice.leader]


@dataclass(frozen=True, kw_only=True)
class BestChoices:
    """The best configurations of one or several runs."""

    question: Question = column("by what was chosen, with price and accuracy", repr=False)
    works: tuple[Work, ...] = column("the choices by network and scaling mode", repr=False)

    @property
    def by(self) -> str:
        """The criterion: images/s, efficiency, time-to-accuracy, memory or cost."""
        return self.question.by

    @property
    def choices(self) -> tuple[BestChoice, ...]:
        """One for each network and device count."""
        return tuple(choice for work in self.works for choice in work.choices)

    @cached_property
    def text(self) -> str:
        """The same as Markdown."""
        from .text import render_markdown

        return render_markdown(self)

    def _repr_markdown_(self) -> str:
        return self.text


def find_best(runs: Sequence[Run], question: Question) -> BestChoices:
    departures = {
        (departure.key, race.devices): (
            f"it left the search after round {departure.round}: {departure.reason},"
            f" {departure.ratio.mean:.2f} of its speed"
        )
        for run in runs
        for race in replay_races_of_run(run.info, run.records, run.parity)
        for departure in race.departures
        if departure.ratio is not None
    }
    works = []
    for title, candidates in collect_candidates(runs):
        choices = tuple(
            _choose(title, [each for each in candidates if each.devices == count], question, departures)
            for count in sorted({candidate.devices for candidate in candidates})
        )
        leaders = [choice.leader for choice in choices if choice.leader]
        steps = [compute_step_cost(old, new, question.price) for old, new in pairwise(leaders)]
        works.append(Work(title, choices, tuple(steps)))
    return BestChoices(question=question, works=tuple(works))


def collect_candidates(runs: Sequence[Run]) -> list[tuple[str, list[Candidate]]]:
    records: dict[Setup, dict[int, list[TrialRecord]]] = {}
    verdicts: dict[Setup, Verdict | None] = {}
    sequential: set[Setup] = set()
    for run in runs:
        machines = []  # the devices of each in words; empty where an old run did not record them
        for machine in run.info.read_provenance().machines:
            cores = f"{machine.cores} cores of {machine.cpu}" if machine.cpu else ""
            machines.append(f"{len(machine.gpus)} × {machine.gpus[0]}" if machine.gpus else cores)
        known_versions = {record.trial.config: record.versions for record in run.records if record.versions}
        for record in drop_superseded(run.records):
            config = record.trial.config
            own = record.versions or known_versions.get(config, {})
            setup = (config, ", ".join(dict.fromkeys(machines)), tuple(sorted(own.items())))
            records.setdefault(setup, {}).setdefault(record.trial.devices, []).append(record)
            # Of several verdicts on a config, one with a warning counts.
            judged = list(filter(None, (verdicts.get(setup), find_verdict(config, run.parity))))
            judged.sort(key=lambda verdict: not verdict.warning)
            verdicts[setup] = judged[0] if judged else None
            if run.info.is_sequential:
                sequential.add(setup)
    groups: dict[tuple[Config, str], list[Setup]] = {}
    for setup in records:
        groups.setdefault((neutralise_choices(setup[0]), setup[1]), []).append(setup)
    works = [work for work, _ in groups]
    has_machines = len({machine for _, machine in groups}) > 1
    result = []
    for (work, on_machine), setups in groups.items():
        alike = [other for other in works if (other.model, other.scaling) == (work.model, work.scaling)]
        details = [*describe_differences(alike)[work], *([on_machine] if has_machines else [])]
        title = " · ".join([find_model_title(work.model), f"{work.scaling} scaling", *details])
        candidates = []
        parts = describe_differences([config for config, _, _ in setups])
        for setup in setups:
            config, _, versions = setup
            name = [config.framework, config.strategy_label]
            name += [part for part in parts[config] if part not in name]
            others = [{*other[2]} for other in setups if other[0] == config and other != setup]
            differing = [version for version in versions if any(version not in other for other in others)]
            name += map(" ".join, differing)
            candidates += [
                Candidate(
                    config=config,
                    devices=devices,
                    records=tuple(of_point),
                    baseline=tuple(records[setup].get(1, ())),
                    parity=verdicts[setup],
                    is_sequential=setup in sequential or any(record.trial.short for record in of_point),
                    name=" · ".join(name),
                )
                for devices, of_point in records[setup].items()
            ]
        result.append((title, candidates))
    return result


# ---- the choice on one device count


def _choose(
    work: str, candidates: Sequence[Candidate], question: Question, departures: Mapping[PointKey, str]
) -> BestChoice:
    reasons = []
    for candidate in candidates:
        parity, records, reason = candidate.parity, candidate.records, ""
        failure = records[-1].failure
        refuted = next((record for record in records if record.status == REFUTED), None)
        if parity and parity.state == FAILED:
            reason = f"parity failed: {parity.warning}"
        elif refuted:
            message = find_first_line(refuted.failure.message) if refuted.failure else ""
            reason = f"a trial did not do its work: {message}"
        elif candidate.config.strategy == "independent":
            reason = "nothing is exchanged: an upper bound, not training"
        elif not candidate.good:
            reason = "no trial has a result"
            if failure:
                reason = f"{failure.kind}: {find_first_line(failure.message)}"
        # A point that left its search counts if another run measured it in full.
        elif all(record.trial.short for record in records):
            reason = departures.get((candidate.config, candidate.devices), "")
        reasons.append(reason)
    allowed = [candidate for candidate, reason in zip(candidates, reasons, strict=True) if not reason]
    # The most exact count of memory that all candidates have; without one, that of the host.
    counts = [name for name in _MEMORY_COUNTS if all(each.list_memory_peaks(name) for each in allowed)]
    memory_count = next(iter(counts), _MEMORY_COUNTS[-1])
    left_out: list[Candidate] = []
    values: list[tuple[Candidate, Quantity]] = []
    for candidate, reason in zip(candidates, reasons, strict=True):
        value = reason or estimate_value(candidate, question, memory_count)
        if isinstance(value, str):
            left_out.append(replace(candidate, reason=value))
            continue
        cost = candidate.estimate_cost(question.price).compute_interval() if question.price else None
        values.append((replace(candidate, value=value.compute_interval(), cost_per_million=cost), value))
    values.sort(key=lambda pair: pair[1].compute_interval().mean, reverse=question.more_is_better)
    leads = compare_with_leader([value for _, value in values], question.more_is_better)
    others = tuple(
        Rival(candidate, lead, None if lead.low is None else lead.low > 1)
        for (candidate, _), lead in zip(values[1:], leads, strict=True)
    )
    leader = values[0][0] if values else None
    return BestChoice(work=work, devices=candidates[0].devices, leader=leader, others=others, left_out=tuple(left_out))


def estimate_value(candidate: Candidate, question: Question, memory_count: str) -> Quantity | str:
    """Return the value, or why there is none by this criterion."""
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
        baseline = list_speeds(candidate.baseline)
        if not baseline:
            return "its point on one device was not measured, so it has no efficiency"
        of_one = estimate_mean(baseline, is_sequential)
        return Quantity(speed.numerators, of_one.numerators, 1 / candidate.devices)
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


def compare_with_leader(values: Sequence[Quantity], more_is_better: bool) -> list[Interval]:
    """Return how many times better the first is than each, at 95 % for all."""
    error = (1 - CONFIDENCE) / max(1, len(values) - 1)
    ratios = [values[0].over(other) if more_is_better else other.over(values[0]) for other in values[1:]]
    return [ratio.compute_interval(error) for ratio in ratios]


# ---- what a step of the ladder costs


def compute_step_cost(before: Candidate, after: Candidate, price: Price | None = None) -> Step:
    unit = price or Price(3600.0, "device")
    old, new = (unit.compute_price_per_second(each.devices, each.hosts) for each in (before, after))
    samples = after.speeds, before.speeds
    difference = fmean(after.speeds) - fmean(before.speeds)
    gained = Interval(difference)
    if min(map(len, samples)) >= LEAST_REPEATS:  # Welch's t interval of the difference of two means
        terms = [(variance(values) / len(values), len(values) - 1) for values in samples]
        total, reach = math.fsum(term for term, _ in terms), 0.0
        if total:
            freedom = total**2 / math.fsum(term**2 / count for term, count in terms)
            reach = student_t(1 - (1 - CONFIDENCE) / 2, freedom) * math.sqrt(total)
        gained = Interval(difference, difference - reach, difference + reach)
    ratio = ratio_interval(*samples)
    low, high = (None if limit is None else limit - 1 for limit in (ratio.low, ratio.high))
    cost = _divide(MILLION * (new - old), gained) if price else None
    factor = _divide(new / old - 1, Interval(ratio.mean - 1, low, high))
    return Step(before.devices, after.devices, gained, factor, cost)


def _divide(cost: float, gained: Interval) -> Interval:
    mean = cost / gained.mean if gained.mean > 0 else math.inf
    if gained.low is None or gained.high is None:
        return Interval(mean)
    low = cost / gained.high if gained.high > 0 else math.inf
    return Interval(mean, low, cost / gained.low if gained.low > 0 else math.inf)
