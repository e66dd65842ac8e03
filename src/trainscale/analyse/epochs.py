"""An epoch as a row of a table, from a log or from a trial in the journal."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ..record.trial import Epoch


@dataclass(frozen=True)
class EpochRow:
    """One epoch, over all workers. Values that a log does not contain are absent or None."""

    epoch: int  # from 1
    train: Mapping[str, float] = field(default_factory=dict)  # by the metric's name: accuracy, cross-entropy, …
    valid: Mapping[str, float] = field(default_factory=dict)
    seconds: float | None = None
    samples_per_second: float | None = None  # cluster-wide


def make_epoch_rows(epochs: Iterable[Epoch]) -> list[EpochRow]:
    return [
        EpochRow(
            epoch=epoch.epoch,
            train={"accuracy": epoch.train_accuracy},
            valid={"accuracy": epoch.valid_accuracy},
            seconds=epoch.seconds,
            samples_per_second=epoch.samples / epoch.seconds if epoch.seconds else None,
        )
        for epoch in epochs
    ]
