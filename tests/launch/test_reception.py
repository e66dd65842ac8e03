"""Who is let in where keepers call back, and who is sent away."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from processes import until

from trainscale.launch.connections.callback_server import CallbackServer

TOKEN = "the-right-word"


@pytest.fixture
def reception() -> Iterator[CallbackServer]:
    one = CallbackServer(TOKEN, lambda caller: ["host0", "host1"][check(caller.index)], expected=2)
    yield one
    one.close()


def check(index: int) -> int:
    if index < 0:
        raise LookupError(index)
    return index


def call(reception: CallbackServer, said: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", reception.port), 10)
    connection.sendall(said)
    return connection


def sent_away(connection: socket.socket) -> bool:
    with connection:
        connection.settimeout(20)
        try:
            return connection.recv(1) == b""
        except ConnectionResetError:
            return True


@pytest.mark.parametrize(
    "said",
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
def test_strangers_are_sent_away_and_keepers_still_come_in(reception: CallbackServer, said: bytes) -> None:
    assert sent_away(call(reception, said))
    with call(reception, f"{TOKEN} 0 somewhere\n".encode()):
        caller = reception.take("host0", 10)
        assert caller is not None
        assert (caller.index, caller.hostname, caller.address) == (0, "somewhere", "127.0.0.1")
        caller.connection.close()


def test_one_that_says_nothing_does_not_keep_the_others_waiting(reception: CallbackServer) -> None:
    with call(reception), call(reception, b"half a gree"), call(reception, f"{TOKEN} 1 there\n".encode()):
        caller = reception.take("host1", 5)
        assert caller is not None
        caller.connection.close()


def test_one_that_leaves_while_greeting_is_forgotten(reception: CallbackServer) -> None:
    call(reception, b"half").close()
    with call(reception, f"{TOKEN} 1 there\n".encode()):
        caller = reception.take("host1", 10)
        assert caller is not None
        caller.connection.close()


def test_a_host_that_calls_twice_is_let_in_once(reception: CallbackServer) -> None:
    first = call(reception, f"{TOKEN} 0 here\n".encode())
    assert len(reception.callers(1, 10)) == 1
    assert sent_away(call(reception, f"{TOKEN} 0 here\n".encode()))
    caller = reception.take("host0", 10)
    assert caller is not None
    assert sent_away(call(reception, f"{TOKEN} 0 here\n".encode()))
    caller.connection.sendall(b"for the first")
    with first:
        assert first.recv(100) == b"for the first"
    caller.connection.close()


def test_nobody_is_let_in_once_all_have_called(reception: CallbackServer) -> None:
    both = [call(reception, f"{TOKEN} {number} here\n".encode()) for number in (0, 1)]
    callers = [reception.take(f"host{number}", 10) for number in (0, 1)]
    until(lambda: refused(reception.port), "the door to close", 10)
    for caller in callers:
        assert caller is not None
        caller.connection.close()
    for one in both:
        one.close()


def refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_two_hundred_keepers_may_call_at_once() -> None:
    reception = CallbackServer(TOKEN, lambda caller: f"host{caller.index}", expected=200)
    strangers = [call(reception) for _ in range(20)]
    connections: list[socket.socket] = []
    begin = threading.Barrier(20)

    def crowd(first: int) -> None:
        begin.wait()
        connections.extend(call(reception, f"{TOKEN} {number} here\n".encode()) for number in range(first, 200, 20))

    threads = [threading.Thread(target=crowd, args=(first,)) for first in range(20)]
    for thread in threads:
        thread.start()
    try:
        callers = [reception.take(f"host{number}", 30) for number in range(200)]
        assert [caller.index for caller in callers if caller] == list(range(200))
        for caller in callers:
            assert caller is not None
            caller.connection.close()
    finally:
        for thread in threads:
            thread.join()
        reception.close()
        for one in (*connections, *strangers):
            one.close()


def test_those_who_wait_are_sent_away_when_the_reception_closes() -> None:
    reception = CallbackServer(TOKEN, lambda caller: str(caller.index))
    waiting = call(reception, f"{TOKEN} 7 here\n".encode())
    assert reception.callers(1, 10)[0].index == 7
    reception.close()
    assert sent_away(waiting)
    assert reception.take("7", 0) is None or reception.take("8", 0) is None


def test_one_that_is_lent_may_call_again_and_again() -> None:
    """As the hosts of a whole run do: without an expected number, a name is free once its caller was taken."""
    reception = CallbackServer(TOKEN, lambda caller: str(caller.index))
    try:
        for _ in range(3):
            with call(reception, f"{TOKEN} 7 here and more\n".encode()):
                caller = reception.take("7", 10)
                assert caller is not None
                assert caller.more == ("and", "more")
                caller.connection.close()
    finally:
        reception.close()
