"""The definitions of speed, checked on examples worked out by hand."""

from __future__ import annotations

import math

import pytest
from factories import make_config, make_rank, make_record

from trainscale.analyse.throughput import (
    compute_input_overhead,
    compute_resident_samples_per_second,
    compute_samples_per_second,
    compute_step_jitter,
    compute_waiting_share,
    is_measured,
    list_step_seconds,
)


@pytest.mark.parametrize("strategy", ["local", "allreduce", "ps", "sharded"])
def test_synchronous_speed_is_all_images_over_the_longest_window(strategy: str) -> None:
    ranks = [make_rank(0, [0.1] * 10, 32), make_rank(1, [0.125] * 10, 32)]
    record = make_record(make_config(strategy=strategy), 2, ranks=ranks)
    assert compute_samples_per_second(record) == pytest.approx(640 / 1.25)


@pytest.mark.parametrize("strategy", ["ps-async", "independent"])
def test_asynchronous_speeds_add_up(strategy: str) -> None:
    ranks = [make_rank(0, [0.1] * 10, 32), make_rank(1, [0.2] * 10, 32)]
    record = make_record(make_config(strategy=strategy), 2, ranks=ranks)
    assert compute_samples_per_second(record) == pytest.approx(320 / 1.0 + 320 / 2.0)


def test_a_synchronous_step_lasts_as_long_as_its_slowest_rank() -> None:
    record = make_record(devices=2, ranks=[make_rank(0, [1.0, 4.0, 2.0], 8), make_rank(1, [3.0, 1.0, 2.5], 8)])
    assert list_step_seconds(record) == [3.0, 4.0, 2.5]


def test_asynchronous_steps_are_all_kept() -> None:
    ranks = [make_rank(0, [1.0, 2.0], 8), make_rank(1, [3.0], 8)]
    record = make_record(make_config(strategy="independent"), 2, ranks=ranks)
    assert sorted(list_step_seconds(record)) == [1.0, 2.0, 3.0]


def test_jitter_is_of_cluster_wide_speed() -> None:
    # Two ranks of 50 images: 100 images in steps of 1 s, 2 s and 4 s: 100, 50 and 25 images/s.
    record = make_record(devices=2, ranks=[make_rank(rank, [1.0, 2.0, 4.0], 50) for rank in range(2)])
    assert compute_step_jitter(record) == pytest.approx(1.4826 * 25)


def test_jitter_of_independent_ranks_adds_in_quadrature() -> None:
    ranks = [make_rank(rank, [1.0, 2.0, 4.0], 100) for rank in range(2)]
    record = make_record(make_config(strategy="independent"), 2, ranks=ranks)
    assert compute_step_jitter(record) == pytest.approx(1.4826 * 25 * math.sqrt(2))


def test_a_trial_without_step_times_still_has_a_speed() -> None:
    record = make_record(ranks=[make_rank(0, [], 1, samples=100, window_seconds=2.0)])
    assert compute_samples_per_second(record) == 50
    assert compute_step_jitter(record) is None


def test_a_trial_without_samples_is_not_measured() -> None:
    assert not is_measured(make_record(ranks=()))
    assert not is_measured(make_record(ranks=[make_rank(0, [], 1)]))
    assert is_measured(make_record())


def test_synthetic_speed_is_that_of_the_slowest_ranks_resident_steps() -> None:
    ranks = [
        make_rank(rank, [0.1] * 10, 32, resident_steps=5, resident_seconds=seconds)
        for rank, seconds in enumerate((0.4, 0.5))
    ]
    record = make_record(make_config(data="cifar10"), 2, ranks=ranks)
    assert compute_resident_samples_per_second(record) == pytest.approx(320 / 0.5)
    assert compute_input_overhead(record) == pytest.approx(0.0)


def test_synthetic_speeds_of_asynchronous_ranks_add_up() -> None:
    ranks = [
        make_rank(rank, [0.1] * 10, 32, resident_steps=5, resident_seconds=seconds)
        for rank, seconds in enumerate((0.4, 0.5))
    ]
    record = make_record(make_config(data="cifar10", strategy="ps-async", servers=1), 2, ranks=ranks)
    assert compute_resident_samples_per_second(record) == pytest.approx(160 / 0.4 + 160 / 0.5)


def test_input_overhead_is_the_share_of_synthetic_speed_that_is_lost() -> None:
    rank = make_rank(0, [0.1] * 10, 32, resident_steps=10, resident_seconds=0.8)
    assert compute_input_overhead(make_record(make_config(data="mnist"), ranks=[rank])) == pytest.approx(0.2)


def test_without_resident_steps_there_is_no_overhead() -> None:
    assert compute_resident_samples_per_second(make_record()) is None
    assert compute_input_overhead(make_record()) is None


def test_the_rank_that_waited_most_speaks_for_the_trial() -> None:
    ranks = [make_rank(rank, [0.1] * 10, 32, waited_seconds=waited) for rank, waited in enumerate((0.02, 0.3))]
    assert compute_waiting_share(make_record(make_config(data="mnist"), 2, ranks=ranks)) == pytest.approx(0.3)


def test_nobody_waits_for_synthetic_images() -> None:
    assert compute_waiting_share(make_record(ranks=[make_rank(0, [0.1] * 10, 32, waited_seconds=0.0)])) is None
