"""An epoch as a row of a table: what a log, or a trial in the journal, says of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..record.trial import Epoch


@dataclass(frozen=True)
class EpochRow:
    """One epoch, of all workers together. What was not said is not there, or None."""

    epoch: int  # from 1
    train: Mapping[str, float] = field(default_factory=dict)  # by the metric's name: accuracy, cross-entropy, …
    valid: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    samples_per_second: float | None = None  # cluster-wide


def epoch_rows(epochs: Iterable[Epoch]) -> list[EpochRow]:
    """The epochs of a trial."""
    return [
        EpochRow(
            epoch=one.epoch,
            train={"accuracy": one.train_accuracy},
            valid={"accuracy": one.valid_accuracy},
            seconds=one.seconds,
            samples_per_second=one.samples / one.seconds if one.seconds else None,
        )
        for one in epochs
    ]
