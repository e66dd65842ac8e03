"""The races of a search as tables: which candidates left, when and why."""

from collections.abc import Sequence
from dataclasses import replace

from ..analyse.race import Departure, Race, replay_races_of_run
from ..analyse.statistics import mean_interval
from ..analyse.throughput import compute_samples_per_second, is_measured
from ..analyse.titles import describe_differences, find_model_title
from ..record.trial import IMAGES, TrialRecord
from ..runs import Run
from ..spec.config import Config
from . import numbers
from .documents import Grid
from .wording import format_device_count

_NOTE = (
    "The speeds are those of the short trials. A candidate left after a round when the interval of its ratio to the"
    " leader was below 1, at 95 % for all candidates and rounds together, or when its first trial was slower than half"
    " of the leader's. The winner was then measured in full."
)


def make_search_grids(run: Run) -> list[Grid]:
    grids = []
    for race in replay_races_of_run(run.info, run.records, run.parity):
        grid = make_race_grid(race, run.records)
        grids.append(replace(grid, title=run.add_label(grid.title)))
    return [*grids[:-1], *(replace(last, note=_NOTE) for last in grids[-1:])]


def make_race_grid(race: Race, records: Sequence[TrialRecord]) -> Grid:
    parts = describe_differences(race.configs)
    short = [r for r in records if r.trial.short and r.trial.devices == race.devices and r.trial.config in parts]
    speeds: dict[Config, list[float]] = {config: [] for config in race.configs}
    for record in short:
        if is_measured(record):
            speeds[record.trial.config].append(compute_samples_per_second(record))
    departures = [*reversed(race.departures), *race.not_started]
    fates = {departure.key: describe_departure(departure) for departure in departures}
    for config in race.running:
        if race.waiting:
            fates[config] = f"in round {race.round}"
        elif config == race.winner:
            fates[config] = "the only candidate" if len(race.configs) == 1 else "the winner, measured in full"
        else:
            fates[config] = "not separated from the winner by noise"
    order = [*race.running, *(departure.key for departure in departures)]
    order.sort(key=lambda config: (config not in race.running, -max(speeds[config], default=0.0)))
    rows = []
    for config in order:
        own = [config.framework, config.strategy_label]
        name = " · ".join([*own, *(part for part in parts[config] if part not in own)])
        interval = mean_interval(speeds[config], sequential=True) if speeds[config] else None
        speed = numbers.format_number(interval.mean if interval else None)
        rows.append((name, str(len(speeds[config])), speed, numbers.format_plus_minus(interval), fates[config]))
    unit = short[0].unit if short else IMAGES
    title = f"Search: {find_model_title(race.configs[0].model)} on {format_device_count(race.devices)}"
    return Grid(title, ("candidate", "trials", f"{unit}/s", "±", "what became of it"), tuple(rows), left=(0, 4))


def describe_departure(departure: Departure) -> str:
    if departure.ratio is None:
        return departure.reason
    ratio = numbers.format_with_limits(departure.ratio)
    return f"after round {departure.round}: {departure.reason}, {ratio} of its speed"
