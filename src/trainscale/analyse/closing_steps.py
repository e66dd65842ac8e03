"""Whether a step after the window still computes what the first step computed (worker/witness/closing_steps.py)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from ..record.trial import TrialRecord
from ..worker.sample import RankWitness
from .first_steps import (
    EQUAL,
    TOLERANCES,
    Expectation,
    RankCheck,
    Tolerances,
    check_losses,
    find_worst_tensor,
    format_share,
    make_check,
    relative_difference,
)

Sketch = tuple[float, ...]
_UPDATE_ERROR = 5e-7  # of an update in float32, as weights are kept in every precision: four roundings


def check_closing_steps(record: TrialRecord, expectation: Expectation) -> Iterable[RankCheck]:
    """Compare the losses, then the gradients: of all weights, of the head's, of single tensors, and those of the ranks
    with each other. A trial without closing steps has nothing to compare.
    """
    limits = TOLERANCES[record.trial.config.precision]
    witnesses = {rank.rank: rank.witness for rank in record.ranks if rank.witness is not None}
    numbers = range(max((len(witness.closing_losses) for witness in witnesses.values()), default=0))
    losses = [_check_loss(witnesses, expectation, number, limits) for number in numbers]
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
    tensors = _check_tensors(record, expectation, limits)
    return filter(None, [*losses, all_weights, head, tensors, _check_equal_gradients(witnesses, expectation)])


def _estimate_rounding(witnesses: Mapping[int, RankWitness], expected: Sequence[Sketch]) -> float:
    """Return how much rounding may change the gradient where the velocity is far larger, as if training diverged: the
    gradient is the small difference of two large updates.
    """
    longest = max((witness.closing_change for witness in witnesses.values()), default=0.0)
    shortest = min((math.hypot(*gradient) for gradient in expected), default=0.0)
    return _UPDATE_ERROR * longest / shortest if shortest else 0.0


def _check_loss(
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


def _check_tensors(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> RankCheck | None:
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
