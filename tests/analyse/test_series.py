"""Records become points, and points become series with speed-ups."""

from dataclasses import replace
from typing import Any

import pytest
from factories import (
    MXNET,
    MXNET_LADDER,
    curve,
    failed_record,
    learning_config,
    learning_record,
    make_config,
    make_rank,
    make_record,
    mxnet_records,
    record_at,
)

from trainscale.analyse.series import (
    HostBoundary,
    Interval,
    Point,
    Series,
    build_series,
    compute_training_seconds,
    count_epochs_to,
    find_common_boundary,
    find_host_boundary,
    summarise_learning,
)
from trainscale.record.trial import TrialRecord


def test_the_published_mxnet_curves_give_the_speedups_of_their_table() -> None:
    series = {each.config.model: each for each in build_series(mxnet_records())}
    for (model, _), speeds in MXNET.items():
        points = series[model].points
        assert [point.devices for point in points] == list(MXNET_LADDER)
        for point, speed in zip(points, speeds, strict=True):
            assert point.samples_per_second.mean == pytest.approx(speed)
            assert point.speedup.mean == pytest.approx(speed / speeds[0])
    at_256 = series["inceptionv3"].points[-1]
    assert at_256.speedup.mean == pytest.approx(219.11, abs=0.01)
    assert at_256.efficiency.mean == pytest.approx(0.856, abs=0.001)


def test_the_journal_round_trip_changes_nothing() -> None:
    records = mxnet_records()
    assert build_series(TrialRecord.from_dict(record.to_dict()) for record in records) == build_series(records)
    records = [learning_record(repeat=repeat) for repeat in range(2)]
    assert build_series(TrialRecord.from_dict(record.to_dict()) for record in records) == build_series(records)


def test_repeats_of_a_point_are_one_point_with_an_interval() -> None:
    (series,) = build_series(curve(make_config(), {1: 100.0, 2: 180.0}, repeats=5, spread=0.01))
    first, second = series.points
    assert second.repeats == 5
    assert second.samples_per_second.relative == pytest.approx(2.77644511 * 0.0158114 / 5**0.5, rel=1e-4)
    assert second.speedup.mean == pytest.approx(1.8)
    assert second.speedup.low is not None
    assert second.efficiency == second.speedup.scaled(0.5)
    assert first.speedup == first.efficiency == Interval(1.0)
    records = [failed_record(repeat=0), record_at(100.0, repeat=0), record_at(102.0, repeat=1), failed_record(repeat=2)]
    (series,) = build_series(records)
    (point,) = series.points
    assert (point.ok, point.repeats, len(point.failures)) == (True, 2, 1)


def test_a_failed_point_has_a_reason_and_never_a_zero() -> None:
    (series,) = build_series(curve(make_config(), {1: 100.0, 2: None, 4: 390.0}))
    failed = series.points[1]
    assert not failed.ok
    assert failed.status == "oom"
    assert failed.samples_per_second is failed.speedup is failed.efficiency is None
    assert failed.failures[0].message.startswith("CUDA out of memory")
    assert [point.devices for point in series.good] == [1, 4]
    (series,) = build_series([make_record(ranks=())])
    assert series.points[0].status == "lost"
    (series,) = build_series(curve(make_config(), {1: None, 2: 100.0}))
    assert series.points[1].speedup is None
    assert series.points[1].efficiency is None
    assert not series.has_baseline


def test_strong_scaling_keeps_the_global_batch_and_compares_images_per_second() -> None:
    (series,) = build_series(curve(make_config(scaling="strong", batch=64), {1: 100.0, 4: 300.0}))
    four = series.points[1]
    assert (four.batch_per_device, four.global_batch) == (16, 64)
    assert four.speedup.mean == pytest.approx(3.0)


def test_efficiency_versus_local_uses_the_fastest_local_point_of_the_same_work() -> None:
    records = [
        *curve(make_config(strategy="local"), {1: 110.0}),
        *curve(make_config(strategy="local", scaling="strong"), {1: 125.0}),
        *curve(make_config(strategy="local", precision="bf16"), {1: 999.0}),
        *curve(make_config(strategy="local", batch=64), {1: 999.0}),
        *curve(make_config(), {1: 100.0, 2: 200.0}),
    ]
    series = build_series(records)
    two = series[-1].points[1]
    assert two.efficiency.mean == pytest.approx(1.0)
    assert two.efficiency_versus_local.mean == pytest.approx(200 / 125 / 2)
    assert series[1].points[0].efficiency_versus_local == Interval(1.0)
    placed = make_config(
        strategy="ps", servers=2, servers_per_host=2, server_placement="apart", placement="round-robin"
    )
    *_, series = build_series([*curve(make_config(strategy="local"), {1: 100.0}), *curve(placed, {1: 50.0})])
    assert series.points[0].efficiency_versus_local == Interval(0.5)


def test_series_keep_the_order_of_the_run_and_points_that_of_the_ladder() -> None:
    second, first = make_config(model="vgg16"), make_config()
    records = [record_at(9.0, second, 4), record_at(5.0, first, 2), record_at(3.0, second, 1)]
    series = build_series(records)
    assert [each.config for each in series] == [second, first]
    assert [point.devices for point in series[0].points] == [1, 4]


# ---- memory: the largest over ranks and repeats, and the largest sum


def make_point(*repeats: list[dict[str, Any]]) -> Point:
    records = [
        make_record(
            devices=len(ranks),
            repeat=repeat,
            ranks=[make_rank(n, [0.1] * 3, 32, **values) for n, values in enumerate(ranks)],
        )
        for repeat, ranks in enumerate(repeats)
    ]
    (series,) = build_series(records)
    return series.points[0]


def test_memory_is_the_largest_of_a_rank_and_the_largest_sum_of_a_repeat() -> None:
    names = ("device_peak_bytes", "nvml_peak_bytes", "host_peak_bytes")
    memory = make_point(
        [dict.fromkeys(names, 5), dict.fromkeys(names, 5)],
        [dict.fromkeys(names, 8), dict.fromkeys(names, 1)],
    )
    for name in names:
        assert (getattr(memory, name), getattr(memory, f"{name}_sum")) == (8, 10)
    memory = make_point([{"nvml_peak_bytes": 5}, {"nvml_note": "no driver"}])
    assert (memory.nvml_peak_bytes, memory.nvml_peak_bytes_sum, memory.nvml_note) == (5, None, "no driver")
    memory = make_point([{}, {}])
    assert (memory.device_peak_bytes, memory.device_peak_bytes_sum, memory.nvml_peak_bytes) == (None, None, None)
    assert (memory.nvml_note, memory.loaders_peak_bytes) == ("", None)
    memory = make_point(
        [{"host_peak_bytes": 7, "loaders_peak_bytes": 3}, {"host_peak_bytes": 6, "loaders_peak_bytes": 4}]
    )
    assert (memory.host_peak_bytes, memory.loaders_peak_bytes) == (7, 4)


# ---- where a ladder leaves its first host


def climb(hosts: dict[int, int], **config: object) -> Series:
    """A series with these numbers of hosts by device count."""
    records = curve(make_config(**config), {devices: 10.0 * devices for devices in hosts})
    (series,) = build_series([replace(record, hosts=hosts[record.trial.devices]) for record in records])
    return series


@pytest.mark.parametrize(
    ("hosts", "expected"),
    [
        ({1: 1, 2: 1, 4: 2, 8: 4}, HostBoundary(2, 4, 2, 4)),
        ({1: 1, 2: 2}, HostBoundary(1, 2, 2, 2)),
        ({1: 1, 2: 1, 4: 1}, None),
        ({1: 2, 2: 2}, None),
        ({1: 2, 2: 1, 4: 2}, None),
        ({}, None),
    ],
    ids=["filled", "one a host", "one host", "several from the start", "no count separates them", "nothing"],
)
def test_a_boundary_is_where_a_ladder_leaves_its_host(hosts: dict[int, int], expected: HostBoundary | None) -> None:
    assert find_host_boundary(climb(hosts).points if hosts else ()) == expected


def test_series_have_a_common_boundary_if_they_leave_their_host_at_one_count() -> None:
    apart = climb({1: 2, 2: 2, 4: 3}, strategy="ps", servers=1)
    assert find_common_boundary([climb({1: 1, 2: 1, 4: 2}), apart]) == HostBoundary(2, 4, 2, 2)
    assert find_common_boundary([apart]) is None
    dealt = climb({1: 1, 2: 2, 4: 2}, placement="round-robin")
    assert find_common_boundary([climb({1: 1, 2: 1, 4: 2}), dealt]) is None
    records = curve(make_config(), {1: 10.0, 2: 19.0, 4: None})
    (series,) = build_series([replace(record, hosts=2 if record.trial.devices == 4 else 1) for record in records])
    assert find_host_boundary(series.points) == HostBoundary(2, 4, 2, 2)


# ---- training to an accuracy


def test_training_time_is_all_epochs_and_the_first_step_and_no_validation() -> None:
    record = learning_record(valid=(0.5, 0.7), seconds=40.0)
    assert compute_training_seconds(record) == pytest.approx(82.0)
    assert compute_training_seconds(record, 1) == pytest.approx(42.0)
    learning = summarise_learning([record])
    assert (learning.epoch_seconds.mean, learning.training_seconds.mean) == pytest.approx((40.0, 82.0))
    (series,) = build_series([learning_record(valid=(0.5, 0.7), seconds=40.0)])
    point = series.points[0]
    assert point.samples_per_second.mean == pytest.approx(128 * 20 / 80)
    (series,) = build_series([make_record()])
    assert series.points[0].learning is None
    assert not series.learns


def test_accuracies_and_losses_are_those_of_all_repeats() -> None:
    config = learning_config(epochs=9, until_accuracy=0.8)
    records = [
        learning_record(config, repeat=0, valid=(0.5, 0.80)),
        learning_record(config, repeat=1, valid=(0.5, 0.7, 0.82)),
    ]
    learning = summarise_learning(records)
    assert learning.valid_accuracy.mean == pytest.approx(0.81)
    assert learning.train_accuracy.mean == pytest.approx(0.86)
    assert [(epoch.epoch, epoch.repeats) for epoch in learning.epochs] == [(1, 2), (2, 2), (3, 1)]
    assert learning.epochs[1].valid_accuracy.mean == pytest.approx(0.75)
    good, bad = learning_record(repeat=0), learning_record(repeat=1)
    bad = replace(bad, epochs=tuple(replace(epoch, train_loss=None) for epoch in bad.epochs))
    learning = summarise_learning([good, bad])
    assert learning.epochs[0].train_loss is None
    assert learning.epochs[0].valid_loss == pytest.approx(0.5)


def test_time_to_accuracy_ends_with_the_first_epoch_that_reaches_it() -> None:
    record = learning_record(valid=(0.5, 0.8, 0.79, 0.9), seconds=40.0)
    assert [count_epochs_to(record, target) for target in (0.4, 0.8, 0.9, 0.95)] == [1, 2, 4, None]
    learning = summarise_learning([record], target=0.8)
    assert learning.to_accuracy.seconds.mean == pytest.approx(82.0)
    assert learning.to_accuracy.epochs == 2
    record = learning_record(learning_config(until_accuracy=0.7), valid=(0.5, 0.7))
    by_config, by_argument = summarise_learning([record]), summarise_learning([record], target=0.5)
    assert (by_config.to_accuracy.target, by_argument.to_accuracy.target) == (0.7, 0.5)
    without = summarise_learning([learning_record()])
    assert without.to_accuracy is None
    records = [learning_record(repeat=0, valid=(0.9,)), learning_record(repeat=1, valid=(0.6,))]
    learning = summarise_learning(records, target=0.8)
    assert (learning.to_accuracy.reached, learning.to_accuracy.repeats) == (1, 2)
    assert learning.to_accuracy.seconds is None
