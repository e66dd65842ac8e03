"""The best configuration of every device count, and whether its lead is more than noise.

The leader is the candidate with the best mean of k candidates. Each other candidate is compared with it by Welch's t
interval on the ratio, at a level that is divided by the k - 1 comparisons (Bonferroni). The set of the leader and the
candidates that do not differ from it then contains the truly best one with a probability of at least 95 %, although the
leader was chosen by looking at the data.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from statistics import fmean, variance
from typing import TYPE_CHECKING

from ...analyse.race import replay_races_of_run
from ...analyse.series import column
from ...analyse.statistics import CONFIDENCE, LEAST_REPEATS, Interval, ratio_interval, student_t
from ...analyse.throughput import MILLION, Price
from ...spec.config import Config, PointKey
from .candidates import Candidate, Quantity, Question, choose_memory_count, estimate_value, group_by_work

if TYPE_CHECKING:
    from ...runs import Run

# What is known about the lead of the best candidate.
CLEAR, TIE, UNKNOWN, ONLY, NONE = "clear", "tie", "unknown", "only", "none"


@dataclass(frozen=True)
class Rival:
    """Another candidate. ``lead`` is how many times better the leader is, with an interval at the family's level."""

    candidate: Candidate
    lead: Interval
    differs: bool | None  # whether the difference is more than noise; None where there are too few repeats


@dataclass(frozen=True)
class LeftOut:
    """A configuration that is not offered, and why."""

    name: str
    config: Config
    reason: str


@dataclass(frozen=True, kw_only=True)
class BestChoice:
    """The best configuration of a network on one device count."""

    work: str = column("network and scaling mode")
    devices: int = column("workers")
    leader: Candidate | None = column("the best candidate with its trials; None if none can be offered", repr=False)
    others: tuple[Rival, ...] = column("the other candidates, the runner-up first", repr=False)
    left_out: tuple[LeftOut, ...] = column("configurations that are not offered, and why", repr=False)

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

    ``gained`` is in samples per second. ``factor`` is the cost of a sample that is gained divided by the cost of a
    sample before the step; ``cost_per_million`` is the cost of a million of them. Both are infinite where nothing is
    gained, and their upper limit is infinite where the gain may be nothing.
    """

    before: int
    after: int
    gained: Interval
    factor: Interval
    cost_per_million: Interval | None = None


@dataclass(frozen=True)
class Work:
    """The choices of one network and scaling mode, and what each step of the ladder costs, along the leaders."""

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

    def _repr_html_(self) -> str:
        from .text import render_html

        return render_html(self)


def find_best(runs: Sequence[Run], question: Question) -> BestChoices:
    departures: dict[PointKey, str] = {
        (departure.key, race.devices): (
            f"it left the search after round {departure.round}: {departure.reason},"
            f" {departure.ratio.mean:.2f} of its speed"
        )
        for run in runs
        for race in replay_races_of_run(run.info, run.records, run.parity)
        for departure in race.state.departures
        if departure.ratio is not None
    }
    works = []
    for title, candidates in group_by_work(runs):
        counts = sorted({candidate.devices for candidate in candidates})
        choices = tuple(
            _choose(title, [each for each in candidates if each.devices == count], question, departures)
            for count in counts
        )
        work = Work(title, choices, ())
        steps = [compute_step_cost(old, new, question.price) for old, new in pairwise(work.leaders)]
        works.append(replace(work, steps=tuple(steps)))
    return BestChoices(question=question, works=tuple(works))


def _choose(
    work: str, candidates: Sequence[Candidate], question: Question, departures: Mapping[PointKey, str]
) -> BestChoice:
    reasons = {candidate.setup: candidate.reason_against for candidate in candidates}
    for candidate in candidates:
        # A point that left its search counts all the same if another run measured it in full.
        if not reasons[candidate.setup] and all(record.trial.short for record in candidate.records):
            reasons[candidate.setup] = departures.get((candidate.config, candidate.devices), "")
    memory_count = choose_memory_count([candidate for candidate in candidates if not reasons[candidate.setup]])
    left_out: list[LeftOut] = []
    values: list[tuple[Candidate, Quantity]] = []
    for candidate in candidates:
        value = reasons[candidate.setup] or estimate_value(candidate, question, memory_count)
        if isinstance(value, str):
            left_out.append(LeftOut(candidate.name, candidate.config, value))
            continue
        cost = candidate.estimate_cost(question.price).compute_interval() if question.price else None
        values.append((replace(candidate, value=value.compute_interval(), cost_per_million=cost), value))
    values.sort(key=lambda pair: pair[1].value, reverse=question.more_is_better)
    leads = compare_with_leader([value for _, value in values], question.more_is_better)
    others = tuple(
        Rival(candidate, lead, None if lead.low is None else lead.low > 1)
        for (candidate, _), lead in zip(values[1:], leads, strict=True)
    )
    leader = values[0][0] if values else None
    return BestChoice(work=work, devices=candidates[0].devices, leader=leader, others=others, left_out=tuple(left_out))


def compare_with_leader(values: Sequence[Quantity], more_is_better: bool) -> list[Interval]:
    """Return how many times better the first value is than each other one, at a family-wise level of 95 %."""
    error = (1 - CONFIDENCE) / max(1, len(values) - 1)
    ratios = [values[0].over(other) if more_is_better else other.over(values[0]) for other in values[1:]]
    return [ratio.compute_interval(error) for ratio in ratios]


# ---- what a step of the ladder costs


def compute_step_cost(before: Candidate, after: Candidate, price: Price | None = None) -> Step:
    """Return what a step costs. Without a price, the cost is counted in devices."""
    unit = price or Price(3600.0, "device")
    old, new = (unit.compute_price_per_second(each.devices, each.hosts) for each in (before, after))
    gained = difference_interval(after.speeds, before.speeds)
    ratio = ratio_interval(after.speeds, before.speeds)
    low, high = (None if end is None else end - 1 for end in (ratio.low, ratio.high))
    cost = _divide(MILLION * (new - old), gained) if price else None
    factor = _divide(new / old - 1, Interval(ratio.mean - 1, low, high))
    return Step(before.devices, after.devices, gained, factor, cost)


def difference_interval(first: Sequence[float], second: Sequence[float]) -> Interval:
    """Return the difference of two means with Welch's t interval."""
    difference = fmean(first) - fmean(second)
    if min(len(first), len(second)) < LEAST_REPEATS:
        return Interval(difference)
    terms = [(variance(values) / len(values), len(values) - 1) for values in (first, second)]
    total = math.fsum(term for term, _ in terms)
    if total == 0:
        return Interval(difference, difference, difference)
    freedom = total**2 / math.fsum(term**2 / count for term, count in terms)
    reach = student_t(1 - (1 - CONFIDENCE) / 2, freedom) * math.sqrt(total)
    return Interval(difference, difference - reach, difference + reach)


def _divide(cost: float, gained: Interval) -> Interval:
    """Return the cost divided by the gain. A gain that may be zero has no upper limit of the cost."""
    mean = cost / gained.mean if gained.mean > 0 else math.inf
    if gained.low is None or gained.high is None:
        return Interval(mean)
    low = cost / gained.high if gained.high > 0 else math.inf
    return Interval(mean, low, cost / gained.low if gained.low > 0 else math.inf)
