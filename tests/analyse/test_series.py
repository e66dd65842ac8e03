"""Records become points, and points become series with speed-ups."""

from __future__ import annotations

import pytest
from factories import (
    MXNET,
    MXNET_LADDER,
    curve,
    failed_record,
    make_config,
    make_rank,
    make_record,
    mxnet_records,
    record_at,
)

from trainscale.analyse.series import Interval, build_series
from trainscale.record.trial import TrialRecord


def test_the_published_mxnet_curves_give_the_speedups_of_their_table() -> None:
    series = {each.config.model: each for each in build_series(mxnet_records())}
    for (model, _), speeds in MXNET.items():
        points = series[model].points
        assert [point.devices for point in points] == list(MXNET_LADDER)
        for point, speed in zip(points, speeds, strict=True):
            assert point.samples_per_second is not None
            assert point.samples_per_second.mean == pytest.approx(speed)
            assert point.speedup is not None
            assert point.speedup.mean == pytest.approx(speed / speeds[0])
    at_256 = series["inceptionv3"].points[-1]
    assert at_256.speedup is not None
    assert at_256.speedup.mean == pytest.approx(219.11, abs=0.01)
    assert at_256.efficiency is not None
    assert at_256.efficiency.mean == pytest.approx(0.856, abs=0.001)


def test_the_journal_round_trip_changes_nothing() -> None:
    records = mxnet_records()
    assert build_series(TrialRecord.from_dict(record.to_dict()) for record in records) == build_series(records)


def test_repeats_of_a_point_are_one_point_with_an_interval() -> None:
    (series,) = build_series(curve(make_config(), {1: 100.0, 2: 180.0}, repeats=5, spread=0.01))
    first, second = series.points
    assert second.repeats == 5
    assert second.samples_per_second is not None
    assert second.samples_per_second.relative == pytest.approx(2.77644511 * 0.0158114 / 5**0.5, rel=1e-4)
    assert second.speedup is not None
    assert second.speedup.mean == pytest.approx(1.8)
    assert second.speedup.low is not None
    assert second.efficiency == second.speedup.scaled(0.5)
    assert first.speedup == first.efficiency == Interval(1.0)


def test_a_failed_point_has_a_reason_and_never_a_zero() -> None:
    (series,) = build_series(curve(make_config(), {1: 100.0, 2: None, 4: 390.0}))
    failed = series.points[1]
    assert not failed.ok
    assert failed.status == "oom"
    assert failed.samples_per_second is failed.speedup is failed.efficiency is None
    assert failed.failures[0].message.startswith("CUDA out of memory")
    assert [point.devices for point in series.good] == [1, 4]


def test_a_point_with_one_failed_repeat_is_good() -> None:
    (series,) = build_series([record_at(100.0, repeat=0), record_at(102.0, repeat=1), failed_record(repeat=2)])
    (point,) = series.points
    assert point.ok
    assert point.repeats == 2
    assert len(point.failures) == 1


def test_without_a_one_device_point_there_is_no_speedup() -> None:
    (series,) = build_series(curve(make_config(), {1: None, 2: 100.0}))
    assert series.points[1].speedup is None
    assert series.points[1].efficiency is None
    assert not series.has_baseline


def test_strong_scaling_keeps_the_global_batch_and_compares_images_per_second() -> None:
    (series,) = build_series(curve(make_config(scaling="strong", batch=64), {1: 100.0, 4: 300.0}))
    four = series.points[1]
    assert (four.batch_per_device, four.global_batch) == (16, 64)
    assert four.speedup is not None
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
    assert two.efficiency is not None
    assert two.efficiency.mean == pytest.approx(1.0)
    assert two.efficiency_versus_local is not None
    assert two.efficiency_versus_local.mean == pytest.approx(200 / 125 / 2)
    assert series[1].points[0].efficiency_versus_local == Interval(1.0)


def test_where_servers_and_workers_sit_does_not_make_it_other_work() -> None:
    placed = make_config(
        strategy="ps", servers=2, servers_per_host=2, server_placement="apart", placement="round-robin"
    )
    *_, series = build_series([*curve(make_config(strategy="local"), {1: 100.0}), *curve(placed, {1: 50.0})])
    assert series.points[0].efficiency_versus_local == Interval(0.5)


def test_without_a_local_point_there_is_no_efficiency_versus_it() -> None:
    (series,) = build_series(curve(make_config(), {1: 100.0, 2: 200.0}))
    assert all(point.efficiency_versus_local is None for point in series.points)


def test_a_trial_recorded_twice_counts_once_as_last_seen() -> None:
    (series,) = build_series([failed_record(), record_at(100.0)])
    (point,) = series.points
    assert point.repeats == 1
    assert point.failures == ()


def test_a_trial_that_claims_success_without_samples_is_a_failure() -> None:
    (series,) = build_series([make_record(ranks=())])
    assert series.points[0].status == "lost"


def test_the_largest_memory_and_the_slowest_start_count() -> None:
    ranks = [
        make_rank(0, [0.1] * 3, 32, device_peak_bytes=5, host_peak_bytes=7, startup_seconds=1.0),
        make_rank(1, [0.1] * 3, 32, device_peak_bytes=9, host_peak_bytes=3, startup_seconds=4.0),
    ]
    (series,) = build_series([make_record(devices=2, ranks=ranks)])
    (point,) = series.points
    assert (point.device_peak_bytes, point.host_peak_bytes, point.startup_seconds) == (9, 7, 4.0)


def test_series_keep_the_order_of_the_run_and_points_that_of_the_ladder() -> None:
    second, first = make_config(model="vgg16"), make_config()
    records = [record_at(9.0, second, 4), record_at(5.0, first, 2), record_at(3.0, second, 1)]
    series = build_series(records)
    assert [each.config for each in series] == [second, first]
    assert [point.devices for point in series[0].points] == [1, 4]


def test_no_records_give_no_series() -> None:
    assert build_series([]) == []
