"""On which addresses trainscale listens, and how it reads the greetings of callers. Real sockets."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from trainscale.worker import listening
from trainscale.worker.listening import GreetingReader, find_free_ports, listen


@pytest.mark.parametrize(
    ("called", "bound"),
    [
        ("127.0.0.2", "127.0.0.2"),
        ("192.0.2.1", "0.0.0.0"),
        ("a-name.invalid", "0.0.0.0"),
        ("localhost", "0.0.0.0"),
        ("", "0.0.0.0"),
        ("::1", "::1"),
    ],
    ids=["its own address", "an address that is translated on the way", "a name", "a name for itself", "none", "IPv6"],
)
def test_only_the_address_that_others_call_is_open_where_that_is_known(called: str, bound: str) -> None:
    with listen(called) as listener:
        assert listener.getsockname()[0] == bound


def test_a_name_is_bound_to_the_address_it_stands_for(monkeypatch: pytest.MonkeyPatch) -> None:
    own = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: own)
    assert listening._find_own_address("login1") == "192.0.2.7"
    several = [*own, (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("198.51.100.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: several)
    assert listening._find_own_address("login1") == ""


@pytest.fixture
def reader() -> Iterator[GreetingReader]:
    reader = GreetingReader(listen("127.0.0.1"))
    yield reader
    reader.close()


def call(reader: GreetingReader, sent: bytes) -> socket.socket:
    connection = socket.create_connection(reader._server.getsockname(), 10)
    connection.sendall(sent)
    return connection


def next_greeting(reader: GreetingReader, seconds: float = 20.0) -> bytes:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        greeting = reader.wait_for_greeting(0.1)
        if greeting is not None:
            greeting.connection.close()
            return greeting.received
    return b""


def test_a_greeting_may_come_in_pieces_while_others_say_nothing(reader: GreetingReader) -> None:
    with call(reader, b""), call(reader, b"half") as slow:
        for _ in range(3):
            reader.wait_for_greeting(0.1)
        slow.sendall(b" and half\n")
        assert next_greeting(reader) == b"half and half\n"


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(20)
    return connection.recv(1) == b""


def test_those_who_say_nothing_and_the_oldest_of_very_many_are_closed(
    reader: GreetingReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch, call(reader, b"") as silent:
        patch.setattr(listening, "_GREETING_SECONDS", 0.0)
        for _ in range(3):
            reader.wait_for_greeting(0.1)
        assert is_closed(silent)
    monkeypatch.setattr(listening, "_MOST_STRANGERS", 5)
    with ExitStack() as stack:
        strangers = [stack.enter_context(call(reader, b"")) for _ in range(8)]
        while len(reader._strangers) < 5:
            reader.wait_for_greeting(0.1)
        for _ in range(8):
            reader.wait_for_greeting(0)
        assert all(map(is_closed, strangers[:3]))
        strangers[-1].sendall(b"hello\n")
        assert next_greeting(reader) == b"hello\n"


def test_greetings_that_arrive_together_are_all_returned(reader: GreetingReader) -> None:
    with ExitStack() as stack:
        for number in range(20):
            stack.enter_context(call(reader, b"%d\n" % number))
        assert {next_greeting(reader) for _ in range(20)} == {b"%d\n" % number for number in range(20)}


def test_free_ports_are_all_different_and_can_be_used_and_are_not_those_of_outgoing_connections() -> None:
    """A peer that calls too early, again and again, would be given the port it calls for its own end."""
    ports = find_free_ports(50)
    assert len(set(ports)) == 50
    for port in ports:
        with socket.socket() as listener:
            listener.bind(("", port))
    low, high = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not any(low <= port <= high for port in ports)


def test_a_port_in_use_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as busy:
        taken = busy.getsockname()[1]
        free = find_free_ports(1)[0]
        monkeypatch.setattr(listening.random, "sample", lambda _, k: [taken, free])
        assert find_free_ports(1) == [free]
        monkeypatch.setattr(listening.random, "sample", lambda _, k: [taken])
        with pytest.raises(OSError, match="free ports"):
            find_free_ports(1)
