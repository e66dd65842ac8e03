"""Keepers as the controller holds them: becoming ready, being given up, being ended, and what is said of failures."""

import os
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest
from keepers import ThisMachineLauncher, events_of, read_until, ready, start_task, try_ready
from processes import is_living, until

from trainscale.launch.connected_hosts import ask_all, wait_for_futures
from trainscale.launch.connection import (
    HostError,
    KeeperConnection,
    PipeConnection,
    narrow_clock_bounds,
    select_causes,
    stop_all,
)
from trainscale.worker.events import Deadline, Exit, LogLine
from trainscale.worker.job import SignalRequest, encode_request


@pytest.fixture
def opened() -> Iterator[list[KeeperConnection]]:
    """Whatever a test puts in here is ended."""
    keepers: list[KeeperConnection] = []
    yield keepers
    stop_all(keepers, 2.0)


def alive(keeper: KeeperConnection) -> bool:
    assert isinstance(keeper, PipeConnection)
    return is_living(keeper.pid)


def start(
    opened: list[KeeperConnection], hosts: Sequence[str], folder: Path | None = None, **instead: str
) -> list[KeeperConnection]:
    opened += ThisMachineLauncher(hosts, instead, folder).open(hosts)
    return opened


@pytest.mark.processes
def test_keepers_of_many_hosts_become_ready_together_each_with_its_ports(
    opened: list[KeeperConnection], tmp_path: Path
) -> None:
    hosts = ["a", "b", "c"]
    start(opened, hosts, tmp_path)
    ports_by_host = ready(opened, {"a": 1, "b": 3})
    assert {host: len(ports) for host, ports in ports_by_host.items()} == {"a": 1, "b": 3, "c": 0}
    assert list(ports_by_host) == hosts
    start(opened, ["a"], tmp_path)  # a worker that is there is not copied again
    ready(opened[3:], {})
    assert [keeper.copied for keeper in opened] == [True, True, True, False]


@pytest.mark.processes
def test_a_clock_is_compared_within_the_time_that_an_answer_takes(opened: list[KeeperConnection]) -> None:
    start(opened, ["a"])
    try_ready(opened, {})
    assert opened[0].clock_ahead_seconds is not None
    least, most = opened[0].clock_ahead_seconds
    assert least <= 0 <= most


def test_slow_answers_do_not_blur_a_clock_that_a_quick_one_has_shown() -> None:
    """Each answer bounds the difference; all bounds hold together."""
    bounds = [(-9.0, -7.4), (-7.51, -7.49), (-8.0, -2.0)]
    assert narrow_clock_bounds(bounds) == (-7.51, -7.49)
    assert narrow_clock_bounds([(-1.0, -0.9), (0.4, 0.5)]) == (0.4, 0.5)  # the clock was set in between


@pytest.mark.processes
@pytest.mark.parametrize(
    "greeting",
    [
        "echo Welcome to this host; echo; echo '@trainscale is a fine program'",
        "printf 'prompt> '",
        "seq 150",
        "yes complaint | head -c 300000 >&2",  # more than a pipe holds
    ],
)
def test_what_a_login_shell_prints_does_no_harm(greeting: str, opened: list[KeeperConnection]) -> None:
    start(opened, ["a"], a=greeting)
    assert len(ready(opened, {"a": 2}, 60.0)["a"]) == 2


REFUSED = "ssh: connect to host a port 22: Connection refused"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("instead", "why"),
    [
        (f"echo '{REFUSED}' >&2; exit 255", "connection refused: nothing listens on its port 22"),
        ("echo This account is currently not available.; exit 1", "This account is currently not available."),
        ("exit 0", "the connection ended without a message"),
        ("echo one >&2; echo two >&2; exit 1", "two"),
        ("kill -9 $$", "the connection ended without a message"),
        ("exec yes hello", "answers, but not as a keeper does: hello"),
    ],
)
def test_a_host_without_a_keeper_is_explained_by_its_last_words(
    instead: str, why: str, opened: list[KeeperConnection]
) -> None:
    start(opened, ["a"], a=instead)
    problem = try_ready(opened, {}, 60.0)["a"]
    assert isinstance(problem, HostError)
    assert (problem.host, problem.why) == ("a", why)
    assert str(problem) == "; ".join(filter(None, (f"a: {why}", problem.remedy)))


@pytest.mark.processes
def test_the_first_cause_is_raised_not_its_consequences(opened: list[KeeperConnection]) -> None:
    start(opened, ["a", "b", "c"], b="echo broken >&2; exit 1", c="echo broken too >&2; exit 1")
    with pytest.raises(HostError, match=r"^b: broken$"):
        ready(opened, {})
    consequence = HostError("a", "not started because of b", consequence=True)
    assert [cause.host for cause in select_causes([consequence, HostError("b", "broken")])] == ["b"]
    assert select_causes([consequence]) == [consequence]


# ---- patience


@pytest.mark.processes
def test_a_host_that_hangs_is_named_with_what_it_printed_and_what_to_try(opened: list[KeeperConnection]) -> None:
    start(opened, ["a", "b", "c"], b="echo reading the login scripts >&2; exec sleep 1000")
    answers = try_ready(opened, {}, 5.0)
    late = answers["b"]
    assert isinstance(late, HostError)
    assert late.why == "no answer in time: reading the login scripts"
    assert "ssh b true" in late.remedy
    assert answers["a"] == answers["c"] == []
    assert alive(opened[0])


class Asked(KeeperConnection):
    """A connection on which nothing is read or written."""

    def __init__(self, host: str) -> None:
        super().__init__(host)
        self.is_cut = threading.Event()

    def write(self, data: bytes) -> None: ...

    def close(self) -> None: ...

    def stop(self, patience_seconds: float = 10.0) -> None: ...

    def cut(self) -> None:
        self.is_cut.set()


def test_all_hosts_are_asked_at_once() -> None:
    barrier = threading.Barrier(3)

    def ask(connection: KeeperConnection, deadline: float) -> str:
        barrier.wait(30)  # all are asked at once, or this breaks
        return connection.host.upper()

    assert ask_all([Asked("a"), Asked("b"), Asked("c")], ask, 60.0) == {"a": "A", "b": "B", "c": "C"}


def test_ctrl_c_waits_for_nobody() -> None:
    asked = [Asked("a"), Asked("b")]

    def ask(connection: KeeperConnection, deadline: float) -> None:
        assert isinstance(connection, Asked)
        if connection.host == "b":
            os.kill(os.getpid(), signal.SIGINT)  # as a terminal does: to the process, not to this thread
        connection.is_cut.wait(60)

    with pytest.raises(KeyboardInterrupt):
        ask_all(asked, ask, 60.0)
    assert all(connection.is_cut.is_set() for connection in asked)


def test_ctrl_c_ends_a_wait_though_another_thread_got_the_signal() -> None:
    threading.Timer(0.3, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        wait_for_futures([Future()])


def test_all_futures_are_waited_for_until_one_fails() -> None:
    results: list[int] = []
    with ThreadPoolExecutor(2) as pool:
        wait_for_futures([pool.submit(results.append, number) for number in range(5)])
        assert sorted(results) == [0, 1, 2, 3, 4]
    wait_for_futures([])
    endless, failed = Future[None](), Future[None]()
    failed.set_exception(ValueError("no numbers"))
    with pytest.raises(ValueError, match="no numbers"):
        wait_for_futures([endless, failed])


# ---- the end


@pytest.mark.processes
def test_all_are_ended_with_what_they_started_also_one_that_does_not_listen(
    opened: list[KeeperConnection], tmp_path: Path
) -> None:
    start(opened, ["a", "b"], b="trap '' HUP TERM; exec 0<&-; exec sleep 1000")
    assert try_ready(opened, {}, 5.0)["a"] == []
    mark = tmp_path / "started"
    start_task(opened[0], f"open({str(mark)!r}, 'w'); import time; time.sleep(1000)")
    until(mark.exists, "the process of the first keeper")
    stop_all(opened, 1.0)
    assert not any(alive(keeper) for keeper in opened)


@pytest.mark.processes
def test_what_is_written_to_one_that_ended_is_lost_without_harm(opened: list[KeeperConnection]) -> None:
    start(opened, ["a"], a="exit 1")
    assert isinstance(try_ready(opened, {}, 60.0)["a"], HostError)
    opened[0].write(b"x" * 100_000)
    opened[0].close()
    opened[0].write(b"more")


ENDLESS = "import sys\nwhile True: sys.stdout.write(1000 * 'x'{newline})"


@pytest.mark.processes
@pytest.mark.parametrize("newline", ["", " + '\\n'"])
def test_a_task_that_prints_for_ever_is_ended_at_the_deadline_and_its_output_is_bounded(
    newline: str, opened: list[KeeperConnection]
) -> None:
    start(opened, ["a"])
    ready(opened, {})
    start_task(opened[0], ENDLESS.format(newline=newline), 1.5, most_output=100_000)
    received = read_until(opened, lambda so_far: bool(events_of(so_far, Deadline)))
    lines = events_of(received, LogLine)
    assert 100_000 <= sum(len(line.text) for line in lines) < 101_000
    assert "is left out" in lines[-1].text


@pytest.mark.processes
def test_a_keeper_whose_task_prints_for_ever_still_hears_the_controller(opened: list[KeeperConnection]) -> None:
    start(opened, ["a"])
    ready(opened, {})
    start_task(opened[0], ENDLESS.format(newline=""), most_output=1000)
    read_until(opened, lambda so_far: bool(events_of(so_far, LogLine)))
    opened[0].write(encode_request(SignalRequest(signal.SIGTERM)))
    received = read_until(opened, lambda so_far: bool(events_of(so_far, Exit)))
    assert events_of(received, Exit)[0].code == -signal.SIGTERM
