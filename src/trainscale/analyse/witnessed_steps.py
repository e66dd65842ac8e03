"""Whether the steps that a trial reports computed what they must: losses, weights of all ranks, single tensors.

The first steps are compared with those of the reference network, the closing steps with the first one
(worker/witness/witness.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import mul

from ..record.parity import Check
from ..record.trial import TrialRecord
from ..worker.sample import RankWitness

Sketch = tuple[float, ...]


@dataclass(frozen=True)
class SampleFacts:
    """What shows whether samples are random: of those of the first step, of rank 0 and of the last rank."""

    deviation: float  # the standard deviation of their values
    copies: float  # how many are copies of another one
    label_kinds: float  # how many labels occur
    count: float


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
    # What a first step subtracts from the initial weights, divided by the learning rate: one sketch for all workers, or
    # one for each.
    gradients: tuple[tuple[float, ...], ...] = ()
    gradient_spread: float = 0.0
    head_gradients: tuple[tuple[float, ...], ...] = ()  # the same of the head's weights alone
    head_gradient_spread: float = 0.0
    tensor_gradients: Mapping[str, tuple[float, ...]] = field(default_factory=dict)  # of each tensor of the last worker
    tensor_gradient_spreads: Mapping[str, float] = field(default_factory=dict)
    samples: SampleFacts | None = None
    initial_losses: tuple[float, ...] = ()  # the loss of each worker with the initial weights; empty: the first ones

    def find_total(self, rank: int) -> tuple[float, ...]:
        """Return the change of all weights that a worker sees after its last step.

        With asynchronous servers, that is after its own turn.
        """
        return self.totals[rank] if len(self.totals) > 1 else self.totals[0]


@dataclass(frozen=True)
class Tolerances:
    """How much a correct trial may differ from its expectation, relatively: ``spreads`` times the spread, and no less
    than these differences.
    """

    spreads: float
    loss: float
    size: float  # of the change of all weights
    total: float  # of the change of all weights, also in direction
    tensor: float  # of the change of a single tensor
    head: float  # of the gradient of the head's weights, in which nothing is decided the other way
    head_spreads: float  # in place of ``spreads`` there; other algorithms for convolutions may round that much more


# By precision. Frameworks sum in other orders than the reference and choose other algorithms. A value next to zero
# before a ReLU, or two equal ones in a max pool, may then be decided the other way, which changes the gradients of the
# layers below: 8e-4 of the change of all weights was seen in fp32, 1.2e-2 of that of a tensor (docs/method.md).
TOLERANCES = {
    "fp32": Tolerances(10.0, 3e-6, 5e-4, 3e-3, 3e-2, 2e-4, 30.0),
    "tf32": Tolerances(8.0, 1e-4, 2e-3, 1e-2, 1e-1, 1e-2, 24.0),
    "bf16": Tolerances(4.0, 2e-3, 5e-3, 2e-2, 2e-1, 2e-1, 4.0),
    "fp16": Tolerances(4.0, 1e-3, 5e-3, 2e-2, 2e-1, 2e-1, 4.0),
}
# The share of a change of the loss that other decisions were seen to make, times ten: 5.2e-6 (JAX on CPUs, AlexNet with
# a batch of 4, where all weights differ by 1.0e-3).
_OTHER_DECISIONS = 5e-5
# A tensor that hardly changes is compared with this share of the typical change of the others.
_LEAST_CHANGE = 1e-2
# Ranks that train together have the same weights, to the last bits of their sums.
EQUAL = 1e-5
_UPDATE_ERROR = 5e-7  # of an update in float32, as weights are kept in every precision: four roundings


@dataclass(frozen=True)
class RankCheck:
    """A check, and the rank that it is about."""

    check: Check
    rank: int | None


def check_first_steps(record: TrialRecord, expectation: Expectation) -> Iterable[RankCheck]:
    """Compare losses, then all weights of each rank together, then single tensors: the first difference explains
    most.
    """
    limits = TOLERANCES[record.trial.config.precision]
    losses = [_check_loss(record, expectation, step, limits) for step in range(len(expectation.losses))]
    changes = (_check_sizes, _check_totals, _check_tensors, _check_equal_weights)
    return [
        *filter(None, losses),
        *(check for check_changes in changes for check in check_changes(record, expectation, limits)),
    ]


def _check_loss(record: TrialRecord, expectation: Expectation, step: int, limits: Tolerances) -> RankCheck | None:
    """Check a step's loss on the rank where it differs most from the expected one."""
    seen = {
        rank.rank: rank.witness.losses[step]
        for rank in record.ranks
        if rank.witness is not None and step < len(rank.witness.losses)
    }
    tolerance = max(
        limits.loss,
        limits.spreads * expectation.loss_spreads[step],
        _estimate_tolerance_of_decisions(expectation, step),
    )
    return check_losses(f"step {step + 1}", seen, expectation.losses[step], tolerance)


def _estimate_tolerance_of_decisions(expectation: Expectation, step: int) -> float:
    """Return how much of a step's loss may differ because a ReLU near zero, or a max pool, was decided the other way in
    the steps before: a share of what those steps changed. The first loss does not depend on it.
    """
    if step == 0:
        return 0.0
    before, after = (math.fsum(losses) for losses in expectation.losses[step - 1 : step + 1])
    return _OTHER_DECISIONS * abs(after - before) / max(abs(after), 1e-300)


def check_losses(
    step: str, seen: Mapping[int, float | None], expected: Sequence[float], tolerance: float
) -> RankCheck | None:
    """Check the losses of a step, given by rank, on the rank where they differ most. None is a loss that is not
    finite.
    """
    differences = {
        rank: relative_difference((math.nan if loss is None else loss,), (expected[rank],))
        for rank, loss in seen.items()
        if rank < len(expected)
    }
    if not differences:
        return None
    worst = max(differences, key=lambda rank: differences[rank])
    text = "not finite" if seen[worst] is None else f"{seen[worst]:.7g}"
    message = f"{step}, rank {worst}: the loss is {text} where {expected[worst]:.7g} is expected"
    return make_check(f"loss of {step}", differences[worst], tolerance, message, worst)


def _collect_totals(record: TrialRecord) -> dict[int, tuple[float, ...]]:
    return {rank.rank: rank.witness.total for rank in record.ranks if rank.witness and rank.witness.total}


def _check_sizes(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> Iterable[RankCheck]:
    """Check how large the change of all weights is, along the expected one, on the rank where it differs most."""
    totals = _collect_totals(record)
    sizes = {rank: _project(total, expectation.find_total(rank)) for rank, total in totals.items()}
    if not sizes:
        return []
    worst = max(sizes, key=lambda rank: abs(sizes[rank] - 1))
    tolerance = max(limits.size, limits.spreads * expectation.total_spread / 2)
    message = (
        f"after {_format_steps(expectation)}, rank {worst}: the change of the weights is {sizes[worst]:.5g} times the"
        " expected one"
    )
    return [make_check("size of the change", abs(sizes[worst] - 1), tolerance, message, worst)]


def _check_totals(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> Iterable[RankCheck]:
    """Check the change of all weights on the rank where it differs most."""
    totals = _collect_totals(record)
    differences = {rank: relative_difference(total, expectation.find_total(rank)) for rank, total in totals.items()}
    if not differences:
        return []
    tolerance = max(limits.total, limits.spreads * expectation.total_spread)
    worst = max(differences, key=lambda rank: differences[rank])
    share = format_share(differences[worst])
    message = (
        f"after {_format_steps(expectation)}, rank {worst}: the change of the weights differs by {share} from the"
        " expected one"
    )
    culprit = find_worst_tensor(record.sketches, expectation.sketches, expectation.spreads, limits)
    if differences[worst] > tolerance and culprit:
        message += f", most in {culprit[0]}"
    return [make_check("change of all weights", differences[worst], tolerance, message, worst)]


def _check_tensors(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> Iterable[RankCheck]:
    """Check the tensor of the last worker whose change differs most from the expected one."""
    worst = find_worst_tensor(record.sketches, expectation.sketches, expectation.spreads, limits)
    if worst is None:
        return []
    name, difference, tolerance = worst
    last = record.trial.devices - 1
    message = (
        f"after {_format_steps(expectation)}, rank {last}: the change of {name} differs by {format_share(difference)}"
        " from the expected one"
    )
    return [make_check("change of each tensor", difference, tolerance, message, last)]


def _check_equal_weights(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> Iterable[RankCheck]:
    """Check that ranks which train together have the weights of the last worker, whose tensors were compared."""
    totals = _collect_totals(record)
    last = record.trial.devices - 1
    if len(expectation.totals) > 1 or last not in totals or len(totals) < 2:
        return []
    differences = {rank: relative_difference(total, totals[last]) for rank, total in totals.items()}
    worst = max(differences, key=lambda rank: differences[rank])
    message = f"after {_format_steps(expectation)}, ranks {worst} and {last} do not have the same weights"
    return [make_check("equal weights", differences[worst], EQUAL, message, worst)]


def check_closing_steps(record: TrialRecord, expectation: Expectation) -> Iterable[RankCheck]:
    """Compare the losses, then the gradients: of all weights, of the head's, of single tensors, and those of the ranks
    with each other. A trial without closing steps has nothing to compare.
    """
    limits = TOLERANCES[record.trial.config.precision]
    witnesses = {rank.rank: rank.witness for rank in record.ranks if rank.witness is not None}
    numbers = range(max((len(witness.closing_losses) for witness in witnesses.values()), default=0))
    losses = [_check_closing_loss(witnesses, expectation, number, limits) for number in numbers]
    all_weights = _check_gradient(
        "the weights",
        {rank: witness.gradients for rank, witness in witnesses.items()},
        expectation.gradients,
        max(
            limits.total,
            limits.spreads * expectation.gradient_spread,
            _estimate_rounding(witnesses, expectation.gradients),
        ),
    )
    head = _check_gradient(
        "the head's weights",
        {rank: witness.head_gradients for rank, witness in witnesses.items()},
        expectation.head_gradients,
        max(
            limits.head,
            limits.head_spreads * expectation.head_gradient_spread,
            _estimate_rounding(witnesses, expectation.head_gradients),
        ),
    )
    tensors = _check_closing_tensors(record, expectation, limits)
    return filter(None, [*losses, all_weights, head, tensors, _check_equal_gradients(witnesses, expectation)])


def _estimate_rounding(witnesses: Mapping[int, RankWitness], expected: Sequence[Sketch]) -> float:
    """Return how much rounding may change the gradient where the velocity is far larger, as if training diverged: the
    gradient is the small difference of two large updates.
    """
    longest = max((witness.closing_change for witness in witnesses.values()), default=0.0)
    shortest = min((math.hypot(*gradient) for gradient in expected), default=0.0)
    return _UPDATE_ERROR * longest / shortest if shortest else 0.0


def _check_closing_loss(
    witnesses: Mapping[int, RankWitness], expectation: Expectation, number: int, limits: Tolerances
) -> RankCheck | None:
    losses = {rank: witness.closing_losses for rank, witness in witnesses.items()}
    seen = {rank: own[number] for rank, own in losses.items() if number < len(own)}
    tolerance = max(limits.loss, limits.spreads * expectation.loss_spreads[0])
    expected = expectation.initial_losses or expectation.losses[0]
    return check_losses(f"closing step {number + 1}", seen, expected, tolerance)


def _check_gradient(
    part: str,
    seen: Mapping[int, Sequence[Sketch]],
    expected: Sequence[Sketch],
    tolerance: float,
) -> RankCheck | None:
    """Check the gradients that updated a part of the weights, on the rank where they differ most.

    ``expected`` has one for all ranks, or one for each.
    """
    differences = {
        rank: max(relative_difference(gradient, expected[rank if len(expected) > 1 else 0]) for gradient in gradients)
        for rank, gradients in seen.items()
        if gradients and expected
    }
    if not differences:
        return None
    worst = max(differences, key=lambda rank: differences[rank])
    message = (
        f"after the window, rank {worst}: steps from the initial weights update {part} by a gradient that differs by"
        f" {format_share(differences[worst])} from that of the first step"
    )
    return make_check(f"gradient of {part} in the closing steps", differences[worst], tolerance, message, worst)


def _check_closing_tensors(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> RankCheck | None:
    """Check the tensor of the last worker whose gradient differs most from the expected one."""
    expected, spreads = expectation.tensor_gradients, expectation.tensor_gradient_spreads
    worst = find_worst_tensor(record.closing_sketches, expected, spreads, limits)
    if worst is None:
        return None
    name, difference, tolerance = worst
    last = record.trial.devices - 1
    message = (
        f"after the window, rank {last}: steps from the initial weights update {name} by a gradient that differs by"
        f" {format_share(difference)} from that of the first step"
    )
    return make_check("gradient of each tensor in the closing steps", difference, tolerance, message, last)


def _check_equal_gradients(witnesses: Mapping[int, RankWitness], expectation: Expectation) -> RankCheck | None:
    """Check that ranks which train together update by the gradients of the last worker, whose tensors were compared."""
    seen = {rank: witness.gradients for rank, witness in witnesses.items() if witness.gradients}
    if len(expectation.gradients) != 1 or len(seen) < 2:
        return None
    last = max(seen)
    differences = {
        rank: max(map(relative_difference, gradients, seen[last]), default=0.0) for rank, gradients in seen.items()
    }
    worst = max(differences, key=lambda rank: differences[rank])
    message = f"after the window, ranks {worst} and {last} update their weights by different gradients"
    tolerance = max(EQUAL, expectation.gradient_spread)  # hosts of different kinds may round differently
    return make_check("equal gradients in the closing steps", differences[worst], tolerance, message, worst)


def find_worst_tensor(
    seen: Mapping[str, Sequence[float]],
    expected: Mapping[str, Sequence[float]],
    spreads: Mapping[str, float],
    limits: Tolerances,
) -> tuple[str, float, float] | None:
    """Return the tensor that exceeds its tolerance most, with its difference and tolerance."""
    if not seen or not expected:
        return None
    unmatched = expected.keys() ^ seen.keys()
    if unmatched:
        return min(unmatched), math.inf, limits.tensor
    lengths = [math.hypot(*sketch) for sketch in expected.values()]
    typical = math.sqrt(sum(length**2 for length in lengths) / len(lengths))
    worst: tuple[str, float, float] | None = None
    for (name, sketch), length in zip(expected.items(), lengths, strict=True):
        scale = max(length, _LEAST_CHANGE * typical, 1e-300)
        difference = math.dist(seen[name], sketch) / scale
        difference = difference if math.isfinite(difference) else math.inf
        tolerance = max(limits.tensor, limits.spreads * spreads.get(name, 0.0) * length / scale)
        if worst is None or difference / tolerance > worst[1] / worst[2]:
            worst = name, difference, tolerance
    return worst


def make_check(name: str, difference: float, tolerance: float, message: str, rank: int | None) -> RankCheck:
    finite = difference if math.isfinite(difference) else None
    size = f"by {difference:.1e}" if finite is not None else "without bound"
    return RankCheck(Check(name, finite, tolerance, f"{message} (differs {size}, tolerance {tolerance:.1e})"), rank)


def relative_difference(seen: Sequence[float], expected: Sequence[float]) -> float:
    if len(seen) != len(expected):
        return math.inf
    difference = math.dist(seen, expected) / max(math.hypot(*expected), 1e-300)
    return difference if math.isfinite(difference) else math.inf


def _project(seen: Sequence[float], expected: Sequence[float]) -> float:
    """Return how many times the expected change the seen one has in its direction."""
    length = math.fsum(value * value for value in expected)
    return math.fsum(map(mul, seen, expected)) / length if length and len(seen) == len(expected) else math.inf


def format_share(difference: float) -> str:
    return f"{100 * difference:.2g} %" if math.isfinite(difference) else "more than any bound"


def _format_steps(expectation: Expectation) -> str:
    return "one step" if len(expectation.losses) == 1 else f"{len(expectation.losses)} steps"
