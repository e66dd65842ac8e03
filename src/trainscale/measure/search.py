"""The search for the fastest configuration: which trial comes next, and which is not tried because it cannot fit.

analyse/race.py has the rule by which candidates leave. Everything here is pure: it looks at the plan and at the
records so far.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count

from ..analyse.race import Race, count_most_rounds, replay_races
from ..analyse.throughput import is_measured
from ..record.trial import OUT_OF_MEMORY, SKIPPED, Failure, RankSample, TrialRecord
from ..spec.config import Config, PointKey, Trial
from ..spec.devices import count_hosts, place_processes
from ..spec.plan import Plan
from .context import select_configs


def replay_races_of_plan(plan: Plan, records: Sequence[TrialRecord]) -> list[Race]:
    return replay_races(plan.points, records, count_most_rounds(plan.experiment.measurement.repeats))


def choose_short_trial(plan: Plan, records: Sequence[TrialRecord]) -> Trial | None:
    """Return the next trial of the first race that is not over. Small batches come first, and every other round goes
    backwards, so that a drift of the machine cancels out.
    """
    for race in replay_races_of_plan(plan, records):
        if race.state.waiting:
            waiting = sorted(race.state.waiting, key=lambda config: config.batch)
            config = waiting[0 if race.state.round % 2 else -1]
            return Trial(config, race.devices, _find_unused_repeat(config, race.devices, records), short=True)
    return None


def list_winning_points(plan: Plan, races: Sequence[Race]) -> list[PointKey]:
    """Return the points to measure in full: every winner on its device count and, for its efficiency, on one device."""
    winners = [(race.state.winner, race.devices) for race in races if race.state.winner is not None]
    wanted = {(config, devices) for config, n in winners for devices in (1, n)}
    return [point for point in plan.points if point in wanted]


def plan_winners(plan: Plan, races: Sequence[Race]) -> Plan:
    """Return the plan of the trials in full."""
    ladders: dict[Config, tuple[int, ...]] = {}
    for config, devices in list_winning_points(plan, races):
        ladders[config] = (*ladders.get(config, ()), devices)
    narrowed = select_configs(plan, lambda config: config in ladders)
    return replace(narrowed, ladders=tuple(ladders[config] for config in narrowed.configs))


def count_most_trials(plan: Plan) -> tuple[int, int]:
    """Return how many short trials and how many trials in full a search can take at most."""
    measurement = plan.experiment.measurement
    races = replay_races(plan.points, (), count_most_rounds(measurement.repeats))
    short = sum(len(race.configs) * count_most_rounds(measurement.repeats) for race in races if len(race.configs) > 1)
    points = sum(2 if race.devices > 1 and any(1 in ladder for ladder in plan.ladders) else 1 for race in races)
    return short, points * measurement.repeats


def _find_unused_repeat(config: Config, devices: int, records: Sequence[TrialRecord]) -> int:
    used = {r.trial.repeat for r in records if r.trial.short and r.trial.point == (config, devices)}
    return next(number for number in count() if number not in used)


# ---- memory


def skip_for_memory(plan: Plan, trial: Trial, records: Sequence[TrialRecord]) -> TrialRecord | None:
    """Return a record that says why a short trial is not tried, or None if it may fit.

    The memory of a batch is estimated from two smaller ones of the same configuration: it grows linearly.
    """
    message = _find_memory_problem(plan, trial, records) if trial.short else ""
    if not message:
        return None
    now = datetime.now(UTC).isoformat(timespec="seconds")
    hosts = count_hosts(trial.config, trial.devices, plan.available)
    return TrialRecord(trial, SKIPPED, now, 0.0, hosts=hosts, failure=Failure(SKIPPED, message))


def _find_memory_problem(plan: Plan, trial: Trial, records: Sequence[TrialRecord]) -> str:
    work = replace(trial.config, batch=0)
    alike = [r for r in records if r.trial.devices == trial.devices and replace(r.trial.config, batch=0) == work]
    failed = min((r.trial.config.batch for r in alike if r.status == OUT_OF_MEMORY), default=trial.config.batch)
    if failed < trial.config.batch:
        return f"not tried: batch {failed} ran out of memory"
    limit = _find_memory_limit(plan, trial)
    peaks = _find_peaks(alike, trial.config)
    smaller = sorted(batch for batch in peaks if batch < trial.config.batch)
    if not limit or len(smaller) < 2:
        return ""
    low, high = smaller[-2:]
    slope = max(0.0, (peaks[high] - peaks[low]) / (high - low))
    estimate = peaks[high] + slope * (trial.config.batch - high)
    if estimate <= limit:
        return ""
    return (
        f"not tried: it would need about {_format_gibibytes(estimate)}"
        f" by its batches {low} ({_format_gibibytes(peaks[low])}) and"
        f" {high} ({_format_gibibytes(peaks[high])}), and there are {_format_gibibytes(limit)}"
    )


def _find_peaks(records: Sequence[TrialRecord], config: Config) -> dict[int, float]:
    """Return the memory of the rank that needs most, by batch."""
    peaks: dict[int, float] = {}
    for record in records:
        sizes = [_find_rank_memory(rank, config) for rank in record.ranks if is_measured(record)]
        if sizes and all(sizes):
            batch = record.trial.config.batch
            peaks[batch] = max(peaks.get(batch, 0.0), *sizes)
    return peaks


def _find_rank_memory(rank: RankSample, config: Config) -> float:
    if config.device == "cpu":
        return float(rank.host_peak_bytes or 0)
    return float(rank.nvml_peak_bytes or rank.device_peak_bytes or 0)


def _find_memory_limit(plan: Plan, trial: Trial) -> float:
    """Return the memory that a worker has: that of its GPU, or its part of the host's. 0 if that is unknown."""
    if trial.config.device != "cpu":
        return float(plan.available.memory_bytes)
    workers = place_processes(trial.config, trial.devices, plan.available)[: trial.devices]
    return plan.available.memory_bytes / max(Counter(worker.host.name for worker in workers).values())


def _format_gibibytes(size: float) -> str:
    return f"{size / 2**30:.1f} GiB"
