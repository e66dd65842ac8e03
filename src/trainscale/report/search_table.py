"""The races of a search as tables: which candidates left, when and why, and which one was measured in full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..analyse.race import Departure, Race
from ..analyse.series import Series
from ..analyse.statistics import mean_interval
from ..analyse.throughput import compute_samples_per_second, is_measured
from ..analyse.titles import describe_differences, find_model_title
from ..record.trial import IMAGES, TrialRecord
from ..spec.config import Config
from . import numbers
from .table import Grid
from .wording import format_device_count

_NOTE = (
    "The speeds are those of the short trials. A candidate left after a round when the interval of its ratio to the"
    " leader was below 1, at 95 % for all candidates and rounds together, or when its first trial was slower than half"
    " of the leader's. The winner was then measured in full."
)


def make_search_grids(races: Sequence[Race], records: Sequence[TrialRecord]) -> list[Grid]:
    """Return a table for every race, those that stayed first, then those that left, the last to leave first."""
    grids = [_make_grid(race, records) for race in races]
    return [*grids[:-1], replace(grids[-1], note=_NOTE)] if grids else []


def select_series_in_full(all_series: Sequence[Series], records: Sequence[TrialRecord]) -> list[Series]:
    """Return the series that charts show: those with a trial in full, or all if there is none. The others of a search
    are rows of its tables.
    """
    in_full = {record.trial.config for record in records if not record.trial.short}
    return [series for series in all_series if series.config in in_full] or list(all_series)


def name_candidates(race: Race) -> dict[Config, str]:
    """Return short names that are unique within a race."""
    parts = describe_differences(race.configs)
    fixed = {config: [config.framework, config.strategy_label] for config in race.configs}
    return {c: " · ".join([*fixed[c], *(part for part in parts[c] if part not in fixed[c])]) for c in race.configs}


def describe_departure(departure: Departure[Config]) -> str:
    """Say when and why a candidate left: «after round 2: slower than the leader, 0.79 (0.71–0.88) of its speed»."""
    when = f"after round {departure.round}: " if departure.ratio else ""
    if departure.ratio is None:
        return departure.reason
    limits = numbers.format_limits(departure.ratio)
    ratio = f"{numbers.format_significant(departure.ratio.mean, 3)}{f' ({limits})' if limits else ''}"
    return f"{when}{departure.reason}, {ratio} of its speed"


def _make_grid(race: Race, records: Sequence[TrialRecord]) -> Grid:
    names = name_candidates(race)
    own = [r for r in records if r.trial.short and r.trial.devices == race.devices and r.trial.config in names]
    speeds = {c: [compute_samples_per_second(r) for r in own if r.trial.config == c and is_measured(r)] for c in names}
    fates = {departure.key: describe_departure(departure) for departure in (*race.not_started, *race.state.departures)}
    fates |= {config: _describe_outcome(race, config) for config in race.state.running}
    order = [*race.state.running, *(d.key for d in reversed(race.state.departures)), *(d.key for d in race.not_started)]
    ranked = sorted(order, key=lambda config: (config not in race.state.running, -max(speeds[config], default=0.0)))
    rows = tuple((names[c], str(len(speeds[c])), *_format_speed(speeds[c]), fates[c]) for c in ranked)
    unit = own[0].unit if own else IMAGES
    title = f"Search: {find_model_title(race.configs[0].model)} on {format_device_count(race.devices)}"
    return Grid(title, ("candidate", "trials", f"{unit}/s", "±", "what became of it"), rows, left=(0, 4))


def _format_speed(speeds: Sequence[float]) -> tuple[str, str]:
    if not speeds:
        return numbers.MISSING, ""
    interval = mean_interval(speeds, sequential=True)
    return numbers.format_rate(interval.mean), numbers.format_plus_minus(interval)


def _describe_outcome(race: Race, config: Config) -> str:
    if race.state.waiting:
        return f"in round {race.state.round}"
    if config == race.state.winner:
        return "the only candidate" if len(race.configs) == 1 else "the winner, measured in full"
    return "not separated from the winner by noise"
