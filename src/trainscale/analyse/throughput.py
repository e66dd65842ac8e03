"""How fast one trial trained, in cluster-wide samples per second, and what it cost."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from statistics import median

from ..errors import InputError
from ..record.trial import RankSample, TrialRecord
from ..spec.config import Config
from ..worker.data.facts import SYNTHETIC
from ..worker.job import ASYNCHRONOUS
from .statistics import Interval, jitter, mean_interval


def is_synchronous(config: Config) -> bool:
    return config.strategy not in ASYNCHRONOUS


def compute_rank_step(record: TrialRecord, rank: RankSample) -> float:
    batch = record.trial.config.batch_per_device(record.trial.devices)
    return rank.window_seconds * batch / rank.samples


def is_measured(record: TrialRecord) -> bool:
    worked = [rank.window_seconds > 0 and rank.samples > 0 for rank in record.ranks]
    return record.ok and bool(worked) and all(worked)


def compute_samples_per_second(record: TrialRecord) -> float:
    return _add_up(record, [(rank.samples, rank.window_seconds) for rank in record.ranks])


def list_speeds(records: Iterable[TrialRecord]) -> list[float]:
    """Return the samples per second of the trials that have a result."""
    return [compute_samples_per_second(record) for record in records if is_measured(record)]


def _add_up(record: TrialRecord, ranks: Sequence[tuple[int, float]]) -> float:
    if is_synchronous(record.trial.config):  # they share their steps, so the longest window counts
        return sum(samples for samples, _ in ranks) / max(seconds for _, seconds in ranks)
    return math.fsum(samples / seconds for samples, seconds in ranks)


def compute_input_overhead(record: TrialRecord) -> float | None:
    """Return the share of the speed that the input costs; chance may make it negative."""
    ranks = record.ranks
    if not ranks or any(rank.resident_steps < 1 or rank.resident_seconds <= 0 for rank in ranks):
        return None
    batch = record.trial.config.batch_per_device(record.trial.devices)
    resident = [(batch * rank.resident_steps, rank.resident_seconds) for rank in ranks]
    return 1 - compute_samples_per_second(record) / _add_up(record, resident)


def compute_waiting_share(record: TrialRecord) -> float | None:
    """Return the largest share of a rank's window without samples ready."""
    if record.trial.config.data == SYNTHETIC:
        return None
    waits = [(rank.waited_seconds, rank.window_seconds) for rank in record.ranks]
    return max((waited / window for waited, window in waits if waited is not None), default=None)


def list_step_seconds(record: TrialRecord) -> list[float]:
    """Return the step times. A synchronous step lasts as long as its slowest rank."""
    steps = [rank.step_seconds for rank in record.ranks]
    if is_synchronous(record.trial.config):
        return list(map(max, zip(*steps, strict=False)))  # checks.py flags a rank that lost lines
    return list(chain.from_iterable(steps))


def compute_step_jitter(record: TrialRecord) -> float | None:
    """Return the robust standard deviation of the speed; asynchronous ranks add in quadrature."""
    if is_synchronous(record.trial.config):
        steps = list_step_seconds(record)
        if not steps or min(steps) <= 0:
            return None
        most = max(len(rank.step_seconds) for rank in record.ranks)
        per_step = sum(rank.samples for rank in record.ranks) / most
        return jitter([per_step / step for step in steps])
    spreads = []
    for rank in record.ranks:
        if rank.step_seconds:
            per_step = rank.samples / len(rank.step_seconds)
            speeds = [per_step / step for step in rank.step_seconds if step > 0]
            spreads.append(jitter(speeds or [0.0]))
    return math.hypot(*spreads) if spreads else None


def list_known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def median_over(values: Iterable[float | None]) -> float | None:
    known = list_known(values)
    return median(known) if known else None


# ---- what training costs

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
        valid = "a number above 0 with its unit, such as 32.77/host-hour or 2.5/device-hour"
        raise InputError(f"--price: {text!r} is not a price; valid: {valid}")
    return Price(float(match[1]), match[2])


def compute_energy_per_sample(record: TrialRecord) -> float | None:
    """Return the joules of a sample. None if any GPU or, on CPUs, any host was not counted."""
    sources = [rank.energy_source for rank in record.ranks if rank.energy_joules is not None]
    needed = len(record.ranks) if record.trial.config.device != "cpu" else record.hosts
    if len(sources) < needed:
        return None
    joules = sum(rank.energy_joules or 0.0 for rank in record.ranks)
    return joules / sum(rank.samples for rank in record.ranks)


def average_energy_per_sample(records: Sequence[TrialRecord], is_sequential: bool = False) -> Interval | None:
    """Return the joules of a sample. None if any trial with a result has none."""
    joules = [compute_energy_per_sample(record) for record in records if is_measured(record)]
    known = list_known(joules)
    return mean_interval(known, is_sequential) if known and len(known) == len(joules) else None
