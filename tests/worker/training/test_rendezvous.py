"""Where the workers of a trial meet: real sockets, workers as threads or as processes."""

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from processes import until

from trainscale.worker.training import rendezvous as module
from trainscale.worker.training.rendezvous import Rendezvous

HERE = "127.0.0.1"
SECRET = "only-for-this-trial"


@pytest.fixture
def port() -> int:
    with socket.socket() as unused:
        unused.bind((HERE, 0))
        return int(unused.getsockname()[1])


@pytest.fixture
def meet(port: int, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], list[Rendezvous]]]:
    """Join so many workers; all sockets are closed at the end."""
    servers: list[Any] = []
    joined: list[Rendezvous] = []

    class RendezvousProcess(module._Server):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            servers.append(self)

        def _serve(self, connection: socket.socket, rank: int) -> None:
            with connection:
                super()._serve(connection, rank)

    def gather(workers: int) -> list[Rendezvous]:
        with ThreadPoolExecutor(workers) as pool:
            # Rank 0 comes last: the others must wait for it.
            joining = [pool.submit(Rendezvous, HERE, port, rank, workers, SECRET) for rank in reversed(range(workers))]
            joined.extend(future.result(timeout=60) for future in reversed(joining))
        return joined

    monkeypatch.setattr(module, "_Server", RendezvousProcess)
    yield gather
    for used in (*joined, *servers):
        used._socket.close()


def all_at_once(ranks: list[Rendezvous], call: Callable[[Rendezvous, int], Any]) -> list[Any]:
    with ThreadPoolExecutor(len(ranks)) as pool:
        futures = [pool.submit(call, rendezvous, rank) for rank, rendezvous in enumerate(ranks)]
        return [future.result(timeout=60) for future in futures]


def test_everybody_gets_the_values_of_all_in_order_of_rank_again_and_again_under_the_same_name(meet) -> None:
    def talk(rendezvous: Rendezvous, rank: int) -> list[list[Any]]:
        return [rendezvous.exchange("pace", (number, rank)) for number in range(50)]

    for answers in all_at_once(meet(3), talk):
        assert answers == [[[number, rank] for rank in range(3)] for number in range(50)]


def test_nobody_waits_to_say_that_they_are_here_and_may_be_ahead_of_the_others(meet) -> None:
    first, second = meet(2)
    first.arrive("finished", "a")
    first.arrive("leave", 1)
    assert not first.has_everyone_arrived("finished")
    assert not second.has_everyone_arrived("finished")
    second.arrive("leave", 2)
    second.arrive("finished", "b")
    # An exchange is answered after the arrivals: once it is, both must know of them.
    assert all_at_once([first, second], lambda rendezvous, rank: rendezvous.exchange("end", rank)) == [[0, 1]] * 2
    for rendezvous in (first, second):
        assert rendezvous.has_everyone_arrived("leave")
        assert rendezvous.has_everyone_arrived("finished")


def test_large_values_come_whole(meet) -> None:
    answers = all_at_once(meet(2), lambda rendezvous, rank: rendezvous.exchange("big", str(rank) * 300_000))
    assert answers == [["0" * 300_000, "1" * 300_000]] * 2


def test_one_worker_needs_no_socket() -> None:
    alone = Rendezvous("host.invalid", 1, 0, 1)
    assert alone._socket is None
    assert alone.exchange("pace", 7) == [7]
    assert not alone.has_everyone_arrived("finished")
    alone.arrive("finished")
    assert alone.has_everyone_arrived("finished")


_RANK_0 = """
import sys
from trainscale.worker.training.rendezvous import Rendezvous
rendezvous = Rendezvous("127.0.0.1", int(sys.argv[1]), 0, 2)
rendezvous.exchange("start")
print("started", flush=True)
sys.stdin.read()
"""


@pytest.mark.processes
def test_a_host_that_is_gone_is_noticed_and_ends_the_wait_of_the_others(port: int) -> None:
    """Rank 0 is a process, and is killed after everybody has started."""
    command = [sys.executable, "-c", _RANK_0, str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as host:
        rendezvous = Rendezvous(HERE, port, 1, 2)
        assert rendezvous.exchange("start") == [None, None]
        assert host.stdout is not None
        assert host.stdout.readline() == "started\n"
        host.kill()
        host.wait()
    assert rendezvous._socket is not None
    with rendezvous._socket:
        with pytest.raises(ConnectionError, match="rank 0 left the rendezvous"):
            rendezvous.has_everyone_arrived("finished")
        with pytest.raises(ConnectionError):
            rendezvous.exchange("leave")


def test_a_taken_port_is_an_error_that_says_so(port: int) -> None:
    with socket.create_server(("", port)), pytest.raises(OSError, match="already in use"):
        Rendezvous(HERE, port, 0, 2)


def answer_to(port: int, sent: bytes) -> bytes:
    """Return what rank 0 answers to a stranger; nothing if it closes the connection."""
    with socket.create_connection((HERE, port), 10) as stranger:
        stranger.sendall(sent)
        stranger.settimeout(20)
        try:
            return stranger.recv(100)
        except ConnectionResetError:
            return b""


def wait_until_listening(port: int) -> None:
    until(lambda: f":{port:04X} 00000000:0000 0A" in Path("/proc/net/tcp").read_text(), "rank 0 to listen", 10)


@pytest.mark.parametrize(
    "sent",
    [
        b"a-wrong-secret 1\n",
        b" 1\n",
        b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
        b"\xff\xfe\x00\n",
        f"{SECRET}\n".encode(),
        f"{SECRET} 2\n".encode(),
        f"{SECRET} -1\n".encode(),
        b'["start", 1, null]\n',
        b"a" * 5000,
    ],
    ids=["wrong secret", "no secret", "a browser", "no text", "no rank", "no such rank", "a rank below zero",
         "a value without a greeting", "too long"],
)  # fmt: skip
def test_who_does_not_know_the_secret_takes_no_part(meet, port: int, sent: bytes) -> None:
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(Rendezvous, HERE, port, 0, 2, SECRET)
        wait_until_listening(port)
        assert answer_to(port, sent) == b""
        second = Rendezvous(HERE, port, 1, 2, SECRET)
    expect_that_they_talk([first.result(timeout=60), second])


def expect_that_they_talk(ranks: list[Any]) -> None:
    answers = all_at_once(ranks, lambda rendezvous, rank: rendezvous.exchange("start", rank))
    assert answers == [[0, 1]] * 2
    for rendezvous in ranks:
        rendezvous._socket.close()


def test_strangers_who_hold_the_line_do_not_keep_ranks_out(meet, port: int) -> None:
    """More of them than are tolerated at once, half of them in the middle of a line."""
    with ThreadPoolExecutor(1) as pool, ExitStack() as stack:
        first = pool.submit(Rendezvous, HERE, port, 0, 2, SECRET)
        wait_until_listening(port)
        for number in range(600):
            stranger = stack.enter_context(socket.create_connection((HERE, port), 10))
            stranger.sendall(b"hello" * (number % 2))
        second = Rendezvous(HERE, port, 1, 2, SECRET)
        expect_that_they_talk([first.result(timeout=60), second])


def test_nobody_listens_once_all_ranks_are_there(meet, port: int) -> None:
    meet(3)
    until(lambda: is_refused(port), "the rendezvous to close its port", 10)


def is_refused(port: int) -> bool:
    try:
        socket.create_connection((HERE, port), 10).close()
    except ConnectionRefusedError:
        return True
    return False
