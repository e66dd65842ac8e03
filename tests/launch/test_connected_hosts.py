"""One login on a host serves the inspection before a run and all its trials. Real keepers, on this machine."""

import os
import resource
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from keepers import ThisMachineLauncher
from processes import MARK, marked, until

from trainscale.launch import connection
from trainscale.launch.connected_hosts import ConnectedHosts
from trainscale.launch.connection import PipeConnection
from trainscale.launch.launchers.base import ITS_PYTHON
from trainscale.worker.events import End, Exit, LogLine
from trainscale.worker.job import Task

pytestmark = pytest.mark.processes

HOSTS = ["a", "b"]


@pytest.fixture(autouse=True)
def mark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    monkeypatch.setenv(MARK, str(tmp_path))
    return str(tmp_path)


@pytest.fixture
def launcher(mark: str) -> Iterator[ThisMachineLauncher]:
    launcher = ThisMachineLauncher(HOSTS)
    launcher.reuses_keepers = True
    yield launcher
    launcher.close()
    until(lambda: marked(mark) == [], "all processes to end", 10)


def pids(connected: ConnectedHosts) -> dict[str, int]:
    connections = connected.connections.items()
    return {host: connection.pid for host, connection in connections if isinstance(connection, PipeConnection)}


def run_program(connected: ConnectedHosts, program: str) -> dict[str, list[str]]:
    """Run a Python program on every host; return what it prints, by host."""
    connected.start([Task(host, 0, [ITS_PYTHON, "-c", program]) for host in connected.hosts], 60.0)
    lines: dict[str, list[str]] = {host: [] for host in connected.hosts}
    for received in connected.read_events(60.0):
        if isinstance(received.event, LogLine):
            lines[received.host].append(received.event.text)
    return lines


def test_the_same_keepers_run_the_tasks_of_one_connection_after_the_other(launcher: ThisMachineLauncher) -> None:
    seen = []
    for number in range(3):
        with launcher.connect(HOSTS) as connected:
            assert len(connected.find_ports({"a": 2, "b": 1})["a"]) == 2
            assert run_program(connected, f"print({number})") == {host: [str(number)] for host in HOSTS}
            seen.append(pids(connected))
    assert seen == [seen[0]] * 3


def test_tasks_that_still_run_are_ended_and_the_keepers_stay(launcher: ThisMachineLauncher, mark: str) -> None:
    with launcher.connect(HOSTS) as connected:
        first = pids(connected)
        connected.start([Task(host, 0, ["sleep", "1000"]) for host in HOSTS], 60.0)
        last = list(connected.drain())
    assert sorted(received.host for received in last if isinstance(received.event, End)) == HOSTS
    until(lambda: len(marked(mark)) == len(HOSTS), "the tasks to end", 10)
    with launcher.connect(HOSTS) as connected:
        assert pids(connected) == first


def test_the_processor_time_of_earlier_tasks_is_not_counted_again(launcher: ThisMachineLauncher) -> None:
    used = []
    for program in ("sum(range(30_000_000))", "pass"):
        with launcher.connect(["a"]) as connected:
            connected.start([Task("a", 0, [ITS_PYTHON, "-c", program])], 60.0)
            used += [r.event.own_cpu_seconds for r in connected.read_events(60.0) if isinstance(r.event, End)]
    assert used[1] < used[0]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_keeper_that_was_lost_or_hangs_is_replaced(
    number: signal.Signals, launcher: ThisMachineLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    if number == signal.SIGSTOP:
        monkeypatch.setattr(connection, "_REUSE_SECONDS", 0.5)
    with launcher.connect(HOSTS) as connected:
        first = pids(connected)
    os.kill(first["b"], number)
    with launcher.connect(HOSTS) as connected:
        second = pids(connected)
        assert run_program(connected, "print('here')") == {host: ["here"] for host in HOSTS}
    if number == signal.SIGKILL:
        assert second["a"] == first["a"]
    assert second["b"] != first["b"]


def test_a_host_that_was_given_up_is_not_used_again(launcher: ThisMachineLauncher) -> None:
    with launcher.connect(HOSTS, tolerates_errors=True) as connected:
        first = pids(connected)
        connected.start([Task(host, 0, ["sleep", "1000"]) for host in HOSTS], 60.0)
        os.kill(first["b"], signal.SIGKILL)
    with launcher.connect(HOSTS) as connected:
        assert pids(connected)["a"] == first["a"]
        assert pids(connected)["b"] != first["b"]


def test_after_an_exception_nothing_is_kept(launcher: ThisMachineLauncher, mark: str) -> None:
    def interrupted() -> None:
        with launcher.connect(HOSTS) as connected:
            connected.start([Task(host, 0, ["sleep", "1000"]) for host in HOSTS], 60.0)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert marked(mark) == []


def test_a_launcher_that_does_not_reuse_keepers_keeps_nothing(mark: str) -> None:
    launcher = ThisMachineLauncher(HOSTS)
    with launcher.connect(HOSTS) as connected:
        connected.start([Task(host, 0, ["true"]) for host in HOSTS], 60.0)
        assert len([r for r in connected.read_events(60.0) if isinstance(r.event, Exit)]) == len(HOSTS)
    assert marked(mark) == []


@pytest.fixture
def limit() -> Iterator[int]:
    """The usual limit of open files is in force; this is the most that the system allows."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (1024, before[1]))
    yield before[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_many_hosts_may_open_more_files_and_no_more_than_the_system_allows(
    limit: int, launcher: ThisMachineLauncher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launcher, "open", lambda _: [])
    for hosts, files in ((64, 1024), (512, min(4 * 512 + 256, limit)), (10**6, min(4 * 10**6 + 256, limit))):
        with launcher.connect(["a"] * hosts):
            assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == files
