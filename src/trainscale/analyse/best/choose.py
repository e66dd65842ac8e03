"""The best configuration of every device count, and whether its lead is more than noise.

The leader is the candidate with the best mean of k candidates. Each other candidate is compared with it by Welch's t
interval on the ratio, at a level that is divided by the k - 1 comparisons (Bonferroni). The set of the leader and the
candidates that do not differ from it then contains the truly best one with a probability of at least 95 %, although the
leader was chosen by looking at the data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ...record.decoding import find_first_line
from ...record.parity import FAILED, UNPROVEN
from ...record.witness import REFUTED
from ...spec.config import Config, PointKey
from ...worker.job import ASYNCHRONOUS
from ..cost import JOULES_PER_WATT_HOUR, MILLION, Rung, Step, compute_energy_per_sample, compute_step_cost
from ..statistics import CONFIDENCE, LEAST_REPEATS, Interval, mean_interval
from ..witness import find_point_verdict
from .criteria import Question, choose_memory_count, estimate_cost, estimate_point
from .points import MeasuredPoint, RecordedRun, Work, group_by_work
from .quantity import Quantity, estimate_ratio
from .races import replay_races_of_run

# What is known about the lead of the best candidate.
CLEAR, TIE, UNKNOWN, ONLY, NONE = "clear", "tie", "unknown", "only", "none"
_INDEPENDENT = "independent"


@dataclass(frozen=True)
class Candidate:
    """A configuration on one device count. ``value`` is by the criterion that was asked for."""

    name: str
    config: Config
    devices: int
    hosts: int
    repeats: int
    value: Interval
    samples_per_second: Interval
    unit: str
    cost_per_million: Interval | None = None
    energy_per_million: Interval | None = None  # watt-hours; None where no trial, or not every one, recorded it
    marks: tuple[str, ...] = ()  # what is not proven, or went wrong


@dataclass(frozen=True)
class Rival:
    """Another candidate. ``lead`` is how many times better the leader is, with an interval at the family's level."""

    candidate: Candidate
    lead: Interval
    differs: bool | None  # whether the difference is more than noise; None where there are too few repeats


@dataclass(frozen=True)
class LeftOut:
    name: str
    config: Config
    reason: str


@dataclass(frozen=True)
class Answer:
    """The best configuration on one device count. ``others`` are ordered, the runner-up first."""

    devices: int
    leader: Candidate | None
    others: tuple[Rival, ...]
    left_out: tuple[LeftOut, ...]

    @property
    def tied(self) -> tuple[Rival, ...]:
        return tuple(other for other in self.others if other.differs is False)

    @property
    def undecided(self) -> tuple[Rival, ...]:
        return tuple(other for other in self.others if other.differs is None)

    @property
    def verdict(self) -> str:
        if self.leader is None:
            return NONE
        if not self.others:
            return ONLY
        return TIE if self.tied else UNKNOWN if self.undecided else CLEAR


@dataclass(frozen=True)
class BestOfWork:
    """The answers of one network and scaling mode, and what each step of the ladder costs, along the leaders."""

    title: str
    answers: tuple[Answer, ...]
    steps: tuple[Step, ...]


Departures = Mapping[PointKey, str]  # why a point left the race of a search


def find_best(runs: Sequence[RecordedRun], question: Question) -> list[BestOfWork]:
    departures = {point: reason for run in runs for point, reason in _find_departures(run).items()}
    return [_choose_best(work, question, departures) for work in group_by_work(runs)]


def _find_departures(run: RecordedRun) -> dict[PointKey, str]:
    return {
        (departure.key, race.devices): (
            f"it left the search after round {departure.round}: {departure.reason},"
            f" {departure.ratio.mean:.2f} of its speed"
        )
        for race in replay_races_of_run(run.run, run.records, run.verdicts)
        for departure in race.state.departures
        if departure.ratio is not None
    }


def _choose_best(work: Work, question: Question, departures: Departures) -> BestOfWork:
    answers, rungs = [], []
    for devices in work.device_counts:
        points = [point for point in work.points if point.devices == devices]
        judged = [(point, find_reason_against(point) or _explain_departure(point, departures)) for point in points]
        answer, leader = _find_answer(devices, judged, work, question)
        answers.append(answer)
        if leader:
            rungs.append(Rung(devices, leader.hosts, leader.speeds))
    steps = [compute_step_cost(old, new, question.price) for old, new in pairwise(rungs)]
    return BestOfWork(work.title, tuple(answers), tuple(steps))


def _find_answer(
    devices: int, judged: Sequence[tuple[MeasuredPoint, str]], work: Work, question: Question
) -> tuple[Answer, MeasuredPoint | None]:
    """Return the answer and the point of its leader. Each point comes with the reason against it; empty for none."""
    left_out: list[LeftOut] = []
    estimates: list[tuple[MeasuredPoint, Quantity]] = []
    memory_count = choose_memory_count([point for point, reason in judged if not reason])
    for point, reason in judged:
        value = reason or estimate_point(point, question, memory_count)
        if isinstance(value, str):
            left_out.append(LeftOut(work.names[point.setup], point.config, value))
        else:
            estimates.append((point, value))
    if not estimates:
        return Answer(devices, None, (), tuple(left_out)), None
    estimates.sort(key=lambda pair: pair[1].value, reverse=question.more_is_better)
    candidates = [_make_candidate(point, value, work, question) for point, value in estimates]
    others = compare_with_leader([value for _, value in estimates], question.more_is_better)
    comparisons = [
        Rival(candidate, lead, _differs(lead)) for candidate, lead in zip(candidates[1:], others, strict=True)
    ]
    return Answer(devices, candidates[0], tuple(comparisons), tuple(left_out)), estimates[0][0]


def compare_with_leader(estimates: Sequence[Quantity], more_is_better: bool) -> list[Interval]:
    """Return how many times better the first estimate is than each other one, at a family-wise level of 95 %."""
    leader, *others = estimates
    error = (1 - CONFIDENCE) / max(1, len(others))
    ratios = [estimate_ratio(leader, other) if more_is_better else estimate_ratio(other, leader) for other in others]
    return [ratio.compute_interval(error) for ratio in ratios]


def _differs(lead: Interval) -> bool | None:
    return None if lead.low is None else lead.low > 1


def _explain_departure(point: MeasuredPoint, departures: Departures) -> str:
    """Return why a point left its search. Empty if it did not, or if another run measured it in full."""
    if not all(record.trial.short for record in point.records):
        return ""
    return departures.get((point.config, point.devices), "")


def find_reason_against(point: MeasuredPoint) -> str:
    """Return why a point must not be offered, whatever its speed. Empty if it may be."""
    if point.parity and point.parity.state == FAILED:
        return f"parity failed: {point.parity.warning}"
    refuted = next((record for record in point.records if record.status == REFUTED), None)
    if refuted:
        return f"a trial did not do its work: {find_first_line(refuted.failure.message) if refuted.failure else ''}"
    if point.config.strategy == _INDEPENDENT:
        return "nothing is exchanged: an upper bound, not training"
    if not point.good:
        failure = point.records[-1].failure
        return f"{failure.kind}: {find_first_line(failure.message)}" if failure else "no trial has a result"
    return ""


def _make_candidate(point: MeasuredPoint, value: Quantity, work: Work, question: Question) -> Candidate:
    return Candidate(
        name=work.names[point.setup],
        config=point.config,
        devices=point.devices,
        hosts=point.hosts,
        repeats=len(point.good),
        value=value.compute_interval(),
        samples_per_second=mean_interval(point.speeds, point.is_sequential),
        unit=point.good[0].unit,
        cost_per_million=estimate_cost(point, question.price).compute_interval() if question.price else None,
        energy_per_million=_estimate_energy(point),
        marks=_list_marks(point),
    )


def _estimate_energy(point: MeasuredPoint) -> Interval | None:
    joules = [compute_energy_per_sample(record) for record in point.good]
    known = [value for value in joules if value is not None]
    if not known or len(known) < len(joules):
        return None
    return mean_interval(known, point.is_sequential).scaled(MILLION / JOULES_PER_WATT_HOUR)


def _list_marks(point: MeasuredPoint) -> tuple[str, ...]:
    marks = []
    if point.parity and point.parity.state == UNPROVEN:
        marks.append("parity unproven")
    witness = find_point_verdict(point.good)
    if witness and witness.state == UNPROVEN:
        marks.append("work unproven")
    if point.config.strategy in ASYNCHRONOUS:
        marks.append("asynchronous: it may learn less from an image")
    failed = len(point.records) - len(point.good)
    if failed:
        marks.append(f"{failed} of {len(point.records)} repeats failed")
    if len(point.good) < LEAST_REPEATS:
        marks.append(f"measured {'once' if len(point.good) == 1 else 'twice'} only")
    return tuple(marks)
