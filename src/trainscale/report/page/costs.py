"""What training cost: energy where it was recorded, and money where the reader names a price."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from ...analyse.series import Point, Series
from ...analyse.statistics import Interval, mean_interval
from ...analyse.throughput import JOULES_PER_WATT_HOUR, MILLION, Price, compute_energy_per_sample, is_measured
from ...record.trial import TrialRecord
from .. import numbers
from ..table import Grid

_ENERGY_NOTE = (
    "Energy is that of the GPUs (NVML), or of the hosts' processors (RAPL), in the measured windows, without the rest"
    " of the hosts."
)


def make_cost_grid(runs: Sequence[tuple[Sequence[Series], Sequence[TrialRecord]]], price: Price | None) -> Grid | None:
    """Return a row for every point that has an energy, or for all if there is a price. None if there is neither.

    ``runs`` are the series and the records of each run.
    """
    points = []
    for all_series, records in runs:
        energies = _collect_energies(records)
        points += [
            (series, point, energies.get((series.config, point.devices)))
            for series in all_series
            for point in series.good
            if price or (series.config, point.devices) in energies
        ]
    if not points:
        return None
    has_energy = any(energy for _, _, energy in points)
    header = ["series", "devices", f"{points[0][1].unit}/s"]
    header += ["cost/million"] if price else []
    header += ["Wh/million", "±", "mean watts"] if has_energy else []
    rows = tuple(_format_row(series, point, energy, price, has_energy) for series, point, energy in points)
    notes = [f"Costs are at {price}, in the currency of the price."] if price else []
    notes += [_ENERGY_NOTE] if has_energy else ["Energy: no trial recorded it."]
    return Grid("Cost and energy", tuple(header), rows, " ".join(notes))


def _format_row(
    series: Series, point: Point, energy: Interval | None, price: Price | None, with_energy: bool
) -> tuple[str, ...]:
    assert point.samples_per_second is not None
    speed = point.samples_per_second.mean
    cells = [series.title, numbers.format_integer(point.devices), numbers.format_rate(speed)]
    if price:
        cells.append(
            numbers.format_significant(price.compute_price_per_second(point.devices, point.hosts) / speed * MILLION, 3)
        )
    if with_energy:
        watts = energy.mean / MILLION * JOULES_PER_WATT_HOUR * speed if energy else None
        cells += [
            numbers.format_significant(energy.mean, 3) if energy else numbers.MISSING,
            numbers.format_plus_minus(energy),
            numbers.MISSING if watts is None else numbers.format_significant(watts, 3),
        ]
    return tuple(cells)


def _collect_energies(records: Sequence[TrialRecord]) -> dict[object, Interval]:
    """Return the watt-hours of a million samples of every point of which each good trial was counted."""
    by_point: defaultdict[object, list[float | None]] = defaultdict(list)
    for record in {record.trial: record for record in records}.values():
        if is_measured(record):
            by_point[record.trial.point].append(compute_energy_per_sample(record))
    energies = {}
    for point, values in by_point.items():
        known = [value for value in values if value is not None]
        if known and len(known) == len(values):
            energies[point] = mean_interval(known).scaled(MILLION / JOULES_PER_WATT_HOUR)
    return energies
