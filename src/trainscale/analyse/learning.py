"""What training to an accuracy came to: epochs over repeats, times and accuracies. Pure functions of records.

Times are of training alone: validation is outside every clock here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..record.trial import TrialRecord
from .statistics import Interval, mean_interval


@dataclass(frozen=True)
class EpochMeans:
    """One epoch over the repeats that came so far: with a target, some stop earlier than others."""

    epoch: int  # from 1
    repeats: int
    seconds: Interval  # of its steps
    trained_seconds: float  # from the first step to the end of this epoch, mean
    train_accuracy: Interval
    valid_accuracy: Interval
    train_loss: float | None
    valid_loss: float | None
    evaluation_seconds: float


@dataclass(frozen=True)
class ToAccuracy:
    """When a validation accuracy was first reached, if it was. A mean of those repeats alone that reached it would
    flatter, so there is none unless all did.
    """

    target: float
    reached: int  # repeats
    repeats: int
    seconds: Interval | None = None  # of training
    epochs: float | None = None  # mean


@dataclass(frozen=True)
class Learning:
    """All repeats of a point that trains to an accuracy. Accuracies are those after each repeat's last epoch."""

    epochs: tuple[EpochMeans, ...]
    training_seconds: Interval  # all epochs and the first step, in which frameworks compile
    epoch_seconds: Interval  # mean over the epochs, without that first step
    train_accuracy: Interval
    valid_accuracy: Interval
    to_accuracy: ToAccuracy | None = None

    @property
    def last(self) -> EpochMeans:
        return self.epochs[-1]


def learning(records: Sequence[TrialRecord], target: float | None = None) -> Learning | None:
    """Of the good repeats of one point; None where they trained no epoch. Without a ``target``, that of the config."""
    trained = [record for record in records if record.epochs]
    if not trained:
        return None
    wanted = trained[0].trial.config.until_accuracy if target is None else target
    return Learning(
        epochs=epoch_means(trained),
        training_seconds=mean_interval([training_seconds(record) for record in trained]),
        epoch_seconds=mean_interval([fmean(epoch.seconds for epoch in record.epochs) for record in trained]),
        train_accuracy=mean_interval([record.epochs[-1].train_accuracy for record in trained]),
        valid_accuracy=mean_interval([record.epochs[-1].valid_accuracy for record in trained]),
        to_accuracy=None if wanted is None else to_accuracy(trained, wanted),
    )


def training_seconds(record: TrialRecord, epochs: int | None = None) -> float:
    """Of the first epochs, or of all, with the very first step, which no epoch's time contains."""
    first_step = max((rank.first_step_seconds for rank in record.ranks), default=0.0)
    return first_step + sum(epoch.seconds for epoch in record.epochs[:epochs])


def to_accuracy(records: Sequence[TrialRecord], target: float) -> ToAccuracy:
    found = [(record, count) for record in records if (count := epochs_to(record, target)) is not None]
    if len(found) < len(records):
        return ToAccuracy(target, len(found), len(records))
    times = [training_seconds(record, count) for record, count in found]
    return ToAccuracy(target, len(found), len(records), mean_interval(times), fmean(count for _, count in found))


def epochs_to(record: TrialRecord, target: float) -> int | None:
    """How many epochs a trial took to an accuracy: the first that reached it counts, whatever came after."""
    reached = (n for n, epoch in enumerate(record.epochs, 1) if epoch.valid_accuracy >= target)
    return next(reached, None)


def epoch_means(records: Sequence[TrialRecord]) -> tuple[EpochMeans, ...]:
    return tuple(_means(index, records) for index in range(max(len(record.epochs) for record in records)))


def _means(index: int, records: Sequence[TrialRecord]) -> EpochMeans:
    there = [record for record in records if len(record.epochs) > index]
    found = [record.epochs[index] for record in there]
    return EpochMeans(
        epoch=found[0].epoch,
        repeats=len(found),
        seconds=mean_interval([epoch.seconds for epoch in found]),
        trained_seconds=fmean(training_seconds(record, index + 1) for record in there),
        train_accuracy=mean_interval([epoch.train_accuracy for epoch in found]),
        valid_accuracy=mean_interval([epoch.valid_accuracy for epoch in found]),
        train_loss=_mean([epoch.train_loss for epoch in found]),
        valid_loss=_mean([epoch.valid_loss for epoch in found]),
        evaluation_seconds=fmean(epoch.evaluation_seconds for epoch in found),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """None as soon as one is: a loss that was not finite is no number."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None
