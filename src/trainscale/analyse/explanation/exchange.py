"""What the exchange of gradients must move, how fast it is alone, and how much of it hides behind computing."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ...record.trial import TrialRecord
from .causes import COMMUNICATION, CROSSING, SERVERS
from .parts import Part
from .sources import Sources

EXCHANGE = frozenset({COMMUNICATION, SERVERS, CROSSING})

_BYTES_PER_PARAMETER = {"fp64": 8}  # gradients are exchanged in fp32 under every other precision

# A network that a good deal of clusters have: 10 Gbit/s, and what a collective call costs on any network. Work that
# takes less than twice as long as its exchange over such a network is too small to scale, whatever the links are.
GOOD_BYTES_PER_SECOND = 1.25e9
GOOD_LATENCY_SECONDS = 2e-4
TOO_SMALL = 2.0


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

    @property
    def exposed_bytes_per_second(self) -> float | None:
        """The least rate that explains what is exposed: less than the links', where nothing hides."""
        return self.bytes / self.exposed_seconds if self.exposed_seconds else None


def describe_exchange(sources: Sources, parts: Sequence[Part]) -> Exchange | None:
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


def estimate_good_exchange_seconds(exchange: Exchange, devices: int) -> float:
    """Return how long the exchange takes over a good network: a ring sends 2(n - 1)/n of the gradients."""
    return GOOD_LATENCY_SECONDS + 2 * (devices - 1) / devices * exchange.bytes / GOOD_BYTES_PER_SECOND


def is_too_small(exchange: Exchange | None, work_seconds: float | None, lost_seconds: float, devices: int) -> bool:
    """Whether the work takes less than twice as long as what is lost, and than an exchange over a good network."""
    if exchange is None or work_seconds is None:
        return False
    return work_seconds < TOO_SMALL * min(lost_seconds, estimate_good_exchange_seconds(exchange, devices))


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
