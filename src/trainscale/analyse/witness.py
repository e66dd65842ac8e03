"""The verdict on a trial: whether it did the work that it was timed for.

witnessed_steps.py compares the first steps, and those after the window, with what they must compute. Here the updates
are counted, the clock is checked, and so are the samples of real data: by what the ranks saw and the sizes of data set
and batch alone. Nothing of the code that shuffles samples and deals them out is called, so a mistake there is seen.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ..record.parity import PROVEN, REFUTED, UNPROVEN, Check, WitnessVerdict
from ..record.trial import Failure, TrialRecord
from ..worker.data.facts import SYNTHETIC
from ..worker.data.seen import HASH_MODULUS, SamplesSeen, compute_hash_sum, unpack_flags
from ..worker.frameworks.catalog import FRAMEWORKS, UPDATE_COUNT_ERROR
from ..worker.training.loop import RESIDENT_WARMUP
from .checks import STEPS_OFF_WINDOW
from .throughput import is_synchronous
from .witnessed_steps import Expectation, RankCheck, check_closing_steps, check_first_steps, make_check

# Updates are counted to within half of one. Rounding grows with their number (Framework.update_count_error).
_UPDATES = 0.45
# Only fp32 gradients sum to zero over the classes precisely enough to count updates.
_COUNTED_PRECISION = "fp32"
# Work that the device may have left when the window ends: a share of the window, but no less than a scheduler's delay.
UNFINISHED_SHARE, _UNFINISHED_SECONDS = 0.01, 0.02
# How long a busy machine may keep a process from running between two readings of the clock.
_SECOND_CLOCK_SECONDS = 0.05
# The values of synthetic samples are standard normal. An image of 28 pixels a side has a deviation of 1 ± 0.025.
_DEVIATION = 0.2
_SAME_BY_CHANCE = 1e-9  # how likely random labels may be all alike, where that refutes a trial


def judge(record: TrialRecord, expectation: Expectation | str) -> WitnessVerdict:
    """Return the verdict on a trial that was measured. Instead of an expectation, a text says why there is none."""
    checks: list[RankCheck] = []
    if isinstance(expectation, Expectation):
        checks += [*check_first_steps(record, expectation), *check_closing_steps(record, expectation)]
        checks += _check_random_samples(record, expectation)
    checks += [
        *_check_counted_updates(record),
        *_check_served_updates(record),
        *_check_updates(record),
        *_check_equal_weights(record),
    ]
    checks += [*_check_clock(record), *_check_window(record), *_check_second_clock(record), *_check_samples(record)]
    recorded = tuple(check.check for check in checks)
    failed = next((check for check in checks if not check.check.ok), None)
    if failed is not None:
        return WitnessVerdict(REFUTED, failed.check.words, failed.rank, recorded)
    if not isinstance(expectation, Expectation):
        return WitnessVerdict(UNPROVEN, expectation, checks=recorded)
    silent = next((rank for rank in record.ranks if rank.witness is None or not rank.witness.losses), None)
    if silent is not None:
        obstacle = silent.witness.obstacle if silent.witness else ""
        reason = obstacle or f"rank {silent.rank} reported nothing about its first steps"
        return WitnessVerdict(UNPROVEN, reason, silent.rank, recorded)
    return WitnessVerdict(PROVEN, checks=recorded)


def find_point_verdict(records: Sequence[TrialRecord]) -> WitnessVerdict | None:
    """Return the verdict on all good trials of a point: the first that is not proven. None in older journals."""
    verdicts = [record.witness for record in records if record.witness is not None]
    return next((verdict for verdict in verdicts if verdict.state != PROVEN), verdicts[0] if verdicts else None)


def apply_verdict(record: TrialRecord, expectation: Expectation | str) -> TrialRecord:
    """Return the record with its verdict. A refuted trial is a failed one."""
    if not record.ok:
        return record
    verdict = judge(record, expectation)
    record = replace(record, witness=verdict)
    if verdict.state != REFUTED:
        return record
    hosts = {rank.rank: rank.host for rank in record.ranks} if record.hosts > 1 else {}
    host = "" if verdict.rank is None else hosts.get(verdict.rank, "")
    message = f"{verdict.reason} (rank {verdict.rank} is on {host})" if host else verdict.reason
    return replace(record, status=REFUTED, failure=Failure(REFUTED, message, verdict.rank, host=host))


def _check_updates(record: TrialRecord) -> Iterable[RankCheck]:
    """Check how often the weights were updated, by what weight decay has left of the head."""
    config = record.trial.config
    if config.precision != _COUNTED_PRECISION or not config.weight_decay:
        return []
    counts: dict[int, tuple[float, int]] = {}
    for rank in record.ranks:
        proof = rank.witness
        if proof is None or proof.decay is None or proof.next_decay == proof.expected_decay:
            continue
        off = (proof.decay - proof.expected_decay) / (proof.next_decay - proof.expected_decay)
        counts[rank.rank] = (off if math.isfinite(off) else math.inf), proof.updates
    if not counts:
        return []
    if config.strategy == "ps-async":  # only the rank that pushed last has the newest weights
        newest = max(counts, key=lambda rank: counts[rank][0])
        counts = {newest: counts[newest]}
    worst = max(counts, key=lambda rank: abs(counts[rank][0]))
    off, updates = counts[worst]
    message = f"rank {worst}: by their weight decay, the weights had {updates + off:.1f} updates and not {updates}"
    tolerance = max(_UPDATES, _find_count_error(config.framework) * updates)
    return [make_check("number of updates", abs(off), tolerance, message, worst)]


def _check_counted_updates(record: TrialRecord) -> Iterable[RankCheck]:
    """Check the number of updates by the framework's own counter, where it has one."""
    counts = {
        rank.rank: (rank.witness.counted_updates, rank.witness.updates)
        for rank in record.ranks
        if rank.witness is not None and rank.witness.counted_updates is not None
    }
    if not counts:
        return []
    worst = max(counts, key=lambda rank: abs(counts[rank][0] - counts[rank][1]))
    counted, updates = counts[worst]
    message = f"rank {worst}: the framework has counted {counted} updates of the weights and not {updates}"
    return [make_check("updates that the framework counted", abs(counted - updates), 0.0, message, worst)]


def _check_served_updates(record: TrialRecord) -> Iterable[RankCheck]:
    """Check the updates that asynchronous servers have counted against all steps whose gradients were sent to them."""
    counts = [server.updates for server in record.servers if server.updates is not None]
    witnesses = [rank.witness for rank in record.ranks if rank.witness is not None]
    if record.trial.config.strategy != "ps-async" or not counts or not witnesses:
        return []
    closing = sum(len(witness.closing_losses) for witness in witnesses)
    resident = sum(rank.resident_steps + RESIDENT_WARMUP for rank in record.ranks if rank.resident_steps)
    sent = witnesses[0].updates + closing + resident
    worst = max(counts, key=lambda count: abs(count - sent))
    message = f"a server has counted {worst} updates, where {sent} gradients were sent"
    return [make_check("updates that the servers counted", abs(worst - sent), 0.0, message, None)]


def _check_equal_weights(record: TrialRecord) -> Iterable[RankCheck]:
    """Check that ranks on one host that train together have the same weights at the end, to the last bit.

    Hosts of different kinds may round updates differently. There, a flag says so (checks.py).
    """
    digests = {rank.rank: rank.weights_digest for rank in record.ranks if rank.weights_digest and rank.witness}
    if not is_synchronous(record.trial.config) or record.hosts > 1 or len(digests) < 2:
        return []
    first = min(digests)
    other = next((rank for rank in sorted(digests) if digests[rank] != digests[first]), None)
    message = f"after the window, ranks {first} and {other} do not have the same weights"
    difference = None if other is not None else 0.0
    return [RankCheck(Check("equal weights after the window", difference, 0.0, message), other)]


def _check_random_samples(record: TrialRecord, expectation: Expectation) -> Iterable[RankCheck]:
    """Check that synthetic samples are random, because some hardware computes faster on zeros."""
    facts, config = expectation.samples, record.trial.config
    if facts is None or config.data != SYNTHETIC:
        return []
    message = f"the standard deviation of the synthetic samples is {facts.deviation:.3g} and not 1"
    checks = [make_check("deviation of the samples", abs(facts.deviation - 1), _DEVIATION, message, None)]
    message = f"{facts.copies:.0f} of {facts.count:.0f} synthetic samples are copies of another one"
    checks.append(make_check("copies among the samples", facts.copies, 0.0, message, None))
    if config.classes ** (1 - facts.count) < _SAME_BY_CHANCE:
        message = f"all {facts.count:.0f} synthetic samples have the same label"
        checks.append(make_check("kinds of labels", float(facts.label_kinds < 2), 0.0, message, None))
    return checks


def _find_count_error(framework: str) -> float:
    known = FRAMEWORKS.get(framework)
    return known.update_count_error if known else UPDATE_COUNT_ERROR


def _check_clock(record: TrialRecord) -> Iterable[RankCheck]:
    """Check that the device had done its work when the window ended."""
    left = {rank.rank: rank.witness.unfinished_seconds for rank in record.ranks if rank.witness is not None}
    if not left:
        return []
    windows = {rank.rank: rank.window_seconds for rank in record.ranks}
    worst = max(left, key=lambda rank: left[rank] / max(windows[rank], 1e-9))
    share = left[worst] / max(windows[worst], 1e-9)
    message = (
        f"rank {worst}: when the window of {windows[worst]:.3g} s ended, the device still had {left[worst]:.3g} s of"
        " work to do, so the steps were not waited for"
    )
    tolerance = max(UNFINISHED_SHARE, _UNFINISHED_SECONDS / max(windows[worst], 1e-9))
    return [make_check("work left after the window", share, tolerance, message, worst)]


def _check_second_clock(record: TrialRecord) -> Iterable[RankCheck]:
    """Check the window by the clock around it."""
    outer = {
        rank.rank: (rank.witness.outer_seconds, max(rank.window_seconds, 1e-9))
        for rank in record.ranks
        if rank.witness is not None and rank.witness.outer_seconds is not None
    }
    if not outer:
        return []
    worst = max(outer, key=lambda rank: abs(outer[rank][0] / outer[rank][1] - 1))
    seconds, window = outer[worst]
    message = f"rank {worst}: the window took {window:.4g} s, and by a second clock {seconds:.4g} s"
    tolerance = max(UNFINISHED_SHARE, _SECOND_CLOCK_SECONDS / window)
    return [make_check("a second clock", abs(seconds / window - 1), tolerance, message, worst)]


def _check_window(record: TrialRecord) -> Iterable[RankCheck]:
    """Check that the step times add up to the window, and that it has the samples of its steps."""
    config, steps = record.trial.config, record.steps
    batch = config.batch_per_device(record.trial.devices)
    checks = []
    for rank in record.ranks:
        if rank.witness is None or len(rank.step_seconds) != steps or not steps:  # lost lines have a flag of their own
            continue
        total, window = math.fsum(rank.step_seconds), max(rank.window_seconds, 1e-9)
        message = f"rank {rank.rank}: the {steps} steps took {total:.4g} s, the window {window:.4g} s"
        tolerance = max(STEPS_OFF_WINDOW, _UNFINISHED_SECONDS / window)
        checks.append(make_check("step times and window", abs(total / window - 1), tolerance, message, rank.rank))
        message = f"rank {rank.rank}: {rank.samples} samples are counted in {steps} steps of {batch}"
        surplus = abs(rank.samples / (batch * steps) - 1)
        checks.append(make_check("samples in the window", surplus, 0.0, message, rank.rank))
    return sorted(checks, key=lambda check: check.check.ok)[:1]


def _check_samples(record: TrialRecord) -> Iterable[RankCheck]:
    """Check that the ranks trained on different samples, and together on all that an epoch should have."""
    seen = record.samples_seen
    if not seen:
        return []
    try:
        ranks = [RankSamples(own.rank, own.epochs, unpack_flags(own.flags) if own.flags else None) for own in seen]
    except ValueError as error:
        return [RankCheck(Check("samples", None, 0.0, str(error)), None)]
    batch = record.trial.config.batch_per_device(record.trial.devices)
    problem = find_sample_problem(seen[0].train, batch, ranks)
    return [RankCheck(Check("samples", None if problem else 0.0, 0.0, problem or ""), None)]


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
