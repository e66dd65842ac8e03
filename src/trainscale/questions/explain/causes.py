"""The causes by which a step on several devices takes longer than the work alone, and the share of each.

Each cause has a level: the seconds of a step with this cause and all before it. A part of the step is the difference of
two levels. A level that the records do not contain is unknown; the part between its neighbours then has several causes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from ...analyse.columns import column
from ...analyse.statistics import CONFIDENCE, LEAST_REPEATS, Interval, student_t
from ...report.wording import join_names
from ...worker.data.facts import SYNTHETIC
from .sources import ALONE, APART, NEAR, NEAR_APART, ONE_DEVICE, POINT, RunMean, Sources

WORK = "work"  # the step of one device that exchanges nothing
CONTENTION = "contention"  # what devices take from each other while they exchange nothing
STRAGGLERS = "stragglers"  # what the slowest rank of a step takes longer than the others
COMMUNICATION = "communication"  # what the exchange of gradients adds, as far as nothing hides it
SERVERS = "servers"  # what parameter servers need for several workers, beyond what they need for one
CROSSING = "crossing hosts"  # what the exchange takes longer because it leaves the first host
INPUT = "input"  # waiting for samples, and preparing and placing them

CAUSES = (WORK, CONTENTION, STRAGGLERS, COMMUNICATION, SERVERS, CROSSING, INPUT)
EXCHANGE = frozenset({COMMUNICATION, SERVERS, CROSSING})

# Losses below 5 % are those of a curve that scales well; repeats on a quiet machine differ by 2 %.
SMALL_LOSS = 0.05
# One or two repeats have no interval, so a part must be larger to count.
SMALL_WITHOUT_INTERVAL = 0.1

_DRAWS = 2000
_SEED = 20261116
_NORMAL_QUANTILE = 1.959963984540054

Means = Mapping[str, RunMean]  # by the name of the point; each value is a number, or an array of draws


@dataclass(frozen=True, kw_only=True)
class ExplainedPart:
    """A part of the step time of a point. The shares of a point add up to 1."""

    series: str = column("title of the series")
    devices: int = column("workers")
    part: str = column("what takes the time: work, or one or several causes")
    share: float = column("of the step time", "share")
    measured: Interval = column("the share as it was measured; chance may make it negative", "share")
    seconds: float = column("of a step", "s")
    causes: tuple[str, ...] = column("the causes by name: several where the records do not separate them")

    @property
    def is_impossible(self) -> bool:
        """Whether it is negative by more than chance: a point that it was computed from is not what it should be."""
        if self.measured.high is None:
            return self.measured.mean < -SMALL_WITHOUT_INTERVAL
        return self.measured.mean < 0 and self.measured.high < 0


def stands_out(part: ExplainedPart) -> bool:
    """Whether a part is large, and larger than chance."""
    if part.measured.low is None:
        return part.share > SMALL_WITHOUT_INTERVAL
    return part.share > SMALL_LOSS and part.measured.low > 0


def round_to_percents(parts: Sequence[ExplainedPart]) -> list[int]:
    """Return whole percentages that add up to exactly 100: the largest remainders are rounded up."""
    exact = [part.share * 100 for part in parts]
    floors = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: floors[index] - exact[index])
    for index in by_remainder[: 100 - sum(floors)]:
        floors[index] += 1
    return floors


def format_limits(part: ExplainedPart) -> str:
    """Return the limits of the interval of a part in per cent: (24 … 30). Empty where there are none."""
    low, high = part.measured.low, part.measured.high
    if low is None or high is None:
        return ""
    return f"({low * 100:.0f} … {high * 100:.0f})".replace("-", "−")


def split_step(sources: Sources, title: str) -> tuple[ExplainedPart, ...]:
    """Return the parts of the point's step, in the order of causes. Shares are never negative."""
    draws = _Draws(sources.means)
    together: list[str] = []
    causes: list[tuple[str, ...]] = []
    centres: list[float] = []
    drawn: list[Any] = []
    for cause in _list_possible_causes(sources):
        together.append(cause)
        if (level := _LEVELS[cause](sources, draws.means)) is not None:
            causes.append(tuple(together))
            centres.append(float(level))
            drawn.append(_LEVELS[cause](sources, draws.drawn))
            together = []
    # Chance can put a level above the next one, or above the last. The part between them is then nothing.
    bounds = [min(centres[0], centres[-1])]
    for level in centres[1:]:
        bounds.append(min(max(level, bounds[-1]), centres[-1]))
    parts = []
    for index, names in enumerate(causes):
        centre, of_draws, seconds = centres[index], drawn[index], bounds[index]
        if index:
            centre, of_draws = centre - centres[index - 1], of_draws - drawn[index - 1]
            seconds -= bounds[index - 1]
        parts.append(
            ExplainedPart(
                series=title,
                devices=sources.devices,
                part=join_names(names) + (" together" if len(names) > 1 else ""),
                share=seconds / bounds[-1],
                measured=draws.make_interval(centre / draws.means[POINT].step, of_draws / draws.drawn[POINT].step),
                seconds=seconds,
                causes=names,
            )
        )
    return tuple(parts)


def _list_possible_causes(sources: Sources) -> list[str]:
    """Return the causes that can play a part in the step of a point."""
    causes = [WORK, CONTENTION, STRAGGLERS, COMMUNICATION]
    if sources.has_servers:
        causes.append(SERVERS)
    if sources.crosses_hosts:
        causes.append(CROSSING)
    return causes if sources.config.data == SYNTHETIC else [*causes, INPUT]


# ---- the level of each cause; None if it is unknown


def _work(sources: Sources, means: Means) -> Any:
    """One device alone. One worker with its parameter server exchanges gradients, so its step is not the work alone."""
    if ONE_DEVICE not in means or (sources.has_servers and sources.one_device_exchanges and APART in means):
        return None
    # Under strong scaling, a device has fewer samples here than alone.
    return means[ONE_DEVICE].compute * (sources.batch / sources.config.batch_per_device(1))


def _contention(sources: Sources, means: Means) -> Any:
    """Several devices that exchange nothing.

    Ranks that share cores also need longer for the exchange, which those that exchange nothing do not show: that is
    inferred from their CPU time.
    """
    if APART not in means:
        return None
    work, apart = _work(sources, means), means[APART].compute
    if work is None or not _lacks_cores(sources):
        return apart
    return _larger(apart, work + means[POINT].core_delay)


def _stragglers(sources: Sources, means: Means) -> Any:
    """The slowest of them. A rank that lacks its core is late by its computing and by its part of the exchange."""
    if APART not in means:
        return None
    late = means[APART].compute + means[APART].stragglers
    if not _lacks_cores(sources):
        return late
    return _larger(late, _contention(sources, means) + means[POINT].further_core_delay)


def _communication(sources: Sources, means: Means) -> Any:
    """The exchange itself; where it has further causes, as it is with one server's worker, or on one host."""
    if not sources.has_servers and not sources.crosses_hosts:
        return means[POINT].compute
    stragglers = _stragglers(sources, means)
    if stragglers is None:
        return None
    if sources.has_servers:  # what one worker pays for the exchange with its servers, every worker pays
        if sources.one_device_exchanges or not {ONE_DEVICE, ALONE} <= means.keys():
            return None
        return stragglers + _exchange_of_one_worker(means)
    if not {NEAR, NEAR_APART} <= means.keys():
        return None
    # A ring of n ranks sends 2(n - 1)/n of the gradients, so the exchange of one host is scaled by that.
    near, here = sources.near_devices, sources.devices
    growth = ((here - 1) / here) / ((near - 1) / near)
    return stragglers + _larger(_exchange_on_one_host(means), 0.0) * growth


def _servers(sources: Sources, means: Means) -> Any:
    """Servers with several workers; if the point crosses hosts, as on one host, in proportion to the workers."""
    if not sources.crosses_hosts:
        return means[POINT].compute
    one_worker = _communication(sources, means)
    if one_worker is None or not {NEAR, NEAR_APART} <= means.keys():
        return None
    growth = (sources.devices - 1) / (sources.near_devices - 1)
    return one_worker + _larger(_exchange_on_one_host(means) - _exchange_of_one_worker(means), 0.0) * growth


def _crossing(sources: Sources, means: Means) -> Any:
    return means[POINT].compute


def _input(sources: Sources, means: Means) -> Any:
    return means[POINT].step


_LEVELS: dict[str, Callable[[Sources, Means], Any]] = {
    WORK: _work,
    CONTENTION: _contention,
    STRAGGLERS: _stragglers,
    COMMUNICATION: _communication,
    SERVERS: _servers,
    CROSSING: _crossing,
    INPUT: _input,
}


def _lacks_cores(sources: Sources) -> bool:
    return any(mean.core_delay or mean.further_core_delay for mean in sources.means[POINT])


def _exchange_of_one_worker(means: Means) -> Any:
    return _larger(means[ALONE].compute - means[ONE_DEVICE].compute, 0.0)


def _exchange_on_one_host(means: Means) -> Any:
    return means[NEAR].compute - means[NEAR_APART].compute - means[NEAR_APART].stragglers


def _larger(first: Any, second: Any) -> Any:
    import numpy as np

    return np.maximum(first, second)


class _Draws:
    """The means of several points, and the same draws of their repeats for every level: a bootstrap over run means."""

    def __init__(self, runs: Mapping[str, Sequence[RunMean]]) -> None:
        import numpy as np

        random = np.random.default_rng(_SEED)
        self.means: dict[str, RunMean] = {}
        self.drawn: dict[str, RunMean] = {}
        fewest = min(map(len, runs.values()))
        for name, of_point in runs.items():
            table = np.array([astuple(run) for run in of_point])
            chosen = random.integers(len(of_point), size=(_DRAWS, len(of_point)))
            self.means[name] = RunMean(*map(float, table.mean(axis=0)))
            self.drawn[name] = RunMean(*np.moveaxis(table[chosen].mean(axis=1), -1, 0))
        # The limits of a bootstrap are too close together where repeats are few. They are moved apart by the factor
        # that makes the interval of a plain mean that of Student's t.
        self._stretch = None
        if fewest >= LEAST_REPEATS:
            quantile = student_t(1 - (1 - CONFIDENCE) / 2, fewest - 1)
            self._stretch = quantile / _NORMAL_QUANTILE * math.sqrt(fewest / (fewest - 1))

    def make_interval(self, centre: float, drawn: Any) -> Interval:
        """Return an interval if every point has at least three repeats."""
        import numpy as np

        if self._stretch is None:
            return Interval(centre)
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(drawn, (tail, 1 - tail))
        return Interval(
            centre, centre + self._stretch * (float(low) - centre), centre + self._stretch * (float(high) - centre)
        )
