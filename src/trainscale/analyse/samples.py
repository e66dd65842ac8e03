"""Whether the ranks of a trial trained on different samples, and together on all that an epoch should have.

The judgement uses only what the ranks saw and the sizes of data set and batch. It calls nothing of the code that
shuffles samples and deals them out, so a mistake there is seen.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from ..worker.data.seen import HASH_MODULUS, SamplesSeen, compute_hash_sum


@dataclass(frozen=True)
class RankSamples:
    """What one rank reports. Bit i of ``first_epoch`` is set if its first epoch had sample i; None if not known."""

    rank: int
    epochs: tuple[SamplesSeen, ...]
    first_epoch: int | None = None


def find_sample_problem(train: int, batch: int, ranks: Sequence[RankSamples]) -> str | None:
    """Return the first thing that is wrong with the samples of the ranks, or None.

    ``train`` is the size of the data set and ``batch`` that of one rank. The first epoch is compared exactly, finished
    or not: no sample twice, on one rank or on two. Finished epochs have the right number of samples on every rank. A
    later epoch that leaves no sample over must have every sample once, by the sum of hashes (a wrong set passes with a
    probability of 2⁻⁶¹). A later epoch that leaves samples over is compared only for ranks with the same samples.
    """
    problems = (
        *(_find_repeated_samples(train, entry) for entry in ranks),
        _find_shared_samples(ranks),
        *(problem for epoch in _list_epochs(ranks) for problem in _find_epoch_problems(train, batch, epoch, ranks)),
    )
    return next((problem for problem in problems if problem), None)


def _list_epochs(ranks: Sequence[RankSamples]) -> list[int]:
    return sorted({seen.epoch for entry in ranks for seen in entry.epochs})


def _find_repeated_samples(train: int, entry: RankSamples) -> str | None:
    """Compare the samples of a rank's first epoch with their number."""
    if entry.first_epoch is None or not entry.epochs:
        return None
    if entry.first_epoch >> train:
        return f"rank {entry.rank} trained on a sample beyond the {train} of the data set"
    first, distinct = entry.epochs[0], entry.first_epoch.bit_count()
    if distinct != first.count:
        repeated = f"{first.count} samples in epoch {first.epoch}, of which only {distinct} are different"
        return f"rank {entry.rank} trained on {repeated}"
    return None


def _find_shared_samples(ranks: Sequence[RankSamples]) -> str | None:
    """Find a sample that two ranks had in their first epoch."""
    taken = 0
    for entry in ranks:
        if entry.first_epoch is None:
            continue
        if shared := taken & entry.first_epoch:
            lowest = (shared & -shared).bit_length() - 1
            other = next(e.rank for e in ranks if e.first_epoch is not None and e.first_epoch >> lowest & 1)
            return f"ranks {other} and {entry.rank} both trained on sample {lowest} ({shared.bit_count()} in common)"
        taken |= entry.first_epoch
    return None


def _find_epoch_problems(train: int, batch: int, epoch: int, ranks: Sequence[RankSamples]) -> Iterator[str]:
    seen = {entry.rank: part for entry in ranks for part in entry.epochs if part.epoch == epoch and part.complete}
    expected = train // (batch * len(ranks)) * batch
    for rank, part in seen.items():
        if part.count != expected:
            yield f"rank {rank} trained on {part.count} samples in epoch {epoch}, not {expected}"
    by_hash: dict[int, int] = {}
    for rank, part in seen.items():
        if part.count and (other := by_hash.setdefault(part.hash_sum, rank)) != rank:
            yield f"ranks {other} and {rank} trained on the same samples in epoch {epoch}"
    is_whole = len(seen) == len(ranks) and train % (batch * len(ranks)) == 0
    if is_whole and sum(part.hash_sum for part in seen.values()) % HASH_MODULUS != _compute_hash_sum_of_all(train):
        yield f"the ranks together did not train on every sample of epoch {epoch} once"


@lru_cache(maxsize=4)
def _compute_hash_sum_of_all(train: int) -> int:
    import numpy as np

    return compute_hash_sum(np.arange(train))
