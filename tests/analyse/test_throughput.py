"""The definitions of speed, checked on examples worked out by hand."""

import math

import pytest
from factories import make_config, make_rank, make_record

from trainscale.analyse.throughput import (
    Price,
    compute_energy_per_sample,
    compute_input_overhead,
    compute_samples_per_second,
    compute_step_jitter,
    compute_waiting_share,
    is_measured,
    list_step_seconds,
    parse_price,
)
from trainscale.errors import InputError


@pytest.mark.parametrize(
    ("strategy", "speed"),
    [
        ("local", 640 / 1.25),
        ("allreduce", 640 / 1.25),
        ("ps", 640 / 1.25),
        ("sharded", 640 / 1.25),
        ("ps-async", 320 / 1.0 + 320 / 1.25),
        ("independent", 320 / 1.0 + 320 / 1.25),
    ],
)
def test_synchronous_workers_share_the_longest_window_and_speeds_of_others_add_up(strategy: str, speed: float) -> None:
    ranks = [make_rank(0, [0.1] * 10, 32), make_rank(1, [0.125] * 10, 32)]
    record = make_record(make_config(strategy=strategy), 2, ranks=ranks)
    assert compute_samples_per_second(record) == pytest.approx(speed)


@pytest.mark.parametrize(
    ("strategy", "steps"), [("allreduce", [2.5, 3.0, 4.0]), ("independent", [1.0, 1.0, 2.0, 2.5, 3.0, 4.0])]
)
def test_a_synchronous_step_lasts_as_long_as_its_slowest_rank(strategy: str, steps: list[float]) -> None:
    ranks = [make_rank(0, [1.0, 4.0, 2.0], 8), make_rank(1, [3.0, 1.0, 2.5], 8)]
    assert sorted(list_step_seconds(make_record(make_config(strategy=strategy), 2, ranks=ranks))) == steps


@pytest.mark.parametrize(("strategy", "spread"), [("allreduce", 50.0), ("independent", 25 * math.sqrt(2))])
def test_jitter_is_of_cluster_wide_speed_or_adds_in_quadrature(strategy: str, spread: float) -> None:
    # Two ranks of 100 images in steps of 1 s, 2 s and 4 s: each 100, 50 and 25 images/s, together 200, 100 and 50.
    ranks = [make_rank(rank, [1.0, 2.0, 4.0], 100) for rank in range(2)]
    record = make_record(make_config(strategy=strategy), 2, ranks=ranks)
    assert compute_step_jitter(record) == pytest.approx(1.4826 * spread)


def test_a_trial_without_step_times_has_a_speed_and_one_without_samples_none() -> None:
    record = make_record(ranks=[make_rank(0, [], 1, samples=100, window_seconds=2.0)])
    assert compute_samples_per_second(record) == 50
    assert compute_step_jitter(record) is None
    assert not is_measured(make_record(ranks=()))
    assert not is_measured(make_record(ranks=[make_rank(0, [], 1)]))
    assert is_measured(make_record())


@pytest.mark.parametrize(("strategy", "speed"), [("allreduce", 320 / 0.5), ("ps-async", 160 / 0.4 + 160 / 0.5)])
def test_synthetic_speed_is_that_of_resident_steps(strategy: str, speed: float) -> None:
    ranks = [make_rank(n, [0.1] * 10, 32, resident_steps=5, resident_seconds=0.4 + 0.1 * n) for n in range(2)]
    record = make_record(make_config(data="cifar10", strategy=strategy), 2, ranks=ranks)
    assert compute_input_overhead(record) == pytest.approx(1 - compute_samples_per_second(record) / speed)


def test_what_the_input_costs_is_lost_speed_and_waiting() -> None:
    rank = make_rank(0, [0.1] * 10, 32, resident_steps=10, resident_seconds=0.8)
    assert compute_input_overhead(make_record(make_config(data="mnist"), ranks=[rank])) == pytest.approx(0.2)
    assert compute_input_overhead(make_record()) is None
    ranks = [make_rank(rank, [0.1] * 10, 32, waited_seconds=waited) for rank, waited in enumerate((0.02, 0.3))]
    assert compute_waiting_share(make_record(make_config(data="mnist"), 2, ranks=ranks)) == pytest.approx(0.3)
    assert compute_waiting_share(make_record(devices=2, ranks=ranks)) is None


# ---- prices and energy


@pytest.mark.parametrize(
    ("text", "price", "per_second"),
    [
        ("36/host-hour", Price(36.0, "host"), 0.02),
        ("36.0/device-hour", Price(36.0, "device"), 0.16),
        (" .5/Device-Hour ", Price(0.5, "device"), 8 / 3600),
    ],
)
def test_a_price_has_an_amount_and_counts_hosts_or_devices(text: str, price: Price, per_second: float) -> None:
    assert parse_price(text) == price
    assert price.compute_price_per_second(devices=16, hosts=2) == pytest.approx(per_second)


@pytest.mark.parametrize("text", ["32.77", "2.5/hour", "x/host-hour", "0/host-hour", "-1/host-hour", "", "1/gpu-hour"])
def test_what_is_no_price_is_refused_and_the_valid_forms_are_named(text: str) -> None:
    with pytest.raises(InputError, match=r"32\.77/host-hour or 2\.5/device-hour"):
        parse_price(text)


@pytest.mark.parametrize(
    ("joules", "device", "hosts", "expected"),
    [
        ((300.0, 200.0), "cuda", 1, 5.0),
        ((300.0, None), "cuda", 1, None),  # a GPU that was not counted
        ((500.0, None), "cpu", 1, 5.0),  # one rank counts its host
        ((500.0, None), "cpu", 2, None),
        ((None, None), "cpu", 1, None),
    ],
)
def test_energy_needs_every_count(
    joules: tuple[float | None, ...], device: str, hosts: int, expected: float | None
) -> None:
    ranks = [make_rank(rank, [0.1] * 5, 10, energy_joules=value) for rank, value in enumerate(joules)]
    record = make_record(make_config(device=device, batch=10), len(joules), ranks=ranks, hosts=hosts)
    assert compute_energy_per_sample(record) == (None if expected is None else pytest.approx(expected))
