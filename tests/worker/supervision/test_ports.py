"""Ports that are free on a host."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from trainscale.worker.supervision import ports as module
from trainscale.worker.supervision.ports import find_free_ports


def test_free_ports_are_all_different_and_can_be_used() -> None:
    ports = find_free_ports(20)
    assert len(set(ports)) == 20
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("", port))


def test_free_ports_are_not_those_of_outgoing_connections() -> None:
    """A peer that calls too early, again and again, would be given the port it calls for its own end."""
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(low <= port <= high for port in find_free_ports(50))


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        free = find_free_ports(1)[0]
        monkeypatch.setattr(module.random, "sample", lambda _, k: [taken, free])
        assert find_free_ports(1) == [free]
        monkeypatch.setattr(module.random, "sample", lambda _, k: [taken])
        with pytest.raises(OSError, match="free ports"):
            find_free_ports(1)
