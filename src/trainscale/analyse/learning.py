"""The results of training to an accuracy: epochs over repeats, times and accuracies. Pure functions of records.

All times are of training alone, without validation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from ..record.trial import TrialRecord
from .statistics import Interval, mean_interval


@dataclass(frozen=True)
class EpochMeans:
    """One epoch over the repeats that reached it. With a target accuracy, some repeats stop earlier than others."""

    epoch: int  # from 1
    repeats: int
    seconds: Interval  # sum of its steps
    trained_seconds: float  # from the first step to the end of this epoch, mean
    train_accuracy: Interval
    valid_accuracy: Interval
    train_loss: float | None
    valid_loss: float | None
    evaluation_seconds: float


@dataclass(frozen=True)
class ToAccuracy:
    """When a validation accuracy was first reached, if it was.

    There is a mean only if all repeats reached it: a mean over only those that did would be too good.
    """

    target: float
    reached: int  # repeats
    repeats: int
    seconds: Interval | None = None  # of training
    epochs: float | None = None  # mean


@dataclass(frozen=True)
class Learning:
    """All repeats of a point that trains to an accuracy. Accuracies are those after the last epoch of each repeat."""

    epochs: tuple[EpochMeans, ...]
    training_seconds: Interval  # all epochs and the first step, in which frameworks compile
    epoch_seconds: Interval  # mean over the epochs, without that first step
    train_accuracy: Interval
    valid_accuracy: Interval
    to_accuracy: ToAccuracy | None = None

    @property
    def last(self) -> EpochMeans:
        return self.epochs[-1]


def summarise_learning(records: Sequence[TrialRecord], target: float | None = None) -> Learning | None:
    """Summarise the good repeats of a point. None if they trained no epoch. ``target`` replaces that of the config."""
    trained = [record for record in records if record.epochs]
    if not trained:
        return None
    if target is None:
        target = trained[0].trial.config.until_accuracy
    return Learning(
        epochs=average_epochs(trained),
        training_seconds=mean_interval([compute_training_seconds(record) for record in trained]),
        epoch_seconds=mean_interval([fmean(epoch.seconds for epoch in record.epochs) for record in trained]),
        train_accuracy=mean_interval([record.epochs[-1].train_accuracy for record in trained]),
        valid_accuracy=mean_interval([record.epochs[-1].valid_accuracy for record in trained]),
        to_accuracy=None if target is None else find_time_to_accuracy(trained, target),
    )


def compute_training_seconds(record: TrialRecord, epochs: int | None = None) -> float:
    """Return the time of the first ``epochs``, or of all, and of the very first step, which no epoch includes."""
    first_step = max((rank.first_step_seconds for rank in record.ranks), default=0.0)
    return first_step + sum(epoch.seconds for epoch in record.epochs[:epochs])


def find_time_to_accuracy(records: Sequence[TrialRecord], target: float) -> ToAccuracy:
    counts = [count_epochs_to(record, target) for record in records]
    reached = [(record, count) for record, count in zip(records, counts, strict=True) if count is not None]
    if len(reached) < len(records):
        return ToAccuracy(target, len(reached), len(records))
    times = [compute_training_seconds(record, count) for record, count in reached]
    return ToAccuracy(target, len(reached), len(records), mean_interval(times), fmean(count for _, count in reached))


def count_epochs_to(record: TrialRecord, target: float) -> int | None:
    """Return the number of the first epoch that reached an accuracy, even if later ones did not."""
    return next((n for n, epoch in enumerate(record.epochs, 1) if epoch.valid_accuracy >= target), None)


def average_epochs(records: Sequence[TrialRecord]) -> tuple[EpochMeans, ...]:
    return tuple(_average_epoch(index, records) for index in range(max(len(record.epochs) for record in records)))


def _average_epoch(index: int, records: Sequence[TrialRecord]) -> EpochMeans:
    trained = [record for record in records if len(record.epochs) > index]
    epochs = [record.epochs[index] for record in trained]
    return EpochMeans(
        epoch=epochs[0].epoch,
        repeats=len(epochs),
        seconds=mean_interval([epoch.seconds for epoch in epochs]),
        trained_seconds=fmean(compute_training_seconds(record, index + 1) for record in trained),
        train_accuracy=mean_interval([epoch.train_accuracy for epoch in epochs]),
        valid_accuracy=mean_interval([epoch.valid_accuracy for epoch in epochs]),
        train_loss=_mean([epoch.train_loss for epoch in epochs]),
        valid_loss=_mean([epoch.valid_loss for epoch in epochs]),
        evaluation_seconds=fmean(epoch.evaluation_seconds for epoch in epochs),
    )


def _mean(values: Sequence[float | None]) -> float | None:
    """Return None if any value is None: the mean of a loss that was not finite does not exist."""
    known = [value for value in values if value is not None]
    return fmean(known) if len(known) == len(values) else None
