"""Prices and energy."""

from __future__ import annotations

import pytest
from factories import make_config, make_rank, make_record

from trainscale.analyse.throughput import Price, compute_energy_per_sample, parse_price
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
