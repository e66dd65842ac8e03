"""What it costs that ranks on CPU devices do not get their cores whole.

Ranks that exchange nothing show the share of a core that each rank gets. A rank with a smaller share needs longer for
all CPU time of its steps, also for its part of the exchange, which ranks that exchange nothing do not show. Step times
alone do not tell this from a slow exchange where a rank waits for its core about as long as a step takes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median_high

from ...record.trial import RankSample, TrialRecord
from ...spec.config import Config
from ...worker.data.facts import SYNTHETIC

FULL_CORE = 0.85  # of what others, one device alone or its cores give: a rank that gets less lacks its core
_BUSY = 2 / 3  # of its share, used in the point itself


def has_comparable_cores(config: Config) -> bool:
    """Whether ranks of this config need their cores all the time, so that less CPU time means less of a core.

    A rank that waits for its GPU or for samples uses little CPU time, too.
    """
    return config.device == "cpu" and config.data == SYNTHETIC


def compute_core_share(ranks: Sequence[RankSample]) -> float | None:
    """Return the CPU seconds of these ranks per second of their windows, or None if they were not counted."""
    shares = [rank.cpu_seconds / rank.window_seconds for rank in ranks if rank.cpu_seconds is not None]
    return fmean(shares) if shares else None


@dataclass(frozen=True)
class CoreDelay:
    """Seconds per step of a trial that its ranks would save with whole cores."""

    all_ranks: float = 0.0  # that every rank would save
    one_rank: float = 0.0  # that the most delayed rank would save beyond that


@dataclass(frozen=True)
class CoreShares:
    """The CPU seconds that a rank gets per second: ``whole`` if nothing holds it up, and each of the ``ranks``."""

    whole: float
    ranks: Mapping[int, float]

    def compute_delays(self, records: Sequence[TrialRecord]) -> list[CoreDelay]:
        """Return for each trial of a point what its ranks lose because their shares are smaller than the whole."""
        held_up = {rank for rank, share in self.ranks.items() if share < FULL_CORE * self.whole}
        held_up = {rank for rank in held_up if self._is_busy(records, rank)}
        return [self._compute_delay(record, held_up) for record in records]

    def _is_busy(self, records: Sequence[TrialRecord], number: int) -> bool:
        """Whether a rank uses most of what its core gives it. Otherwise it waits for a link or a server instead."""
        share = compute_core_share([rank for record in records for rank in record.ranks if rank.rank == number])
        return share is not None and share > _BUSY * self.ranks[number]

    def _compute_delay(self, record: TrialRecord, held_up: Collection[int]) -> CoreDelay:
        batch = record.trial.config.batch_per_device(record.trial.devices)
        delays = [
            (rank.cpu_seconds or 0.0) * batch / rank.samples * (1 / self.ranks[rank.rank] - 1 / self.whole)
            if rank.rank in held_up
            else 0.0
            for rank in record.ranks
        ]
        return CoreDelay(min(delays), max(delays) - min(delays))


def find_core_shares(one_device: Sequence[TrialRecord], apart: Sequence[TrialRecord]) -> CoreShares | None:
    """Return the shares that ranks got while they exchanged nothing, or None if these are unknown or not comparable."""
    if not apart or not has_comparable_cores(apart[0].trial.config):
        return None
    of_ranks: dict[int, list[RankSample]] = {}
    for record in apart:
        for rank in record.ranks:
            of_ranks.setdefault(rank.rank, []).append(rank)
    shares = {number: compute_core_share(samples) for number, samples in of_ranks.items()}
    known = {number: share for number, share in shares.items() if share}
    if len(known) < len(shares):
        return None
    alone = compute_core_share([rank for record in one_device for rank in record.ranks])
    return CoreShares(alone or median_high(known.values()), known)
