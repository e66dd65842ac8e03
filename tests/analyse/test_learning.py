"""What training to an accuracy came to, on examples worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from factories import failed_record, learning_config, learning_record, make_record

from trainscale.analyse.series import build_series, compute_training_seconds, count_epochs_to, summarise_learning
from trainscale.record.trial import TrialRecord


def test_a_trial_that_measures_speed_learns_nothing() -> None:
    (series,) = build_series([make_record()])
    assert series.points[0].learning is None
    assert not series.learns


def test_training_time_is_all_epochs_and_the_first_step_and_no_validation() -> None:
    record = learning_record(valid=(0.5, 0.7), seconds=40.0)
    assert compute_training_seconds(record) == pytest.approx(82.0)
    assert compute_training_seconds(record, 1) == pytest.approx(42.0)


def test_the_average_epoch_leaves_the_first_step_out() -> None:
    learning = summarise_learning([learning_record(valid=(0.5, 0.7), seconds=40.0)])
    assert learning is not None
    assert learning.epoch_seconds.mean == pytest.approx(40.0)
    assert learning.training_seconds.mean == pytest.approx(82.0)


def test_accuracies_are_those_after_each_repeats_last_epoch() -> None:
    config = learning_config(epochs=9, until_accuracy=0.8)
    records = [
        learning_record(config, repeat=0, valid=(0.5, 0.80)),
        learning_record(config, repeat=1, valid=(0.5, 0.7, 0.82)),
    ]
    learning = summarise_learning(records)
    assert learning is not None
    assert learning.valid_accuracy.mean == pytest.approx(0.81)
    assert learning.train_accuracy.mean == pytest.approx(0.86)
    assert [(epoch.epoch, epoch.repeats) for epoch in learning.epochs] == [(1, 2), (2, 2), (3, 1)]
    assert learning.epochs[1].valid_accuracy.mean == pytest.approx(0.75)


def test_time_to_accuracy_ends_with_the_first_epoch_that_reaches_it() -> None:
    record = learning_record(valid=(0.5, 0.8, 0.79, 0.9), seconds=40.0)
    assert [count_epochs_to(record, target) for target in (0.4, 0.8, 0.9, 0.95)] == [1, 2, 4, None]
    learning = summarise_learning([record], target=0.8)
    assert learning is not None
    assert learning.to_accuracy is not None
    assert learning.to_accuracy.seconds is not None
    assert learning.to_accuracy.seconds.mean == pytest.approx(82.0)
    assert learning.to_accuracy.epochs == 2


def test_the_target_is_the_configs_unless_another_is_asked_for() -> None:
    record = learning_record(learning_config(until_accuracy=0.7), valid=(0.5, 0.7))
    by_config, by_argument = summarise_learning([record]), summarise_learning([record], target=0.5)
    assert by_config is not None
    assert by_argument is not None
    assert by_config.to_accuracy is not None
    assert by_argument.to_accuracy is not None
    assert (by_config.to_accuracy.target, by_argument.to_accuracy.target) == (0.7, 0.5)
    without = summarise_learning([learning_record()])
    assert without is not None
    assert without.to_accuracy is None


def test_there_is_no_mean_time_of_those_repeats_alone_that_were_lucky() -> None:
    records = [learning_record(repeat=0, valid=(0.9,)), learning_record(repeat=1, valid=(0.6,))]
    learning = summarise_learning(records, target=0.8)
    assert learning is not None
    assert learning.to_accuracy is not None
    assert (learning.to_accuracy.reached, learning.to_accuracy.repeats) == (1, 2)
    assert learning.to_accuracy.seconds is None


def test_a_loss_that_is_not_finite_in_one_repeat_has_no_mean() -> None:
    good, bad = learning_record(repeat=0), learning_record(repeat=1)
    bad = replace(bad, epochs=tuple(replace(epoch, train_loss=None) for epoch in bad.epochs))
    learning = summarise_learning([good, bad])
    assert learning is not None
    assert learning.epochs[0].train_loss is None
    assert learning.epochs[0].valid_loss == pytest.approx(0.5)


def test_speed_counts_training_images_over_training_time_alone() -> None:
    (series,) = build_series([learning_record(valid=(0.5, 0.7), seconds=40.0)])
    point = series.points[0]
    assert point.samples_per_second is not None
    assert point.samples_per_second.mean == pytest.approx(128 * 20 / 80)


def test_a_failed_repeat_takes_no_part() -> None:
    config = learning_config()
    (series,) = build_series([learning_record(config), failed_record(config, repeat=1)])
    learning = series.points[0].learning
    assert learning is not None
    assert learning.epochs[0].repeats == 1


def test_the_journal_round_trip_keeps_what_was_learnt() -> None:
    records = [learning_record(repeat=repeat) for repeat in range(2)]
    assert build_series(TrialRecord.from_dict(record.to_dict()) for record in records) == build_series(records)
