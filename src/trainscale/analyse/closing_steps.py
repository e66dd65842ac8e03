"""Whether a step after the window still computes what the first step computed (worker/training/closing_steps.py)."""

from __future__ import annotations

from collections.abc import Iterable

from ..record.trial import TrialRecord
from .first_steps import (
    TOLERANCES,
    Expectation,
    RankCheck,
    Tolerances,
    check_losses,
    make_check,
    relative_difference,
    share_text,
)


def check_closing_steps(record: TrialRecord, expectation: Expectation) -> Iterable[RankCheck]:
    """Compare the losses, then the gradient. A trial without closing steps has nothing to compare."""
    limits = TOLERANCES[record.trial.config.precision]
    numbers = range(max((len(rank.witness.closing_losses) for rank in record.ranks if rank.witness), default=0))
    losses = [_loss(record, expectation, number, limits) for number in numbers]
    return [*filter(None, losses), *_gradient(record, expectation, limits)]


def _loss(record: TrialRecord, expectation: Expectation, number: int, limits: Tolerances) -> RankCheck | None:
    seen = {
        rank.rank: rank.witness.closing_losses[number]
        for rank in record.ranks
        if rank.witness is not None and number < len(rank.witness.closing_losses)
    }
    tolerance = max(limits.loss, limits.spreads * expectation.loss_spreads[0])
    return check_losses(f"closing step {number + 1}", seen, expectation.losses[0], tolerance)


def _gradient(record: TrialRecord, expectation: Expectation, limits: Tolerances) -> Iterable[RankCheck]:
    """Check the gradient by which the closing steps updated the weights, on the rank where it differs most."""
    if not expectation.gradients:
        return []
    differences = {
        rank.rank: max(relative_difference(seen, expectation.gradient_of(rank.rank)) for seen in rank.witness.gradients)
        for rank in record.ranks
        if rank.witness is not None and rank.witness.gradients
    }
    if not differences:
        return []
    worst = max(differences, key=lambda rank: differences[rank])
    tolerance = max(limits.total, limits.spreads * expectation.gradient_spread)
    message = (
        f"after the window, rank {worst}: steps from the initial weights update them by a gradient that differs by"
        f" {share_text(differences[worst])} from that of the first step"
    )
    return [make_check("gradient of the closing steps", differences[worst], tolerance, message, worst)]
