"""Which connections are accepted where keepers call back, and which are closed."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from processes import until

from trainscale.launch.callback import CallbackServer, Caller

TOKEN = "the-right-word"


@pytest.fixture
def server() -> Iterator[CallbackServer]:
    server = CallbackServer(TOKEN, lambda caller: ["host0", "host1"][check(caller.index)], expected=2)
    yield server
    server.close()


def check(index: int) -> int:
    if index < 0:
        raise LookupError(index)
    return index


def call(server: CallbackServer, sent: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", server.port), 10)
    connection.sendall(sent)
    return connection


@contextmanager
def accepted(server: CallbackServer, host: str) -> Iterator[Caller]:
    caller = server.take(host, 20)
    assert caller is not None
    with caller.connection:
        yield caller


def is_closed(connection: socket.socket) -> bool:
    with connection:
        connection.settimeout(20)
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.mark.parametrize(
    "sent",
    [
        b"the-wrong-word 0 somewhere\n",
        b"\n",
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\xff\xfe\x00\n",
        "the-right-wörd 0 somewhere\n".encode(),
        f"{TOKEN}\n".encode(),
        f"{TOKEN} one somewhere\n".encode(),
        f"{TOKEN} 2 somewhere\n".encode(),
        f"{TOKEN} -1 somewhere\n".encode(),
        f"{TOKEN} 0 somewhere\nand more".encode(),
        b"a" * 5000,
    ],
    ids=["wrong token", "nothing", "a browser", "no text", "not ASCII", "no number", "no whole number",
         "no such number", "a number below zero", "more than was asked for", "too long"],
)  # fmt: skip
def test_wrong_callers_are_closed_and_keepers_are_still_accepted(server: CallbackServer, sent: bytes) -> None:
    assert is_closed(call(server, sent))
    with call(server, f"{TOKEN} 0 somewhere\n".encode()), accepted(server, "host0") as caller:
        assert (caller.index, caller.hostname, caller.address) == (0, "somewhere", "127.0.0.1")


def test_those_that_send_nothing_or_leave_early_do_not_delay_the_others(server: CallbackServer) -> None:
    call(server, b"half").close()
    right = f"{TOKEN} 1 there\n".encode()
    with call(server), call(server, b"half a gree"), call(server, right), accepted(server, "host1"):
        pass


def test_a_host_that_calls_twice_is_accepted_once(server: CallbackServer) -> None:
    first = call(server, f"{TOKEN} 0 here\n".encode())
    assert len(server.wait_for_callers(1, 10)) == 1
    assert is_closed(call(server, f"{TOKEN} 0 here\n".encode()))
    with first, accepted(server, "host0") as caller:
        assert is_closed(call(server, f"{TOKEN} 0 here\n".encode()))
        caller.connection.sendall(b"for the first")
        assert first.recv(100) == b"for the first"


def test_nobody_is_let_in_once_all_have_called(server: CallbackServer) -> None:
    first, second = (call(server, f"{TOKEN} {number} here\n".encode()) for number in (0, 1))
    with first, second, accepted(server, "host0"), accepted(server, "host1"):
        until(lambda: refused(server.port), "the door to close", 10)


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_those_who_wait_are_closed_with_the_server() -> None:
    server = CallbackServer(TOKEN, lambda caller: str(caller.index))
    waiting = call(server, f"{TOKEN} 7 here\n".encode())
    assert server.wait_for_callers(1, 10)[0].index == 7
    server.close()
    assert is_closed(waiting)
    assert server.take("7", 0) is None or server.take("8", 0) is None


def test_a_caller_may_state_the_address_by_which_others_reach_it(server: CallbackServer) -> None:
    with call(server, f"{TOKEN} 0 here\n".encode()), accepted(server, "host0") as caller:
        assert caller.address == "127.0.0.1"
    with call(server, f"{TOKEN} 1 here 10.0.0.7\n".encode()), accepted(server, "host1") as caller:
        assert caller.address == "10.0.0.7"


def test_keepers_are_accepted_among_more_strangers_than_are_tolerated(server: CallbackServer) -> None:
    strangers = [call(server, b"garbage" * (number % 3)) for number in range(600)]
    first, second = (call(server, f"{TOKEN} {number} here\n".encode()) for number in (0, 1))
    with first, second, accepted(server, "host0"), accepted(server, "host1"):
        pass
    for stranger in strangers:
        stranger.close()
