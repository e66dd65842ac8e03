"""What the display of a run says about a search: who has left, how long it can take, how its candidates are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import fmean

from ..analyse.race import count_most_rounds
from ..analyse.titles import make_strategy_labels
from ..measure.order import replay_races_of_plan
from ..record.trial import TrialRecord
from ..report.search_table import describe_departure
from ..spec.config import Config, PointKey
from ..spec.plan import Plan


def find_departures(plan: Plan, records: Sequence[TrialRecord]) -> dict[PointKey, str]:
    """Return the points that left a search so far, and why. Empty if the run is no search."""
    if not plan.experiment.measurement.search:
        return {}
    return {
        (departure.key, race.devices): describe_departure(departure)
        for race in replay_races_of_plan(plan, records)
        for departure in race.state.departures
    }


def estimate_remaining_seconds(
    plan: Plan, records: Sequence[TrialRecord], estimates: Mapping[PointKey, float]
) -> float:
    """Estimate the time to go if no further candidate leaves: an upper limit."""
    repeats, good = plan.experiment.measurement.repeats, [record.seconds for record in records if record.ok]
    rounds, total = count_most_rounds(repeats), 0.0
    done = Counter(record.trial.point for record in records if record.trial.short)
    for race in replay_races_of_plan(plan, records):
        points = [(config, race.devices) for config in race.state.running]
        seconds = fmean(good) if good else max(map(estimates.__getitem__, points), default=0.0)
        if race.state.waiting:
            total += seconds * sum(max(0, rounds - done[point]) for point in points)
        total += seconds * repeats
    return max(0.0, total - sum(record.seconds for record in records if not record.trial.short))


def make_config_labels(plan: Plan) -> dict[Config, str]:
    """Return what distinguishes the configs of a network: the strategy, and other settings that are lists."""
    networks = {config.model for config in plan.configs}
    has_batches = len({(config.model, config.batch) for config in plan.configs}) > len(networks)
    labels = make_strategy_labels(plan.configs)
    return {config: f"{label} b{config.batch}" if has_batches else label for config, label in labels.items()}
