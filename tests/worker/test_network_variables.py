"""The variables that tell frameworks about the network. test_frameworks_over_hosts.py tests their effect."""

from __future__ import annotations

import pytest
from jobs import make_job

from trainscale.worker.frameworks.network_variables import make_network_variables
from trainscale.worker.job import Job


def job(interface: str | None) -> Job:
    return make_job("allreduce", workers=3, addresses=("10.0.0.1", "10.0.0.1", "10.0.0.2"), interface=interface)


@pytest.fixture(autouse=True)
def _no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


def test_gloo_and_nccl_are_told_the_interface_by_its_whole_name() -> None:
    """NCCL would take eth10 for eth1 without the sign."""
    assert make_network_variables(job("eth1")) == {"GLOO_SOCKET_IFNAME": "eth1", "NCCL_SOCKET_IFNAME": "=eth1"}


def test_without_an_interface_nothing_is_said() -> None:
    assert make_network_variables(job(None)) == {}


@pytest.mark.parametrize("name", ["grpc_proxy", "https_proxy", "http_proxy"])
def test_peers_are_called_directly_where_the_environment_names_a_proxy(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "http://proxy.example:3128")
    assert make_network_variables(job(None)) == {"no_grpc_proxy": "10.0.0.1,10.0.0.2"}


def test_an_empty_proxy_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "")
    assert make_network_variables(job(None)) == {}
