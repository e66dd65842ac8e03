"""What the first steps of a trial must have computed, and whether they did."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..record.trial import Failure, TrialRecord
from ..record.witness import PROVEN, REFUTED, UNPROVEN, Check, WitnessVerdict
from ..worker.data.seen import unpack_flags
from ..worker.frameworks.catalog import FRAMEWORKS, UPDATE_COUNT_ERROR
from .samples import RankSamples, find_sample_problem


@dataclass(frozen=True)
class Expectation:
    """What a correct trial computes in its first steps, by the reference network (worker/witness/).

    A sketch is 64 numbers (worker/witness/sketch.py). Spreads say how far a correct computation in the timed precision
    may be from the exact one: the difference relative to the expected value, with the samples of rank 0.
    """

    losses: tuple[tuple[float, ...], ...]  # of each step, the loss of each worker; asynchronous servers: one step
    sketches: Mapping[str, tuple[float, ...]]  # the change of each tensor of the last worker, after the last step
    totals: tuple[tuple[float, ...], ...]  # the change of all tensors: one sketch for all workers, or one for each
    loss_spreads: tuple[float, ...]  # of each step
    spreads: Mapping[str, float]  # of each tensor
    total_spread: float
    arithmetic: str = "fp64"  # of the reference; fp32 where there was no memory for fp64

    def total_of(self, rank: int) -> tuple[float, ...]:
        """Return the change of all weights that a worker sees after its last step.

        With asynchronous servers, that is after its own turn.
        """
        return self.totals[rank] if len(self.totals) > 1 else self.totals[0]


@dataclass(frozen=True)
class Tolerances:
    """How much a correct trial may differ from its expectation: ``spreads`` times the spread, and no less than a
    relative difference of the losses and of the change of the weights.
    """

    spreads: float
    loss: float
    change: float


# By precision. Frameworks sum in other orders than the reference and choose other algorithms, so they differ from it
# by up to six spreads in fp32 (docs/method.md has the figures); in 16 bits the spread itself is almost exact.
TOLERANCES = {
    "fp32": Tolerances(10.0, 3e-6, 5e-4),
    "tf32": Tolerances(5.0, 1e-4, 3e-3),
    "bf16": Tolerances(3.0, 2e-3, 2e-2),
    "fp16": Tolerances(3.0, 1e-3, 1e-2),
}
# A tensor that hardly changes is compared with this share of the typical change of the others.
_LEAST_CHANGE = 1e-2
# Updates are counted to within half of one. Rounding grows with their number (Framework.update_count_error).
_UPDATES = 0.45
# Only fp32 gradients sum to zero over the classes precisely enough to count updates.
_COUNTED_PRECISION = "fp32"
# Work that the device may have left when the window ends: a share of the window, but no less than a scheduler's delay.
UNFINISHED_SHARE, _UNFINISHED_SECONDS = 0.01, 0.02


def judge(record: TrialRecord, expectation: Expectation | str) -> WitnessVerdict:
    """Return the verdict on a trial that was measured. Instead of an expectation, a text says why there is none."""
    checks: list[RankCheck] = []
    if isinstance(expectation, Expectation):
        checks += _first_steps(record, expectation)
    checks += [*_updates(record), *_clock(record), *_samples(record)]
    recorded = tuple(check.check for check in checks)
    failed = next((check for check in checks if not check.check.ok), None)
    if failed is not None:
        return WitnessVerdict(REFUTED, failed.check.words, failed.rank, recorded)
    if not isinstance(expectation, Expectation):
        return WitnessVerdict(UNPROVEN, expectation, checks=recorded)
    silent = next((rank.rank for rank in record.ranks if rank.witness is None or not rank.witness.losses), None)
    if silent is not None:
        return WitnessVerdict(UNPROVEN, f"rank {silent} reported nothing about its first steps", silent, recorded)
    return WitnessVerdict(PROVEN, checks=recorded)


def point_witness(records: Sequence[TrialRecord]) -> WitnessVerdict | None:
    """Return the verdict on all good trials of a point: the first that is not proven. None in older journals."""
    verdicts = [record.witness for record in records if record.witness is not None]
    return next((verdict for verdict in verdicts if verdict.state != PROVEN), verdicts[0] if verdicts else None)


def apply_verdict(record: TrialRecord, expectation: Expectation | str) -> TrialRecord:
    """Return the record with its verdict. A refuted trial is a failed one."""
    if not record.ok:
        return record
    verdict = judge(record, expectation)
    record = replace(record, witness=verdict)
    if not verdict.is_refuted:
        return record
    return replace(record, status=REFUTED, failure=Failure(REFUTED, verdict.reason, verdict.rank))


@dataclass(frozen=True)
class RankCheck:
    """A check, and the rank that it is about."""

    check: Check
    rank: int | None


def _first_steps(record: TrialRecord, expectation: Expectation) -> Iterable[RankCheck]:
    """Compare losses, then all weights of each rank together, then single tensors: the first difference explains
    most.
    """
    limits = TOLERANCES[record.trial.config.precision]
    losses = [_loss(record, expectation, step, limits) for step in range(len(expectation.losses))]
    return [*filter(None, losses), *_totals(record, expectation, limits), *_tensors(record, expectation, limits)]


def _loss(record: TrialRecord, expectation: Expectation, step: int, limits: Tolerances) -> RankCheck | None:
    """Check a step's loss on the rank where it differs most from the expected one."""
    tolerance = max(
        limits.loss, limits.spreads * expectation.loss_spreads[min(step, len(expectation.loss_spreads) - 1)]
    )
    differences: dict[int, float] = {}
    seen: dict[int, float | None] = {}
    expected = expectation.losses[step]
    for rank in record.ranks:
        if rank.witness is None or len(rank.witness.losses) <= step or rank.rank >= len(expected):
            continue
        loss = seen[rank.rank] = rank.witness.losses[step]
        differences[rank.rank] = _relative((math.nan if loss is None else loss,), (expected[rank.rank],))
    if not differences:
        return None
    worst = max(differences, key=lambda rank: differences[rank])
    text = "not finite" if seen[worst] is None else f"{seen[worst]:.7g}"
    words = f"step {step + 1}, rank {worst}: the loss is {text} where {expected[worst]:.7g} is expected"
    return _check(f"loss of step {step + 1}", differences[worst], tolerance, words, worst)


def _totals(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> Iterable[RankCheck]:
    """Check the change of all weights on the rank where it differs most."""
    differences = {
        rank.rank: _relative(rank.witness.total, expectation.total_of(rank.rank))
        for rank in record.ranks
        if rank.witness is not None and rank.witness.total
    }
    if not differences:
        return []
    tolerance = max(limits.change, limits.spreads * expectation.total_spread)
    worst = max(differences, key=lambda rank: differences[rank])
    share = _share(differences[worst])
    words = (
        f"after {_steps(expectation)}, rank {worst}: the change of the weights differs by {share} from the expected one"
    )
    culprit = _worst_tensor(record, expectation, limits)
    if differences[worst] > tolerance and culprit:
        words += f", most in {culprit[0]}"
    return [_check("change of all weights", differences[worst], tolerance, words, worst)]


def _tensors(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> Iterable[RankCheck]:
    """Check the tensor of the last worker whose change differs most from the expected one."""
    worst = _worst_tensor(record, expectation, limits)
    if worst is None:
        return []
    name, difference, tolerance = worst
    last = record.trial.devices - 1
    words = (
        f"after {_steps(expectation)}, rank {last}: the change of {name} differs by {_share(difference)} from the"
        " expected one"
    )
    return [_check("change of each tensor", difference, tolerance, words, last)]


def _worst_tensor(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> tuple[str, float, float] | None:
    """Return the tensor that exceeds its tolerance most, with its difference and tolerance."""
    if not record.sketches or not expectation.sketches:
        return None
    unmatched = expectation.sketches.keys() ^ record.sketches.keys()
    if unmatched:
        return min(unmatched), math.inf, limits.change
    lengths = [math.hypot(*sketch) for sketch in expectation.sketches.values()]
    typical = math.sqrt(sum(length**2 for length in lengths) / len(lengths))
    worst: tuple[str, float, float] | None = None
    for (name, expected), length in zip(expectation.sketches.items(), lengths, strict=True):
        scale = max(length, _LEAST_CHANGE * typical, 1e-300)
        difference = math.dist(record.sketches[name], expected) / scale
        difference = difference if math.isfinite(difference) else math.inf
        tolerance = max(limits.change, limits.spreads * expectation.spreads.get(name, 0.0) * length / scale)
        if worst is None or difference / tolerance > worst[1] / worst[2]:
            worst = name, difference, tolerance
    return worst


def _updates(record: TrialRecord) -> Iterable[RankCheck]:
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
    words = f"rank {worst}: by their weight decay, the weights had {updates + off:.1f} updates and not {updates}"
    tolerance = max(_UPDATES, _count_error(config.framework) * updates)
    return [_check("number of updates", abs(off), tolerance, words, worst)]


def _count_error(framework: str) -> float:
    known = FRAMEWORKS.get(framework)
    return known.update_count_error if known else UPDATE_COUNT_ERROR


def _clock(record: TrialRecord) -> Iterable[RankCheck]:
    """Check that the device had done its work when the window ended."""
    left = {rank.rank: rank.witness.unfinished_seconds for rank in record.ranks if rank.witness is not None}
    if not left:
        return []
    windows = {rank.rank: rank.window_seconds for rank in record.ranks}
    worst = max(left, key=lambda rank: left[rank] / max(windows[rank], 1e-9))
    share = left[worst] / max(windows[worst], 1e-9)
    words = (
        f"rank {worst}: when the window of {windows[worst]:.3g} s ended, the device still had {left[worst]:.3g} s of"
        " work to do, so the steps were not waited for"
    )
    tolerance = max(UNFINISHED_SHARE, _UNFINISHED_SECONDS / max(windows[worst], 1e-9))
    return [_check("work left after the window", share, tolerance, words, worst)]


def _samples(record: TrialRecord) -> Iterable[RankCheck]:
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


def _check(name: str, difference: float, tolerance: float, words: str, rank: int | None) -> RankCheck:
    finite = difference if math.isfinite(difference) else None
    size = f"by {difference:.1e}" if finite is not None else "without bound"
    return RankCheck(Check(name, finite, tolerance, f"{words} (differs {size}, tolerance {tolerance:.1e})"), rank)


def _relative(seen: Sequence[float], expected: Sequence[float]) -> float:
    if len(seen) != len(expected):
        return math.inf
    difference = math.dist(seen, expected) / max(math.hypot(*expected), 1e-300)
    return difference if math.isfinite(difference) else math.inf


def _share(difference: float) -> str:
    return f"{100 * difference:.2g} %" if math.isfinite(difference) else "more than any bound"


def _steps(expectation: Expectation) -> str:
    return "one step" if len(expectation.losses) == 1 else f"{len(expectation.losses)} steps"
