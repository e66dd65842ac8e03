"""GPUs whose clocks something limited in the windows of a point: their power, their temperature, a setting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ...record.trial import GpuState, RankSample, TrialRecord

# A GPU leaves its highest clock for moments under any load. Less than these is not worth a sentence.
_LEAST_SHARE = 0.1  # of the samples, in which something limits the clocks
_HIGH_CLOCK = 0.97  # of the highest clock


@dataclass(frozen=True)
class LimitedGpu:
    """The GPU of a rank that ran below its highest clock, on average over the windows, because of ``reasons``."""

    rank: int
    host: str
    mhz: float
    highest_mhz: float
    limited_share: float  # of the windows
    reasons: tuple[str, ...]  # the most frequent first

    @property
    def clock_share(self) -> float:
        return self.mhz / self.highest_mhz


@dataclass(frozen=True)
class GpuClocks:
    """Mean SM clocks in MHz: of one GPU alone, and of all GPUs that train at the same time and exchange nothing."""

    alone_mhz: float
    together_mhz: float


def compare_clocks(single: Sequence[TrialRecord], apart: Sequence[TrialRecord]) -> GpuClocks | None:
    alone, together = (
        compute_mean_clock([rank for record in records for rank in record.ranks]) for records in (single, apart)
    )
    return None if alone is None or together is None else GpuClocks(alone, together)


def find_limited_gpus(records: Sequence[TrialRecord]) -> tuple[LimitedGpu, ...]:
    """Return the GPUs that were limited, the slowest first."""
    ranks = sorted({rank.rank for record in records for rank in record.ranks})
    limited = [
        gpu
        for number in ranks
        if (gpu := _find_limited_gpu([_find_rank(record, number) for record in records])) is not None
    ]
    return tuple(sorted(limited, key=lambda gpu: gpu.clock_share))


def compute_mean_clock(ranks: Sequence[RankSample]) -> float | None:
    """Return the mean SM clock of the ranks' GPUs in MHz; None if it is unknown."""
    clocks = [rank.gpu.sm_mhz_mean for rank in ranks if rank.gpu is not None and rank.gpu.sm_mhz_mean is not None]
    return fmean(clocks) if clocks else None


def _find_rank(record: TrialRecord, number: int) -> RankSample | None:
    return next((rank for rank in record.ranks if rank.rank == number), None)


def _find_limited_gpu(samples: Sequence[RankSample | None]) -> LimitedGpu | None:
    ranks = [rank for rank in samples if rank is not None]
    states = [rank.gpu for rank in ranks if rank.gpu is not None]
    mhz, highest = compute_mean_clock(ranks), max((state.sm_mhz_limit or 0 for state in states), default=0)
    if mhz is None or not highest:
        return None
    share = fmean(state.limited_share for state in states)
    if share < _LEAST_SHARE or mhz > _HIGH_CLOCK * highest:
        return None
    return LimitedGpu(ranks[-1].rank, ranks[-1].host, mhz, highest, share, _list_reasons(states))


def _list_reasons(states: Sequence[GpuState]) -> tuple[str, ...]:
    shares: dict[str, float] = {}
    for state in states:
        for reason, share in state.limited_by.items():
            shares[reason] = shares.get(reason, 0.0) + share
    return tuple(sorted(shares, key=lambda reason: -shares[reason]))
