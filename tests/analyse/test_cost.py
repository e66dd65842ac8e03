"""Prices, and what further devices cost for each image gained."""

from __future__ import annotations

import math

import pytest
from factories import make_config, make_rank, make_record

from trainscale.analyse.cost import Price, Rung, compute_energy_per_sample, compute_step_cost, parse_price
from trainscale.errors import InputError
from trainscale.record.trial import TrialRecord


@pytest.mark.parametrize(
    ("text", "price"),
    [
        ("32.77/host-hour", Price(32.77, "host")),
        ("2.5/device-hour", Price(2.5, "device")),
        (" .5/Device-Hour ", Price(0.5, "device")),
    ],
)
def test_a_price_has_an_amount_and_a_unit(text: str, price: Price) -> None:
    assert parse_price(text) == price


@pytest.mark.parametrize("text", ["32.77", "2.5/hour", "x/host-hour", "0/host-hour", "-1/host-hour", "", "1/gpu-hour"])
def test_what_is_no_price_is_refused_and_the_valid_forms_are_named(text: str) -> None:
    with pytest.raises(InputError, match=r"32\.77/host-hour or 2\.5/device-hour"):
        parse_price(text)


def test_a_price_counts_hosts_or_devices() -> None:
    assert Price(36.0, "host").compute_price_per_second(devices=16, hosts=2) == pytest.approx(0.02)
    assert Price(36.0, "device").compute_price_per_second(devices=16, hosts=2) == pytest.approx(0.16)


def test_perfect_scaling_costs_for_each_image_what_one_cost_before() -> None:
    step = compute_step_cost(Rung(2, 1, [100, 100, 100]), Rung(4, 1, [200, 200, 200]), Price(3.6, "device"))
    assert step.gained.mean == 100
    assert step.factor.mean == pytest.approx(1.0)
    assert step.cost_per_million is not None
    assert step.cost_per_million.mean == pytest.approx(2 * 0.001 / 100 * 1e6)


def test_half_the_gain_doubles_the_cost_of_an_image_gained() -> None:
    step = compute_step_cost(Rung(2, 1, [99, 100, 101]), Rung(4, 1, [149, 150, 151]))
    assert step.factor.mean == pytest.approx(2.0)
    assert step.factor.low is not None
    assert step.factor.high is not None
    assert step.factor.low < 2.0 < step.factor.high
    assert step.cost_per_million is None


def test_a_gain_that_may_be_nothing_has_no_upper_limit_of_its_cost() -> None:
    step = compute_step_cost(Rung(2, 1, [90, 100, 110]), Rung(4, 1, [95, 105, 115]))
    assert step.factor.high == math.inf
    assert math.isfinite(step.factor.mean)


def test_a_loss_has_no_cost_of_a_gain() -> None:
    step = compute_step_cost(Rung(2, 1, [100, 101, 102]), Rung(4, 1, [80, 81, 82]))
    assert step.gained.mean == pytest.approx(-20)
    assert step.factor.mean == math.inf


def test_more_devices_of_the_same_host_cost_nothing_more_by_host_hour() -> None:
    step = compute_step_cost(Rung(2, 1, [100]), Rung(4, 1, [150]), Price(3.6, "host"))
    assert (step.factor.mean, step.cost_per_million and step.cost_per_million.mean) == (0, 0)


# ---- energy


def counted(joules: tuple[float | None, ...], device: str, hosts: int = 1) -> TrialRecord:
    config = make_config(device=device, batch=10)
    ranks = [make_rank(rank, [0.1] * 5, 10, energy_joules=value) for rank, value in enumerate(joules)]
    return make_record(config, len(joules), ranks=ranks, hosts=hosts)


def test_the_energy_of_a_sample_is_that_of_all_gpus() -> None:
    assert compute_energy_per_sample(counted((300.0, 200.0), "cuda")) == pytest.approx(5.0)


def test_a_gpu_that_was_not_counted_makes_the_energy_unknown() -> None:
    assert compute_energy_per_sample(counted((300.0, None), "cuda")) is None


def test_on_cpus_one_rank_counts_its_host() -> None:
    assert compute_energy_per_sample(counted((500.0, None), "cpu")) == pytest.approx(5.0)
    assert compute_energy_per_sample(counted((500.0, None), "cpu", hosts=2)) is None
    assert compute_energy_per_sample(counted((None, None), "cpu")) is None
