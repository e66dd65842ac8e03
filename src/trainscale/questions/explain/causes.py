"""Why a step on several devices takes longer than the work alone, and the share of each cause.

A point is compared with one device, the same devices without exchange, and fewer devices on one host. The level of a
cause is the seconds of a step with it and all causes before it; a part of the step is the difference of two levels.
A part between unknown levels has several causes. Only run means are resampled, never single steps.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from statistics import fmean
from typing import Any

from ...analyse.series import column
from ...analyse.statistics import CONFIDENCE, LEAST_REPEATS, Interval, student_t
from ...analyse.throughput import compute_rank_step, is_synchronous
from ...record.trial import RankSample, TrialRecord
from ...report.wording import join_names
from ...spec.config import Config, PointKey, remove_exchange
from ...worker.data.facts import SYNTHETIC
from .ranks import SlowRank, compute_core_delays, find_slow_ranks

WORK = "work"  # the step of one device that exchanges nothing
CONTENTION = "contention"  # what devices take from each other while they exchange nothing
STRAGGLERS = "stragglers"  # what the slowest rank of a step takes longer than the others
COMMUNICATION = "communication"  # what the exchange of gradients adds, as far as nothing hides it
SERVERS = "servers"  # what parameter servers need for several workers, beyond what they need for one
CROSSING = "crossing hosts"  # what the exchange takes longer because it leaves the first host
INPUT = "input"  # waiting for samples, and preparing and placing them

CAUSES = (WORK, CONTENTION, STRAGGLERS, COMMUNICATION, SERVERS, CROSSING, INPUT)
EXCHANGE = frozenset({COMMUNICATION, SERVERS, CROSSING})

# A curve that scales well loses less than 5 %; quiet repeats differ by 2 %.
SMALL_LOSS = 0.05
# One or two repeats have no interval, so a part must be larger to count.
SMALL_WITHOUT_INTERVAL = 0.1

LOCAL = "local"
_DRAWS = 2000
_SEED = 20261116
_NORMAL_QUANTILE = 1.959963984540054

# The points that are compared.
POINT = "point"  # the one that is explained
ONE_DEVICE = "one"  # the same work on one device, if possible without exchange
ALONE = "alone"  # the same strategy on one device
APART = "apart"  # the same devices without exchange
NEAR = "near"  # the same strategy on the most devices of a single host
NEAR_APART = "near apart"  # those devices without exchange

PointRecords = Mapping[PointKey, Sequence[TrialRecord]]


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
        """Whether it is negative by more than chance."""
        if self.measured.high is None:
            return self.measured.mean < -SMALL_WITHOUT_INTERVAL
        return self.measured.mean < 0 and self.measured.high < 0

    @property
    def stands_out(self) -> bool:
        if self.measured.low is None:
            return self.share > SMALL_WITHOUT_INTERVAL
        return self.share > SMALL_LOSS and self.measured.low > 0


# ---- the trials that are compared


@dataclass(frozen=True)
class RunMean:
    """Seconds per step, of one trial or of many; ``compute`` is without input."""

    step: Any
    compute: Any
    stragglers: Any = 0.0  # what the slowest rank adds, of ranks that do not wait for each other
    core_delay: Any = 0.0  # of every rank of the point, because it does not get its core whole
    further_core_delay: Any = 0.0  # of the most delayed rank, beyond that


@dataclass(frozen=True)
class Sources:
    """The trials that explain a point."""

    config: Config
    devices: int
    records: Sequence[TrialRecord]
    one_device: Sequence[TrialRecord]
    apart: Sequence[TrialRecord]
    near_devices: int  # the most on a single host, of a point that crosses hosts; 0 if there are none
    one_device_exchanges: bool  # the one-device point is that of the strategy itself
    slow_ranks: tuple[SlowRank, ...]
    means: dict[str, list[RunMean]]

    @property
    def has_servers(self) -> bool:
        return self.config.strategy == "ps"

    @property
    def hosts(self) -> int:
        return max(record.hosts for record in self.records)


def find_sources(points: PointRecords, config: Config, devices: int) -> Sources:
    records, without_exchange = points[config, devices], remove_exchange(config)
    local = replace(without_exchange, strategy=LOCAL)
    one_device = points.get((without_exchange, 1)) or points.get((local, 1), [])
    one_device_exchanges = not one_device
    if one_device_exchanges:
        one_device = points.get((config, 1), [])
    apart = points.get((without_exchange, devices), [])
    near_devices = 0
    if max(record.hosts for record in records) > 1:
        near_counts = [
            count
            for (other, count), of_point in points.items()
            if other == config and 1 < count < devices and max(record.hosts for record in of_point) == 1
        ]
        near_devices = max(near_counts, default=0)

    def average(point: PointKey) -> list[RunMean]:
        return [compute_run_mean(record) for record in points.get(point, [])]

    slow_ranks, delays = find_slow_ranks(apart), compute_core_delays(records, one_device, apart)
    means = {
        POINT: [
            replace(compute_run_mean(record), core_delay=of_all, further_core_delay=of_one)
            for record, (of_all, of_one) in zip(records, delays, strict=True)
        ],
        ONE_DEVICE: [compute_run_mean(record) for record in one_device],
        ALONE: average((config, 1)) if config.strategy == "ps" else [],
        APART: [compute_run_mean(record, {slow.rank for slow in slow_ranks}) for record in apart],
        NEAR: average((config, near_devices)),
        NEAR_APART: average((without_exchange, near_devices)),
    }
    means = {name: values for name, values in means.items() if values}
    return Sources(config, devices, records, one_device, apart, near_devices, one_device_exchanges, slow_ranks, means)


def compute_run_mean(record: TrialRecord, slow_ranks: Collection[int] = ()) -> RunMean:
    """Return the means of a trial, if independent without ``slow_ranks``."""

    def compute_resident_step(rank: RankSample) -> float:
        if rank.resident_steps and rank.resident_seconds > 0:
            return rank.resident_seconds / rank.resident_steps
        return compute_rank_step(record, rank)

    if is_synchronous(record.trial.config):
        step = max(compute_rank_step(record, rank) for rank in record.ranks)
        return RunMean(step, max(map(compute_resident_step, record.ranks)))
    usual = [rank for rank in record.ranks if rank.rank not in slow_ranks] or list(record.ranks)
    compute = fmean(map(compute_resident_step, usual))
    steps = [rank.step_seconds for rank in record.ranks]
    if any(rank.resident_steps for rank in record.ranks) or not all(steps):
        # Step times with input would count late samples as stragglers.
        stragglers = max(map(compute_resident_step, record.ranks)) - compute
    else:  # steps with the same number ran at about the same time
        count = min(map(len, steps))
        slowest = fmean(max(seconds) for seconds in zip(*steps, strict=False))
        stragglers = max(0.0, slowest - fmean(fmean(rank.step_seconds[:count]) for rank in usual))
    return RunMean(fmean(compute_rank_step(record, rank) for rank in usual), compute, stragglers)


# ---- the parts of a step


def split_step(sources: Sources, title: str) -> tuple[ExplainedPart, ...]:
    import numpy as np

    random, means = np.random.default_rng(_SEED), {}
    for name, runs in sources.means.items():  # of every point: the measured mean, then bootstrapped ones
        table = np.array([astuple(run) for run in runs])
        chosen = random.integers(len(runs), size=(_DRAWS, len(runs)))
        drawn = np.concatenate([table.mean(axis=0)[None], table[chosen].mean(axis=1)])
        means[name] = RunMean(*drawn.T)
    known: list[tuple[tuple[str, ...], Any]] = []  # inseparable causes, with the level of the last
    together: list[str] = []
    for cause, level in compute_levels(sources, means).items():
        together.append(cause)
        if level is not None:
            known.append((tuple(together), level))
            together = []
    tail, fewest = (1 - CONFIDENCE) / 2, min(map(len, sources.means.values()))
    # By chance, a level may be above a later one; the part between them is nothing.
    total = float(known[-1][1][0])
    parts, bound, previous = [], 0.0, 0.0
    for causes, level in known:
        upper = min(max(float(level[0]), bound), total)
        share = (level - previous) / means[POINT].step
        measured = Interval(float(share[0]))
        if fewest >= LEAST_REPEATS:
            # Of few repeats, a bootstrap is too narrow: stretch it as Student's t does for a mean.
            stretch = student_t(1 - tail, fewest - 1) / _NORMAL_QUANTILE * math.sqrt(fewest / (fewest - 1))
            ends = np.quantile(share[1:], (tail, 1 - tail))
            low, high = (measured.mean + stretch * (float(end) - measured.mean) for end in ends)
            measured = Interval(measured.mean, low, high)
        parts.append(
            ExplainedPart(
                series=title,
                devices=sources.devices,
                part=join_names(causes) + (" together" if len(causes) > 1 else ""),
                share=(upper - bound) / total,
                measured=measured,
                seconds=upper - bound,
                causes=causes,
            )
        )
        bound, previous = upper, level
    return tuple(parts)


def compute_levels(sources: Sources, means: Mapping[str, RunMean]) -> dict[str, Any]:
    import numpy as np

    one, alone, apart, point = (means.get(name) for name in (ONE_DEVICE, ALONE, APART, POINT))
    near, near_apart = means.get(NEAR), means.get(NEAR_APART)
    assert point is not None
    devices, near_devices = sources.devices, sources.near_devices

    # A worker with a server does not work alone. Under strong scaling, a device has fewer samples.
    work = None
    if one is not None and not (sources.has_servers and sources.one_device_exchanges and apart is not None):
        share = sources.config.batch_per_device(devices) / sources.config.batch_per_device(1)
        work = one.compute * share

    # What a missing core costs the exchange is inferred from CPU time.
    contention = stragglers = None
    if apart is not None:
        contention, stragglers = apart.compute, apart.compute + apart.stragglers
        if any(mean.core_delay or mean.further_core_delay for mean in sources.means[POINT]):
            if work is not None:
                contention = np.maximum(contention, work + point.core_delay)
            stragglers = np.maximum(stragglers, contention + point.further_core_delay)

    levels = {WORK: work, CONTENTION: contention, STRAGGLERS: stragglers, COMMUNICATION: point.compute}
    exchange_near = None
    if near is not None and near_apart is not None:
        exchange_near = near.compute - near_apart.compute - near_apart.stragglers
    if sources.has_servers:
        # Every worker pays what one pays. What servers add grows with the workers.
        levels |= {COMMUNICATION: None, SERVERS: None if near_devices else point.compute}
        if stragglers is not None and one is not None and alone is not None and not sources.one_device_exchanges:
            exchange_of_one = np.maximum(alone.compute - one.compute, 0.0)
            levels[COMMUNICATION] = stragglers + exchange_of_one
            if near_devices and exchange_near is not None:
                growth = (devices - 1) / (near_devices - 1)
                further = np.maximum(exchange_near - exchange_of_one, 0.0) * growth
                levels[SERVERS] = levels[COMMUNICATION] + further
    elif near_devices:
        levels[COMMUNICATION] = None
        if stragglers is not None and exchange_near is not None:
            # A ring of n ranks sends 2(n - 1)/n of the gradients.
            growth = ((devices - 1) / devices) / ((near_devices - 1) / near_devices)
            levels[COMMUNICATION] = stragglers + np.maximum(exchange_near, 0.0) * growth
    if near_devices:
        levels[CROSSING] = point.compute
    if sources.config.data != SYNTHETIC:
        levels[INPUT] = point.step
    return levels
