"""The races of a search, one for every device count and work.

In each round every candidate has one more short trial. Then those leave that are slower than the leader by more
than noise: the fastest candidate stays with a probability of at least 95 % (docs/best.md).
"""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from statistics import fmean
from typing import Any

from ..record.decoding import convert, find_first_line
from ..record.parity import FAILED, REFUTED, Verdict, find_verdict
from ..record.run import RunInfo
from ..record.trial import HANG, MISSING, OUT_OF_MEMORY, SKIPPED, TIMEOUT, Failure, TrialRecord
from ..spec.config import Config, PointKey
from .checks import OTHER_CORES
from .statistics import CONFIDENCE, Interval, student_t
from .throughput import compute_samples_per_second, is_measured

# What a person may choose for the same work.
CHOICES = (
    "framework", "strategy", "servers", "server_placement", "servers_per_host", "placement", "batch", "precision",
    "layout", "compile", "loaders", "allocator", "learning_rate", "momentum", "weight_decay", "schedule",
    "warmup_epochs", "epochs",
)  # fmt: skip

_WIDER = 2.0  # the supposed standard deviation, over that of all candidates together
HALF = 0.5  # of the leader's speed: a slower candidate leaves after one trial
_CERTAIN = (OUT_OF_MEMORY, TIMEOUT, HANG, SKIPPED, REFUTED)  # it would happen again
MOST_FAILURES = 2  # without a result between them
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Entry:
    key: Config
    speeds: tuple[float, ...] = ()
    obstacle: str = ""  # why it has no further trial
    is_disturbed: bool = False  # other programs used the cores during the first trial


@dataclass(frozen=True)
class Departure:
    key: Config
    round: int
    reason: str
    ratio: Interval | None = None  # to the leader's speed


@dataclass(frozen=True)
class Race:
    """The race of the configs that do the same work on one device count."""

    round: int
    running: tuple[Config, ...]
    waiting: tuple[Config, ...]  # they need a trial; without any, the race is over
    departures: tuple[Departure, ...]
    winner: Config | None = None
    devices: int = 0
    configs: tuple[Config, ...] = ()
    not_started: tuple[Departure, ...] = ()  # left before the first round


def replay_race(entries: Sequence[Entry], rounds: int) -> Race:
    running, departures = list(entries), list[Departure]()
    for number in range(1, rounds + 1):
        missing = [entry for entry in running if len(entry.speeds) < number]
        stopped = [entry for entry in missing if entry.obstacle]
        departures += [Departure(entry.key, number, entry.obstacle) for entry in stopped]
        running = [entry for entry in running if entry not in stopped]
        if len(entries) == 1:
            break
        waiting = tuple(entry.key for entry in missing if not entry.obstacle)
        if waiting:
            return Race(number, tuple(entry.key for entry in running), waiting, tuple(departures))
        if len(running) <= 1:
            break
        means = {entry.key: _find_mean_log(entry.speeds[:number]) for entry in entries}
        leader = max(running, key=lambda entry: means[entry.key])
        slower: dict[Config, Interval] = {}  # their ratios to the leader
        if number == 1:
            reason = "slower than half of the leader"
            for entry in running:
                ratio = entry.speeds[0] / leader.speeds[0]
                if ratio < HALF and not entry.is_disturbed:
                    slower[entry.key] = Interval(ratio)
        else:
            reason = "slower than the leader"
            squares, freedoms = {}, {}  # of the deviations of log speeds from their mean
            for entry in entries:
                logs = [math.log(speed) for speed in entry.speeds[:number]]
                squares[entry.key] = sum((value - means[entry.key]) ** 2 for value in logs)
                freedoms[entry.key] = max(0, len(logs) - 1)
            freedom = sum(freedoms.values())
            pooled = sum(squares.values()) / freedom
            error = (1 - CONFIDENCE) / ((len(entries) - 1) * (rounds - 1))
            quantile = student_t(1 - error, freedom)
            for entry in running:
                own = [squares[each.key] / freedoms[each.key] for each in (entry, leader)]
                variances = (max(_WIDER**2 * pooled, variance) for variance in own)
                reach = quantile * math.sqrt(sum(variances) / number)
                ratio = math.exp(means[entry.key] - means[leader.key])
                low, high = ratio * math.exp(-reach), ratio * math.exp(reach)
                if high < 1:
                    slower[entry.key] = Interval(ratio, low, high)
        departures += [Departure(key, number, reason, interval) for key, interval in slower.items()]
        running = [entry for entry in running if entry.key not in slower]
        if len(running) <= 1:
            break
    winner = max(running, key=lambda entry: _find_mean_log(entry.speeds[:rounds]), default=None)
    keys = tuple(entry.key for entry in running)
    return Race(number, keys, (), tuple(departures), winner.key if winner else None)


def _find_mean_log(speeds: Sequence[float]) -> float:
    return fmean(map(math.log, speeds)) if speeds else 0.0


# ---- the races of a run


def count_most_rounds(repeats: int) -> int:
    return max(_LEAST_ROUNDS, repeats - 1)


def replay_races(
    points: Sequence[PointKey],
    records: Sequence[TrialRecord],
    rounds: int,
    excluded: Mapping[Config, str] | None = None,
) -> list[Race]:
    """Return all races, the fewest devices first. ``excluded`` must not win."""
    reasons = dict(excluded or {})
    reasons |= {r.trial.config: _describe(r.failure) for r in records if r.status == MISSING}
    short: defaultdict[PointKey, list[TrialRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.trial.repeat):
        if record.trial.short:
            short[record.trial.point].append(record)
    groups: defaultdict[tuple[int, Config], list[Config]] = defaultdict(list)
    for config, devices in points:
        groups[devices, neutralise_choices(config)].append(config)
    races = []
    for (devices, _), configs in sorted(groups.items(), key=lambda item: item[0][0]):
        not_started = tuple(Departure(c, 0, reasons[c]) for c in configs if c in reasons)
        entries = []
        for config in (config for config in configs if config not in reasons):
            tried = short[config, devices]
            measured = [record for record in tried if is_measured(record)]
            failed = [record for record in tried if not is_measured(record)]
            certain = [record for record in failed if record.status in _CERTAIN]
            is_hopeless = bool(certain) or len(failed) >= MOST_FAILURES
            obstacle = _describe((certain or failed)[-1].failure) if is_hopeless else ""
            is_disturbed = bool(measured) and (measured[0].machine.other_cores or 0.0) > OTHER_CORES
            speeds = tuple(map(compute_samples_per_second, measured))
            entries.append(Entry(config, speeds, obstacle, is_disturbed))
        race = replay_race(entries, rounds) if entries else Race(0, (), (), ())
        races.append(replace(race, devices=devices, configs=tuple(configs), not_started=not_started))
    return races


def _describe(failure: Failure | None) -> str:
    return f"{failure.kind}: {find_first_line(failure.message)}" if failure else "no result"


def replay_races_of_run(run: RunInfo, records: Sequence[TrialRecord], verdicts: Sequence[Verdict] = ()) -> list[Race]:
    """Return the races of a recorded run; none if it was no search."""
    spec = run.read_spec()
    if spec.search is None or spec.repeats is None:
        return []
    series = [(convert(values, Config), values["ladder"]) for values in spec.series]
    points = [(config, devices) for config, ladder in series for devices in ladder]
    excluded = find_failed_parity(points, verdicts)
    return replay_races(points, records, count_most_rounds(spec.repeats), excluded)


def find_failed_parity(points: Sequence[PointKey], verdicts: Sequence[Verdict]) -> dict[Config, str]:
    reasons = {}
    for config, _ in points:
        verdict = find_verdict(config, verdicts)
        if verdict and verdict.state == FAILED:
            reasons[config] = f"parity failed: {verdict.warning}"
    return reasons


def neutralise_choices(config: Config) -> Config:
    """Give configs of the same work the same values for all choices."""
    neutral: dict[str, Any] = {item.name: item.default for item in fields(Config) if item.name in CHOICES}
    neutral |= {"framework": "", "strategy": "", "batch": 0}
    return replace(config, **{**neutral, "epochs": int(config.trains_epochs)})
