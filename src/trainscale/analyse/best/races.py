"""The races of a run: one for every device count and work, from its points and records."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...record.decoding import convert, find_first_line
from ...record.parity import FAILED, Verdict, find_verdict
from ...record.run import RunInfo
from ...record.trial import HANG, MISSING, OUT_OF_MEMORY, SKIPPED, TIMEOUT, Failure, TrialRecord
from ...record.witness import REFUTED
from ...spec.config import Config, PointKey
from ..checks import OTHER_CORES
from ..throughput import compute_samples_per_second, is_measured
from .points import neutralise_choices
from .race import Departure, Entry, RaceState, replay_race

_CERTAIN = (OUT_OF_MEMORY, TIMEOUT, HANG, SKIPPED, REFUTED)  # it would happen again
_MOST_FAILURES = 2
_LEAST_ROUNDS = 3


@dataclass(frozen=True)
class Race:
    """The race of the configs that do the same work on one device count."""

    devices: int
    configs: tuple[Config, ...]
    state: RaceState[Config]
    not_started: tuple[Departure[Config], ...] = ()  # left before the first round


def count_most_rounds(repeats: int) -> int:
    """Return the number of short trials after which the race of a candidate ends in any case."""
    return max(_LEAST_ROUNDS, repeats - 1)


def replay_races(
    points: Sequence[PointKey],
    records: Sequence[TrialRecord],
    rounds: int,
    excluded: Mapping[Config, str] | None = None,
) -> list[Race]:
    """Return the races of all points, the fewest devices first. ``excluded`` are configs that must not win, and why."""
    reasons = dict(excluded or {})
    reasons |= {r.trial.config: _describe(r.failure) for r in records if r.status == MISSING}
    short: defaultdict[PointKey, list[TrialRecord]] = defaultdict(list)
    for record in sorted(records, key=lambda record: record.trial.repeat):
        if record.trial.short:
            short[record.trial.point].append(record)
    groups: defaultdict[tuple[int, Config], list[Config]] = defaultdict(list)
    for config, devices in points:
        groups[devices, neutralise_choices(config)].append(config)
    return [
        _replay(devices, configs, short, rounds, reasons)
        for (devices, _), configs in sorted(groups.items(), key=lambda item: item[0][0])
    ]


def _replay(
    devices: int,
    configs: Sequence[Config],
    short: Mapping[PointKey, Sequence[TrialRecord]],
    rounds: int,
    reasons: Mapping[Config, str],
) -> Race:
    entries = [_make_entry(config, short.get((config, devices), ())) for config in configs if config not in reasons]
    not_started = tuple(Departure(config, 0, reasons[config]) for config in configs if config in reasons)
    state = replay_race(entries, rounds) if entries else RaceState[Config](0, (), (), ())
    return Race(devices, tuple(configs), state, not_started)


def _make_entry(config: Config, records: Sequence[TrialRecord]) -> Entry[Config]:
    speeds = tuple(compute_samples_per_second(record) for record in records if is_measured(record))
    failed = [record for record in records if not is_measured(record)]
    certain = [record for record in failed if record.status in _CERTAIN]
    is_hopeless = bool(certain) or len(failed) >= _MOST_FAILURES
    obstacle = _describe((certain or failed)[-1].failure) if is_hopeless else ""
    first = next((record for record in records if is_measured(record)), None)
    return Entry(config, speeds, obstacle, bool(first and (first.machine.other_cores or 0.0) > OTHER_CORES))


def _describe(failure: Failure | None) -> str:
    return f"{failure.kind}: {find_first_line(failure.message)}" if failure else "no result"


def replay_races_of_run(run: RunInfo, records: Sequence[TrialRecord], verdicts: Sequence[Verdict] = ()) -> list[Race]:
    """Return the races of a recorded run. Empty for a run that was no search."""
    spec = run.read_spec()
    if spec.search is None or spec.repeats is None:
        return []
    series = [(convert(values, Config), values["ladder"]) for values in spec.series]
    points = [(config, devices) for config, ladder in series for devices in ladder]
    return replay_races(points, records, count_most_rounds(spec.repeats), find_failed_parity(points, verdicts))


def find_failed_parity(points: Sequence[PointKey], verdicts: Sequence[Verdict]) -> dict[Config, str]:
    """Return the configs that do not do the same work as the others, with the reason."""
    judged = {config: find_verdict(config, verdicts) for config, _ in points}
    return {
        config: f"parity failed: {verdict.warning}"
        for config, verdict in judged.items()
        if verdict and verdict.state == FAILED
    }


def count_short_trials(records: Sequence[TrialRecord]) -> Counter[PointKey]:
    return Counter(record.trial.point for record in records if record.trial.short)
