"""Ranks that are slower than the others, by a core that they share or a limited GPU clock.

Only ranks that do not wait for each other show which is slow, and its share of a core. A smaller share also slows its
part of the exchange, which step times do not tell from a slow exchange.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, median_high, median_low

from ...analyse.statistics import mean_interval
from ...analyse.throughput import compute_rank_step
from ...record.trial import RankSample, TrialRecord
from ...spec.config import Config
from ...worker.data.facts import SYNTHETIC

# Of what the others or one device alone get: a rank that gets less lacks its core.
FULL_CORE = 0.85

# Ranks on equal devices differ by a few per cent, by chance not in every repeat.
_SLOWER = 1.10  # on the mean over repeats
_SLOWER_EACH = 1.05  # in every repeat, and by the interval over repeats
_LEAST_STEPS = 20  # of a window in which a change is looked for
_CHANGE = 1.10  # the least change within a window
_EXPLAINED = 0.5  # of the variance that a change must explain: a drift or single outliers explain less
_SHARE_OF_REPEATS = 0.5  # in which the change must be seen

_BUSY = 2 / 3  # of its share, used in the point itself
# A rank that lacks its core is ready to run meanwhile; one that is stopped is not.
_READY = 0.5  # of the time in which it does not run
_HELD_UP = 0.15  # of the window: a rank that waits longer for a core is not slow by its device alone

_LOW_CLOCK = 0.95  # of the others': a GPU below it runs slower than theirs
# A GPU leaves its highest clock for moments under any load.
_LEAST_LIMITED = 0.1  # of the window, in which something limits the clocks
_HIGH_CLOCK = 0.97  # of the highest clock

# Why a rank is slow.
ANOTHER_PROGRAM, LIMIT, SLOW_DEVICE, SLOW_CLOCK = "another program", "a limit", "a slow device", "a slow clock"


@dataclass(frozen=True)
class LimitedGpu:
    """The GPU of a rank that ran below its highest clock."""

    rank: int
    host: str
    mhz: float
    highest_mhz: float
    limited_share: float  # of the windows
    reasons: tuple[str, ...]  # the most frequent first


@dataclass(frozen=True)
class SlowRank:
    """A rank with longer steps or less of its core than others."""

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
        """Why it is slow, by the clock of its GPU and its CPU time; None if neither was counted."""
        if self.gpu_mhz is not None and self.gpu_mhz < _LOW_CLOCK * (self.others_gpu_mhz or 0.0):
            return SLOW_CLOCK
        if self.core_share is None or self.others_core_share is None or self.core_wait_share is None:
            return None
        if self.core_share > FULL_CORE * self.others_core_share:
            return SLOW_DEVICE if self.core_wait_share < _HELD_UP else None
        return ANOTHER_PROGRAM if self.core_wait_share > _READY * (1 - self.core_share) else LIMIT

    @property
    def has_longer_steps(self) -> bool:
        return self.factor > _SLOWER


def find_slow_ranks(records: Sequence[TrialRecord]) -> tuple[SlowRank, ...]:
    records = [record for record in records if len(record.ranks) > 1]
    slow = []
    for number, own in sorted(_group_by_rank(records).items()):
        if len(own) < len(records):
            continue
        others, factors, changes = [], [], []
        lacks_core = has_comparable_cores(records[0].trial.config)  # in every trial
        for record, rank in zip(records, own, strict=False):
            rest = [other for other in record.ranks if other.rank != number]
            others += rest
            steps = [compute_rank_step(record, other) for other in rest]
            factors.append(compute_rank_step(record, rank) / median_low(steps))
            share = compute_core_share([rank])
            shares = [known for other in rest if (known := compute_core_share([other])) is not None]
            lacks_core &= share is not None and bool(shares) and share < FULL_CORE * median_low(shares)
            if (change := _find_change(rank, rest)) is not None:
                changes.append(change)
        # It is slower in every repeat, and its interval lies above the bound.
        low = mean_interval([math.log(factor) for factor in factors]).low
        is_slower = min(factors) > _SLOWER_EACH and (low is None or low > math.log(_SLOWER_EACH))
        if not lacks_core and not (fmean(factors) > _SLOWER and is_slower):
            continue
        since = round(median(changes)) if len(changes) > _SHARE_OF_REPEATS * len(records) else None
        waits = [rank.core_wait_seconds / rank.window_seconds for rank in own if rank.core_wait_seconds is not None]
        loads = [record.machine.other_cores for record in records if record.machine.other_cores is not None]
        slow.append(
            SlowRank(
                rank=number,
                host=own[-1].host,
                factor=fmean(factors),
                core_share=compute_core_share(own),
                others_core_share=compute_core_share(others),
                core_wait_share=fmean(waits) if waits else None,
                other_cores=median(loads) if loads else None,
                gpu_mhz=compute_mean_clock(own),
                others_gpu_mhz=compute_mean_clock(others),
                limited_gpu=next((gpu for gpu in find_limited_gpus(records) if gpu.rank == number), None),
                since_step=since + 1 if since else None,
                since_seconds=fmean(math.fsum(rank.step_seconds[:since]) for rank in own) if since else None,
            )
        )
    return tuple(sorted(slow, key=lambda entry: -entry.factor))


def _group_by_rank(records: Sequence[TrialRecord]) -> dict[int, list[RankSample]]:
    ranks: dict[int, list[RankSample]] = {}
    for record in records:
        for rank in record.ranks:
            ranks.setdefault(rank.rank, []).append(rank)
    return ranks


def _find_change(own: RankSample, others: Sequence[RankSample]) -> int | None:
    """Return after how many steps the rank became slower."""
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


# ---- cores


def has_comparable_cores(config: Config) -> bool:
    """Ranks that wait for a GPU or samples use little CPU time."""
    return config.device == "cpu" and config.data == SYNTHETIC


def compute_core_share(ranks: Sequence[RankSample]) -> float | None:
    shares = [rank.cpu_seconds / rank.window_seconds for rank in ranks if rank.cpu_seconds is not None]
    return fmean(shares) if shares else None


def compute_core_delays(
    records: Sequence[TrialRecord], one_device: Sequence[TrialRecord], apart: Sequence[TrialRecord]
) -> list[tuple[float, float]]:
    """Return the seconds per step that whole cores would save in each trial: on all ranks, on the worst beyond."""
    nothing = [(0.0, 0.0)] * len(records)
    if not apart or not has_comparable_cores(apart[0].trial.config):
        return nothing
    ranks, apart_ranks = _group_by_rank(records), _group_by_rank(apart)
    shares = {number: compute_core_share(own) for number, own in apart_ranks.items()}
    known = {number: share for number, share in shares.items() if share}
    if len(known) < len(apart_ranks):
        return nothing
    alone = compute_core_share([rank for record in one_device for rank in record.ranks])
    whole = alone or median_high(known.values())
    lacking = set()
    for number, share in known.items():
        used = compute_core_share(ranks.get(number, []))
        # A rank that uses less of its core than it gets waits for a link or a server instead.
        if share < FULL_CORE * whole and used is not None and used > _BUSY * share:
            lacking.add(number)
    delays = []
    for record in records:
        batch = record.trial.config.batch_per_device(record.trial.devices)
        of_ranks = [
            (rank.cpu_seconds or 0.0) * batch / rank.samples * (1 / known[rank.rank] - 1 / whole)
            if rank.rank in lacking
            else 0.0
            for rank in record.ranks
        ]
        delays.append((min(of_ranks), max(of_ranks) - min(of_ranks)))
    return delays


# ---- clocks of GPUs


def compute_mean_clock(ranks: Sequence[RankSample]) -> float | None:
    clocks = [rank.gpu.sm_mhz_mean for rank in ranks if rank.gpu and rank.gpu.sm_mhz_mean is not None]
    return fmean(clocks) if clocks else None


def find_limited_gpus(records: Sequence[TrialRecord]) -> tuple[LimitedGpu, ...]:
    """Return the GPUs whose clocks were limited, slowest first."""
    limited = []
    for number, ranks in _group_by_rank(records).items():
        states = [rank.gpu for rank in ranks if rank.gpu is not None]
        mhz = compute_mean_clock(ranks)
        highest = max((state.sm_mhz_limit or 0 for state in states), default=0)
        if mhz is None or not highest or mhz > _HIGH_CLOCK * highest:
            continue
        share = fmean(state.limited_share for state in states)
        if share < _LEAST_LIMITED:
            continue
        reasons: dict[str, float] = {}
        for reason, of_window in (item for state in states for item in state.limited_by.items()):
            reasons[reason] = reasons.get(reason, 0.0) + of_window
        by_share = tuple(sorted(reasons, key=lambda reason: -reasons[reason]))
        limited.append(LimitedGpu(number, ranks[-1].host, mhz, highest, share, by_share))
    return tuple(sorted(limited, key=lambda gpu: (gpu.mhz / gpu.highest_mhz, gpu.rank)))
