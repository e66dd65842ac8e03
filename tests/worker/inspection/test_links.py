"""Bandwidth and latency round a ring: every link is measured, and one that fails does not spoil the others."""

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest
from jobs import decode

from trainscale.launch.launchers.base import START
from trainscale.launch.survey import sends_first
from trainscale.worker.events import Links
from trainscale.worker.inspection import links
from trainscale.worker.inspection.links import LinksRequest, measure
from trainscale.worker.listening import GreetingReader, find_free_ports, listen

TOKEN = "a token that nobody guesses"


@pytest.fixture(autouse=True)
def _short_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is measured need not be precise here."""
    monkeypatch.setattr(links, "_WARM_SECONDS", 0.01)
    monkeypatch.setattr(links, "_WINDOW_SECONDS", 0.04)


def requests(ports: Sequence[int], seconds: float = 30.0) -> list[LinksRequest]:
    here, following = "127.0.0.1", [*ports[1:], ports[0]]
    return [
        LinksRequest(here, port, here, next_port, sends_first(number, len(ports)), TOKEN, seconds)
        for number, (port, next_port) in enumerate(zip(ports, following, strict=True))
    ]


def measure_all(ring: Sequence[LinksRequest]) -> list[Links]:
    with ThreadPoolExecutor(len(ring)) as pool:
        return list(pool.map(measure, ring))


@pytest.mark.parametrize("count", [2, 3, 4, 5])
def test_every_link_of_a_ring_is_measured(count: int) -> None:
    for answer in measure_all(requests(find_free_ports(count))):
        assert (answer.send_error, answer.receive_error) == ("", "")
        assert (answer.bits_per_second or 0) > 1e6
        assert (answer.round_trip_seconds or 0) > 0


@pytest.mark.parametrize("count", [2, 3, 4, 5, 16, 17])
def test_no_host_waits_for_ever(count: int) -> None:
    """Of two neighbours one sends first where that is possible, and some pair always can begin."""
    order = [sends_first(number, count) for number in range(count)]
    both = [n for n in range(count) if order[n] and order[(n + 1) % count]]
    assert both == []
    assert order[0]
    assert not order[-1]


def test_a_link_that_fails_does_not_spoil_the_others() -> None:
    ports = find_free_ports(4)
    ring = requests(ports[:3], seconds=2.0)
    ring[0] = replace(ring[0], next_port=ports[3])  # nobody listens there
    first, second, third = measure_all(ring)
    assert first.send_error == "Connection refused"
    assert (first.bits_per_second or 0) > 0
    assert second.receive_error == "no answer in time"
    assert (second.round_trip_seconds or 0) > 0
    assert (third.bits_per_second or 0) > 0


def test_an_address_that_is_not_the_hosts_is_told() -> None:
    request = requests(find_free_ports(1))[0]
    answer = measure(replace(request, address="192.0.2.1"))
    assert answer.send_error == answer.receive_error == "Cannot assign requested address"


def test_strangers_are_sent_away() -> None:
    ports = find_free_ports(2)
    first, second = requests(ports)
    with ThreadPoolExecutor(3) as pool:
        waiting = pool.submit(measure, second)  # receives first

        def intrude() -> bytes:
            while True:
                try:
                    with socket.create_connection(("127.0.0.1", ports[1]), 30) as line:
                        line.sendall(b"x" * len(TOKEN) + b"\n")
                        return line.recv(1)
                except ConnectionRefusedError:
                    continue

        assert intrude() == b""
        assert pool.submit(measure, first).result().round_trip_seconds
        assert waiting.result().bits_per_second


@pytest.mark.processes
def test_as_a_role_of_the_worker_it_prints_one_event() -> None:
    processes = [
        subprocess.Popen(
            [sys.executable, str(START), "links"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    ring = requests(find_free_ports(2))
    for process, request in zip(processes, ring, strict=True):
        assert process.stdin is not None
        process.stdin.write(json.dumps(vars(request)) + "\n")
        process.stdin.flush()
    for process in processes:
        out, _ = process.communicate(timeout=60)
        event = decode(out.strip())
        assert event is not None
        assert event["kind"] == "links"
        assert event["bits_per_second"] > 0


def test_strangers_who_hold_the_line_do_not_delay_the_neighbour() -> None:
    """They called before it did, and send nothing, half a token or garbage."""
    callers = GreetingReader(listen("127.0.0.1"))
    at = callers._server.getsockname()
    with ExitStack() as stack:
        for number in range(30):
            stranger = stack.enter_context(socket.create_connection(at, 10))
            stranger.sendall([b"", b"half", b"x" * 100][number % 3])
        neighbour = stack.enter_context(socket.create_connection(at, 10))
        neighbour.sendall(TOKEN.encode() + b"\n")
        with links._accept(callers, TOKEN, 5.0) as accepted:
            accepted.sendall(b"f")
            assert neighbour.recv(1) == b"f"
    callers.close()
