"""What training costs: a price per host-hour or device-hour, and energy."""

from __future__ import annotations

import re
from dataclasses import dataclass

from ..errors import InputError
from ..record.trial import TrialRecord

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
