"""What the exchange of gradients must move, how fast it is alone, how much of it hides, and which batch would help."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from ...record.trial import TrialRecord
from ...spec.config import WEAK, Config
from .causes import CONTENTION, EXCHANGE, STRAGGLERS, WORK, ExplainedPart
from .sources import PointRecords, Sources, compute_run_mean

_BYTES_PER_PARAMETER = {"fp64": 8}  # gradients are exchanged in fp32 under every other precision

# A network that a good deal of clusters have: 10 Gbit/s, and what a collective call costs on any network. Work that
# takes less than twice as long as its exchange over such a network is too small to scale, whatever the links are.
_GOOD_BYTES_PER_SECOND = 1.25e9
_GOOD_LATENCY_SECONDS = 2e-4
_TOO_SMALL = 2.0

# The seconds of a step on one device, of every trial: by the config without its batch, then by its batch.
OneDeviceTimes = dict[Config, dict[int, list[float]]]

_TARGETS = (0.95, 0.9, 0.85, 0.8, 0.75, 0.7, 0.6, 0.5)
_LEAST_GAIN = 0.04  # of efficiency, for a larger batch to be worth a sentence
_MOST_GROWTH = 16  # of the batch: farther away, a straight line predicts nothing
_MODEST = 0.8  # the efficiency that is named where no target is within that growth
_AS_LONG = 0.9  # of the time of a step


@dataclass(frozen=True)
class Exchange:
    """``bytes`` are the gradients of one rank and step. A rate is bytes of gradients per second, not of traffic."""

    bytes: int
    exposed_seconds: float | None  # the part of a step that nothing hides; None if it is unknown
    latency_seconds: float | None = None  # fitted to exchanges alone, of several sizes
    bytes_per_second: float | None = None
    servers: int = 0
    server_bytes: int | None = None  # held by the server that holds most

    @property
    def alone_seconds(self) -> float | None:
        """How long the gradients of a step take if nothing else happens."""
        if self.latency_seconds is None or not self.bytes_per_second:
            return None
        return self.latency_seconds + self.bytes / self.bytes_per_second

    @property
    def hidden_seconds(self) -> float | None:
        """How much of that hides behind computing."""
        if self.alone_seconds is None or self.exposed_seconds is None:
            return None
        return max(0.0, self.alone_seconds - self.exposed_seconds)

    def estimate_seconds_on_good_network(self, devices: int) -> float:
        """Return how long it takes over 10 Gbit/s: a ring sends 2(n - 1)/n of the gradients."""
        return _GOOD_LATENCY_SECONDS + 2 * (devices - 1) / devices * self.bytes / _GOOD_BYTES_PER_SECOND


@dataclass(frozen=True)
class BatchAdvice:
    """With this batch per device the point would reach this efficiency, if the exchange stays as exposed as it is."""

    batch: int
    efficiency: float
    measured_batches: int  # on one device; with 1, step times are taken to be proportional to the batch


def describe_exchange(sources: Sources, parts: Sequence[ExplainedPart]) -> Exchange | None:
    """Return what the ranks of a point exchange in a step. None if the number of parameters is not known."""
    parameters = next((r.parameters for r in sources.records if r.parameters), None)
    if parameters is None:
        return None
    exposed = [part.seconds for part in parts if set(part.causes) <= EXCHANGE]
    fit = fit_exchanges(sources.records)
    held = [server.bytes for record in sources.records for server in record.servers if server.bytes]
    return Exchange(
        bytes=parameters * _BYTES_PER_PARAMETER.get(sources.config.precision, 4),
        exposed_seconds=math.fsum(exposed) if exposed else None,
        latency_seconds=fit[0] if fit else None,
        bytes_per_second=fit[1] if fit else None,
        servers=sources.config.count_servers(sources.hosts),
        server_bytes=max(held, default=None),
    )


def is_too_small(exchange: Exchange | None, work_seconds: float | None, lost_seconds: float, devices: int) -> bool:
    """Whether the work takes less than twice as long as what is lost, and than an exchange over a good network."""
    if exchange is None or work_seconds is None:
        return False
    return work_seconds < _TOO_SMALL * min(lost_seconds, exchange.estimate_seconds_on_good_network(devices))


def fit_exchanges(records: Sequence[TrialRecord]) -> tuple[float, float] | None:
    """Return the latency in seconds and the rate in bytes per second of exchanges alone; None if none were measured.

    The slowest rank of each trial counts. Errors count relative to the time, because small messages are as many as
    large ones.
    """
    times: defaultdict[int, list[float]] = defaultdict(list)
    for record in records:
        slowest: dict[int, float] = {}
        for entry in (entry for rank in record.ranks for entry in rank.exchanges if entry.count):
            slowest[entry.bytes] = max(slowest.get(entry.bytes, 0.0), entry.seconds / entry.count)
        for size, seconds in slowest.items():
            times[size].append(seconds)
    points = [(float(size), fmean(values)) for size, values in times.items() if min(values) > 0]
    if not points:
        return None
    if len(points) == 1:  # parameter servers of PyTorch take all gradients at once
        return 0.0, points[0][0] / points[0][1]
    latency, slope = fit_line(points)
    return (latency, 1 / slope) if slope > 0 else None


def fit_line(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Return intercept and slope, both not negative, of the line with the least relative squared errors."""
    weights = [1 / y**2 for _, y in points]
    total = math.fsum(weights)
    x_mean = math.fsum(w * x for w, (x, _) in zip(weights, points, strict=True)) / total
    y_mean = math.fsum(w * y for w, (_, y) in zip(weights, points, strict=True)) / total
    spread = math.fsum(w * (x - x_mean) ** 2 for w, (x, _) in zip(weights, points, strict=True))
    both = math.fsum(w * (x - x_mean) * (y - y_mean) for w, (x, y) in zip(weights, points, strict=True))
    slope = both / spread if spread else 0.0
    if slope <= 0:
        return y_mean, 0.0
    if (intercept := y_mean - slope * x_mean) >= 0:
        return intercept, slope
    products = math.fsum(w * x * y for w, (x, y) in zip(weights, points, strict=True))
    return 0.0, products / math.fsum(w * x * x for w, (x, _) in zip(weights, points, strict=True))


# ---- other batches


def advise_batch(
    times: Sequence[tuple[float, float]], sources: Sources, parts: Sequence[ExplainedPart]
) -> BatchAdvice | None:
    """Return the batch that would help: more work per step, and the same exchange. None if none would, or if unknown.

    ``times`` are the seconds of a step on one device by batch.
    """
    seconds = {part.causes[0]: part.seconds for part in parts if len(part.causes) == 1}
    exposed = math.fsum(part.seconds for part in parts if set(part.causes) <= EXCHANGE)
    if not {WORK, CONTENTION, STRAGGLERS} <= seconds.keys() or exposed <= 0:
        return None
    work, batch = seconds[WORK], sources.batch
    growth = (work + seconds[CONTENTION] + seconds[STRAGGLERS]) / work
    intercept, slope = fit_line(times) if len(times) > 1 else (0.0, work / batch)
    if slope <= 0:
        return None
    current = work / (work * growth + exposed)
    needed = {}  # the batch by the efficiency that it would reach
    for target in _TARGETS:
        if target * growth < 1 and target > current + _LEAST_GAIN:
            needed[target] = (target * exposed / (1 - target * growth) - intercept) / slope
    near = [target for target, other in needed.items() if other <= _MOST_GROWTH * batch]
    target = near[0] if near else _MODEST
    if target not in needed:
        return None
    step = 10 ** max(0, math.floor(math.log10(max(needed[target], 1))) - 1)  # two significant digits
    return BatchAdvice(max(batch + 1, math.ceil(needed[target] / step) * step), target, max(1, len(times)))


def find_equal_batch(times: Sequence[tuple[float, float]], batch: int) -> int | None:
    """Return the smallest batch, of at most half the size, whose step takes as long on one device. None if none does.

    Then the samples are not what takes the time. On a GPU that is mostly the host, which starts the operations.
    """
    by_batch = dict(times)
    if batch not in by_batch:
        return None
    as_long = [int(other) for other, seconds in times if seconds >= _AS_LONG * by_batch[batch]]
    return min((other for other in as_long if 2 * other <= batch), default=None)


def group_one_device_times(points: PointRecords) -> OneDeviceTimes:
    """Return the seconds of a step of every one-device trial, averaged once and not for each point again."""
    times: OneDeviceTimes = defaultdict(dict)
    for (config, devices), records in points.items():
        if devices == 1:
            seconds = [compute_run_mean(record).compute for record in records]
            times[replace(config, batch=0)][config.batch] = seconds
    return times


def average_by_batch(one_device: OneDeviceTimes, sources: Sources) -> list[tuple[float, float]]:
    """Return the seconds of a step by batch, of every batch that was measured on one device for the work of a point."""
    if not sources.one_device_records:
        return []
    config = sources.one_device_records[0].trial.config
    by_batch = dict(one_device[replace(config, batch=0)])
    own = by_batch[config.batch]
    times = {config.batch_per_device(1): list(own)}
    for record in sources.one_device_records:
        for entry in (entry for rank in record.ranks for entry in rank.further_batches if entry.steps):
            times.setdefault(entry.batch, []).append(entry.seconds / entry.steps)
    if sources.config.scaling == WEAK:
        for batch, seconds in by_batch.items():
            if batch != config.batch:
                times.setdefault(batch, []).extend(seconds)
    return [(float(batch), fmean(seconds)) for batch, seconds in sorted(times.items())]
