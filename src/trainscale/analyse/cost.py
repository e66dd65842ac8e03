"""What training costs: a price per host-hour or device-hour, what further devices cost for each sample gained, and
energy.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance

from ..errors import InputError
from ..record.trial import TrialRecord
from .statistics import CONFIDENCE, LEAST_REPEATS, Interval, ratio_interval, student_t

MILLION = 1e6
JOULES_PER_WATT_HOUR = 3600.0
_PRICE = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)/(host|device)-hour")


@dataclass(frozen=True)
class Price:
    """``amount`` per hour of each host or each device, in any currency."""

    amount: float
    per: str  # host or device

    def compute_price_per_second(self, devices: int, hosts: int) -> float:
        return self.amount * (hosts if self.per == "host" else devices) / 3600

    def __str__(self) -> str:
        return f"{self.amount:g}/{self.per}-hour"


def parse_price(text: str) -> Price:
    match = _PRICE.fullmatch(text.strip().lower())
    if not match or not float(match[1]):
        raise InputError(
            f"--price: {text!r} is not a price; valid: a number above 0 with its unit, such as 32.77/host-hour or"
            " 2.5/device-hour"
        )
    return Price(float(match[1]), match[2])


@dataclass(frozen=True)
class Step:
    """What a step from ``before`` to ``after`` devices gains and costs.

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
class Rung:
    """A configuration on one device count: its run speeds, and the resources that it pays for."""

    devices: int
    hosts: int
    speeds: Sequence[float]


def compute_step_cost(before: Rung, after: Rung, price: Price | None = None) -> Step:
    """Return what a step costs. Without a price, the cost is counted in devices."""
    unit = price or Price(3600.0, "device")
    old, new = (
        unit.compute_price_per_second(before.devices, before.hosts),
        unit.compute_price_per_second(after.devices, after.hosts),
    )
    gained = difference_interval(after.speeds, before.speeds)
    ratio = ratio_interval(after.speeds, before.speeds)
    cost = _divide(MILLION * (new - old), gained) if price else None
    return Step(before.devices, after.devices, gained, _divide(new / old - 1, _subtract_one(ratio)), cost)


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


def _subtract_one(interval: Interval) -> Interval:
    low = None if interval.low is None else interval.low - 1
    return Interval(interval.mean - 1, low, None if interval.high is None else interval.high - 1)


def _divide(cost: float, gained: Interval) -> Interval:
    """Return the cost divided by the gain. A gain that may be zero has no upper limit of the cost."""
    mean = cost / gained.mean if gained.mean > 0 else math.inf
    if gained.low is None or gained.high is None:
        return Interval(mean)
    low = cost / gained.high if gained.high > 0 else math.inf
    return Interval(mean, low, cost / gained.low if gained.low > 0 else math.inf)


def compute_energy_per_sample(record: TrialRecord) -> float | None:
    """Return the joules of a sample in the window, over all devices or hosts that were counted.

    None if a GPU was not counted or, on CPUs, not every host was: a part of the energy would look like all of it.
    """
    sources = [rank.energy_source for rank in record.ranks if rank.energy_joules is not None]
    needed = len(record.ranks) if record.trial.config.device != "cpu" else record.hosts
    if len(sources) < needed:
        return None
    joules = sum(rank.energy_joules or 0.0 for rank in record.ranks)
    return joules / sum(rank.samples for rank in record.ranks)
