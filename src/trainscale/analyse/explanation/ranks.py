"""Ranks that are slower than the others, and since when. Only ranks that do not wait for each other show that."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, median_low

from ...record.trial import RankSample, TrialRecord
from ..statistics import mean_interval
from .cores import FULL_CORE, compute_core_share, has_comparable_cores
from .gpus import LimitedGpu, compute_mean_clock, find_limited_gpus
from .runs import compute_rank_step

# Ranks on equal devices differ by a few per cent. A rank that is slow by chance is not slow in every repeat.
_SLOWER = 1.10  # on the mean over repeats
_SLOWER_EACH = 1.05  # in every repeat, and by the interval over repeats
_LEAST_STEPS = 20  # of a window in which a change is looked for
_CHANGE = 1.10  # the least change within a window
_EXPLAINED = 0.5  # of the variance that a change must explain: a drift or single outliers explain less
_SHARE_OF_REPEATS = 0.5  # in which the change must be seen
# A rank that another program keeps off its core is ready to run meanwhile; one that is stopped is not.
_READY = 0.5  # of the time in which it does not run
_HELD_UP = 0.15  # of the window: a rank that is ready to run for longer without a core is not slow by its device alone

_LOW_CLOCK = 0.95  # of the others': a GPU below it runs slower than theirs

# Why a rank is slow.
ANOTHER_PROGRAM, LIMIT, SLOW_DEVICE, SLOW_CLOCK = "another program", "a limit", "a slow device", "a slow clock"


@dataclass(frozen=True)
class SlowRank:
    """A rank whose steps take ``factor`` times as long as those of the others, or that gets less of its core.

    Both are measured while nothing is exchanged.
    """

    rank: int
    host: str
    factor: float
    core_share: float | None = None  # CPU seconds per second of its window
    others_core_share: float | None = None
    core_wait_share: float | None = None  # of its window, in which it was ready to run but had no core
    other_cores: float | None = None  # that other programs used on the busiest host
    gpu_mhz: float | None = None  # the mean clock of its GPU
    others_gpu_mhz: float | None = None
    limited_gpu: LimitedGpu | None = None  # if something limited its clock
    since_step: int | None = None  # of the window, where it became slow within it; None: from the start
    since_seconds: float | None = None

    @property
    def reason(self) -> str | None:
        """Why it is slow, by the clock of its GPU and the CPU time that it got; None if neither was counted."""
        if self.gpu_mhz is not None and self.gpu_mhz < _LOW_CLOCK * (self.others_gpu_mhz or 0.0):
            return SLOW_CLOCK
        if self.core_share is None or self.others_core_share is None or self.core_wait_share is None:
            return None
        if self.core_share > FULL_CORE * self.others_core_share:
            return SLOW_DEVICE if self.core_wait_share < _HELD_UP else None
        return ANOTHER_PROGRAM if self.core_wait_share > _READY * (1 - self.core_share) else LIMIT

    @property
    def has_longer_steps(self) -> bool:
        """Whether its steps take clearly longer. Short windows may show only that it gets less of its core."""
        return self.factor > _SLOWER


def find_slow_ranks(records: Sequence[TrialRecord]) -> tuple[SlowRank, ...]:
    """Return the slow ranks of a point whose ranks do not wait for each other, the slowest first."""
    records = [record for record in records if len(record.ranks) > 1]
    if not records:
        return ()
    ranks = sorted(set.intersection(*({rank.rank for rank in record.ranks} for record in records)))
    slow = []
    for number in ranks:
        factors = [_compute_factor(record, number) for record in records]
        is_slower = fmean(factors) > _SLOWER and _is_always_above(factors, _SLOWER_EACH)
        if is_slower or all(_lacks_its_core(record, number) for record in records):
            slow.append(_describe(records, number, fmean(factors)))
    return tuple(sorted(slow, key=lambda entry: -entry.factor))


def _is_always_above(factors: Sequence[float], bound: float) -> bool:
    """Whether a factor is larger in every repeat, and would be so in others: its interval lies above the bound."""
    interval = mean_interval([math.log(factor) for factor in factors])
    return min(factors) > bound and (interval.low is None or interval.low > math.log(bound))


def _split(record: TrialRecord, number: int) -> tuple[RankSample, list[RankSample]]:
    own = next(rank for rank in record.ranks if rank.rank == number)
    return own, [rank for rank in record.ranks if rank.rank != number]


def _compute_factor(record: TrialRecord, number: int) -> float:
    """Return the rank's mean step over the median of the other ranks."""
    own, others = _split(record, number)
    return compute_rank_step(record, own) / median_low(compute_rank_step(record, rank) for rank in others)


def _lacks_its_core(record: TrialRecord, number: int) -> bool:
    """Whether the rank got less CPU time than the others, in a trial that uses its cores all the time."""
    own, others = _split(record, number)
    share, of_others = compute_core_share([own]), [compute_core_share([rank]) for rank in others]
    known = [other for other in of_others if other is not None]
    if share is None or not known or not has_comparable_cores(record.trial.config):
        return False
    return share < FULL_CORE * median_low(known)


def _describe(records: Sequence[TrialRecord], number: int, factor: float) -> SlowRank:
    pairs = [_split(record, number) for record in records]
    changes = [change for own, others in pairs if (change := _find_change(own, others)) is not None]
    since = round(median(changes)) if len(changes) > _SHARE_OF_REPEATS * len(pairs) else None
    seconds = [math.fsum(own.step_seconds[:since]) for own, _ in pairs] if since else []
    loads = [record.machine.other_cores for record in records if record.machine.other_cores is not None]
    return SlowRank(
        rank=number,
        host=pairs[-1][0].host,
        factor=factor,
        core_share=compute_core_share([own for own, _ in pairs]),
        others_core_share=compute_core_share([rank for _, others in pairs for rank in others]),
        core_wait_share=_compute_core_wait_share([own for own, _ in pairs]),
        other_cores=median(loads) if loads else None,
        gpu_mhz=compute_mean_clock([own for own, _ in pairs]),
        others_gpu_mhz=compute_mean_clock([rank for _, others in pairs for rank in others]),
        limited_gpu=next((gpu for gpu in find_limited_gpus(records) if gpu.rank == number), None),
        since_step=since + 1 if since else None,
        since_seconds=fmean(seconds) if seconds else None,
    )


def _compute_core_wait_share(ranks: Sequence[RankSample]) -> float | None:
    shares = [rank.core_wait_seconds / rank.window_seconds for rank in ranks if rank.core_wait_seconds is not None]
    return fmean(shares) if shares else None


def _find_change(own: RankSample, others: Sequence[RankSample]) -> int | None:
    """Return the number of steps before the rank became slower than the others, or None if it did not in this window.

    The logarithm of its steps over those of the others is cut in two where that leaves the least variance.
    """
    count = min(len(rank.step_seconds) for rank in (own, *others))
    if count < _LEAST_STEPS:
        return None
    rows = zip(own.step_seconds, *(rank.step_seconds for rank in others), strict=False)
    ratios = [math.log(max(first, 1e-9) / max(median(rest), 1e-9)) for first, *rest in rows]
    total, mean = math.fsum(ratios), fmean(ratios)
    variance = math.fsum((ratio - mean) ** 2 for ratio in ratios)
    best, best_gain, before = 0, 0.0, 0.0
    for index in range(1, count):
        before += ratios[index - 1]
        gain = before**2 / index + (total - before) ** 2 / (count - index) - total**2 / count
        if gain > best_gain:
            best, best_gain = index, gain
    if not best or best_gain < _EXPLAINED * variance:
        return None
    change = fmean(ratios[best:]) - fmean(ratios[:best])
    return best if change > math.log(_CHANGE) else None
