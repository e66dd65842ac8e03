"""Keepers that call back: who is let in, what is said when one does not come, and that nothing is left of a command,
its keepers or their ranks, whoever ends first.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from keepers import events_of, read_until, ready, try_ready
from processes import MARK, marked, program, until
from worker_copies import shared_copies

from trainscale.cluster.hosts import Host, HostAccess
from trainscale.errors import TrainscaleError
from trainscale.launch.connections.event_reader import HostLost
from trainscale.launch.connections.keeper import CommandError, HostError, causes, stop_all
from trainscale.launch.connections.launcher_process import LauncherProcess
from trainscale.launch.launchers.callback import (
    CALLBACK_VARIABLE,
    CallbackEndpoint,
    CallbackLauncher,
    find_outward_address,
)
from trainscale.worker.events import Exit, LogLine
from trainscale.worker.inspection.host_facts import addresses
from trainscale.worker.job import Task
from trainscale.worker.supervision.requests import encode_tasks

TOKEN = "the-right-word"
SAY_PARENT = "import os, time; print(os.getppid(), flush=True); time.sleep(600)"

# Stands for mpirun or srun: starts a keeper for every number, reports those that fail, and ends when they have ended.
STARTER = """
import os, subprocess, sys
numbers, keeper = sys.argv[1].split(","), sys.argv[2:]
children = {subprocess.Popen(keeper, env={**os.environ, "INDEX": number}).pid: number for number in numbers}
failed = False
while children:
    pid, status = os.wait()
    number = children.pop(pid)
    if status:
        failed = True
        print(f"host{number} failed", flush=True)
sys.exit(failed)
"""


class Here(CallbackLauncher):
    """Starts keepers on this machine. ``first`` is a program that runs before them, ``numbers`` are their numbers."""

    name = "here"
    index = 'os.environ["INDEX"]'

    def __init__(self, count: int, first: str = "", numbers: Sequence[int] | None = None, **where: Any):
        hosts = tuple(Host("127.0.0.1", f"host{number}") for number in range(count))
        super().__init__(HostAccess(hosts, **{"remote_dir": str(shared_copies()), "controller": "127.0.0.1", **where}))
        self._first, self._numbers = first, range(count) if numbers is None else numbers
        self.process: LauncherProcess | None = None

    @property
    def names(self) -> list[str]:
        return [host.name for host in self.access.hosts]

    def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]:
        numbers = ",".join(map(str, self._numbers))
        return [sys.executable, "-c", self._first + STARTER, numbers, *self.keeper_command(sys.executable)]

    def start(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> LauncherProcess:
        self.process = super().start(hosts, endpoint)
        return self.process


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Whatever is started in a test carries its mark; nothing of that may be left."""
    monkeypatch.setenv(MARK, str(tmp_path))
    yield tmp_path
    until(lambda: not marked(str(tmp_path)), "the end of all that the test started", 20)


# ---- keepers that come


@pytest.mark.processes
def test_every_keeper_calls_and_works_and_what_it_starts_does_not_know_the_token(folder: Path) -> None:
    launcher = Here(3)
    keepers = launcher.open(launcher.names)
    try:
        ports = ready(keepers, dict.fromkeys(launcher.names, 2))
        assert {host: len(numbers) for host, numbers in ports.items()} == dict.fromkeys(launcher.names, 2)
        program = f"import os; print('token' if '{CALLBACK_VARIABLE}' in os.environ else 'none', os.environ['INDEX'])"
        for number, keeper in enumerate(keepers):
            keeper.write(encode_tasks([Task(keeper.host, number, ["PYTHON", "-c", program])], 30))
        received = read_until(keepers, lambda received: len(events_of(received, Exit)) == 3)
    finally:
        stop_all(keepers)
    assert sorted(line.text for line in events_of(received, LogLine)) == ["none 0", "none 1", "none 2"]
    assert events_of(received, HostLost) == []


@pytest.mark.processes
def test_the_token_is_another_for_every_command_and_in_no_argument(folder: Path) -> None:
    launcher = Here(1)
    tokens = set()
    for _ in range(2):
        keepers = launcher.open(launcher.names)
        try:
            ready(keepers, {})
            assert launcher.process is not None
            environment = Path(f"/proc/{launcher.process.pid}/environ").read_bytes().decode().split("\0")
            token = next(pair for pair in environment if pair.startswith(CALLBACK_VARIABLE)).split(",")[-1]
            assert len(token) == 32
            assert all(token not in Path(f"/proc/{pid}/cmdline").read_text() for pid in marked(str(folder)))
            tokens.add(token)
        finally:
            stop_all(keepers)
    assert len(tokens) == 2


@pytest.mark.processes
def test_a_command_that_prints_more_than_a_pipe_holds_goes_on(folder: Path) -> None:
    launcher = Here(1, first="print('a line of a very talkative command\\n' * 100_000, flush=True)\n")
    keepers = launcher.open(launcher.names)
    try:
        assert ready(keepers, {"host0": 1})["host0"]
    finally:
        stop_all(keepers)


@pytest.mark.processes
def test_keepers_may_call_an_ipv6_address(folder: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    launcher = Here(1, controller="::1")
    keepers = launcher.open(launcher.names)
    try:
        assert ready(keepers, {"host0": 1})["host0"]
    finally:
        stop_all(keepers)


# ---- keepers that do not come


@pytest.mark.processes
def test_a_host_that_never_calls_is_named_and_the_others_are_not(folder: Path) -> None:
    launcher = Here(2, numbers=[1])
    keepers = launcher.open(launcher.names)
    try:
        answers = try_ready(keepers, {}, 2.0)
    finally:
        stop_all(keepers)
    assert answers["host1"] == []
    error = answers["host0"]
    assert isinstance(error, HostError)
    assert "host0: did not call back within 2 s on 127.0.0.1:" in str(error)
    assert "--controller-address" in str(error)


@pytest.mark.processes
def test_where_no_keeper_calls_no_host_is_named(folder: Path) -> None:
    launcher = Here(2, first="import time; time.sleep(600)\n")
    keepers = launcher.open(launcher.names)
    try:
        with pytest.raises(
            CommandError, match=r"^no keeper that python\S* should start called within 1 s on 127.0.0.1:"
        ):
            ready(keepers, {}, 1.0)
    finally:
        stop_all(keepers)


@pytest.mark.processes
def test_a_command_that_ends_too_early_is_quoted(folder: Path) -> None:
    launcher = Here(2, first="import sys; sys.exit('no room on this cluster')\n")
    keepers = launcher.open(launcher.names)
    try:
        with pytest.raises(CommandError, match=r"^no room on this cluster"):
            ready(keepers, {})
    finally:
        stop_all(keepers)


@pytest.mark.processes
def test_a_command_that_is_killed_says_so(folder: Path) -> None:
    launcher = Here(1, first="import os; os.kill(os.getpid(), 9)\n")
    keepers = launcher.open(launcher.names)
    try:
        with pytest.raises(CommandError, match=r"^python\S* was ended by SIGKILL"):
            ready(keepers, {})
    finally:
        stop_all(keepers)


@pytest.mark.processes
def test_a_command_that_is_stopped_says_so_and_no_host_is_named(folder: Path) -> None:
    launcher = Here(2, first="import os, signal; os.kill(os.getpid(), signal.SIGSTOP)\n")
    keepers = launcher.open(launcher.names)
    try:
        answers = try_ready(keepers, {}, 2.0)
    finally:
        stop_all(keepers)
    assert launcher.process is not None
    program, pid = launcher.process.program, launcher.process.pid
    message = f"{program} (process {pid}) is stopped, so it does not start or end keepers"
    assert {str(answer) for answer in answers.values()} == {message}
    assert all(isinstance(answer, CommandError) for answer in answers.values())


@pytest.mark.processes
def test_the_host_that_the_command_complains_of_is_blamed_and_the_others_are_consequences(folder: Path) -> None:
    complaint = "import sys; print('ssh: connect to host host1 port 22: No route to host'); sys.exit(1)\n"
    launcher = Here(3, first=complaint)
    keepers = launcher.open(launcher.names)
    try:
        answers = try_ready(keepers, {})
    finally:
        stop_all(keepers)
    errors = [answer for answer in answers.values() if isinstance(answer, HostError)]
    assert [error.consequence for error in errors] == [True, False, True]
    assert str(errors[1]).startswith("host1: no route")
    assert str(errors[2]).startswith("host2: not started because of host1: no route")
    assert causes(errors) == [errors[1]]


@pytest.mark.processes
def test_a_keeper_that_is_ended_because_of_another_host_while_it_becomes_ready_is_a_consequence(folder: Path) -> None:
    """srun ends all keepers if one cannot start. Some have called already."""
    call_and_end = (
        "import os, socket, sys, time\n"
        f"address, port, token = os.environ['{CALLBACK_VARIABLE}'].split(',')\n"
        "connection = socket.create_connection((address, int(port)))\n"
        "connection.sendall((token + ' 0 host0\\n').encode())\n"
        "connection.recv(1)\n"
        "connection.close()\n"
        "time.sleep(0.5)\n"
        "sys.exit('host1: cannot start a keeper')\n"
    )
    launcher = Here(2, first=call_and_end)
    keepers = launcher.open(launcher.names)
    try:
        answers = try_ready(keepers, {})
    finally:
        stop_all(keepers)
    errors = [answer for answer in answers.values() if isinstance(answer, HostError)]
    assert str(errors[0]) == "host0: not started because of host1: host1: cannot start a keeper"
    assert [error.host for error in causes(errors)] == ["host1"]


@pytest.mark.processes
def test_a_keeper_that_cannot_call_says_so(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]

    class Wrong(Here):
        def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
            return {**super().environment(endpoint), CALLBACK_VARIABLE: f"{endpoint.address},{nobody},{endpoint.token}"}

        def output_about(self, host: str, output: str) -> str:
            return output

    launcher = Wrong(1)
    keepers = launcher.open(launcher.names)
    try:
        with pytest.raises(HostError, match="cannot call this machine: Connection refused; is there a firewall"):
            ready(keepers, {})
    finally:
        stop_all(keepers)


def test_a_command_that_does_not_exist_is_an_error_before_anything_starts(folder: Path) -> None:
    class Missing(Here):
        def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]:
            return ["no-such-mpirun"]

    with pytest.raises(TrainscaleError, match="cannot start no-such-mpirun"):
        Missing(1).open(["host0"])


# ---- keepers that go


def end_second_keeper(launcher: Here) -> HostLost:
    """Send SIGTERM to the second of two keepers that have a task each. Return what is reported about it."""
    keepers = launcher.open(launcher.names)
    try:
        ready(keepers, {})
        for number, keeper in enumerate(keepers):
            keeper.write(encode_tasks([Task(keeper.host, number, ["PYTHON", "-c", SAY_PARENT])], 600))
        received = read_until(keepers, lambda received: len(events_of(received, LogLine)) == 2)
        second = next(int(item.event.text) for item in received if isinstance(item.event, LogLine) and item.rank == 1)
        os.kill(second, signal.SIGTERM)
        received = read_until(keepers, lambda received: bool(events_of(received, HostLost)))
    finally:
        stop_all(keepers)
    (lost,) = events_of(received, HostLost)
    return lost


@pytest.mark.processes
def test_a_keeper_that_is_told_to_end_ends_its_ranks_and_is_named(folder: Path) -> None:
    lost = end_second_keeper(Here(2))
    assert (lost.culprit, lost.stderr_tail, lost.was_ended) == ("host1", ("host1 failed",), True)


@pytest.mark.processes
def test_a_keeper_that_was_told_to_end_is_not_blamed_where_the_command_does_not_say_why(folder: Path) -> None:
    """Slurm ends all keepers when it loses a host, and srun may say so much later."""
    launcher = Here(2, first="import os, sys; sys.stdout = open(os.devnull, 'w')\n")
    lost = end_second_keeper(launcher)
    assert launcher.process is not None
    reason = f"a keeper was told to end, and {launcher.process.program} has not said why"
    assert (lost.culprit, lost.stderr_tail) == ("", (reason,))


END_QUIETLY = """
import os, signal
signal.signal(signal.SIGTERM, lambda *_: os._exit(1))
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("first", "number", "reason"),
    [
        ("", signal.SIGKILL, "was ended by SIGKILL"),
        (END_QUIETLY, signal.SIGTERM, "ended with exit code 1, without a message"),
    ],
    ids=["killed", "told to end"],
)
def test_a_command_that_somebody_ends_while_its_keepers_work_is_the_cause_and_no_host_is(
    folder: Path, first: str, number: signal.Signals, reason: str
) -> None:
    launcher = Here(2, first)
    keepers = launcher.open(launcher.names)
    try:
        ready(keepers, {})
        for rank, keeper in enumerate(keepers):
            keeper.write(encode_tasks([Task(keeper.host, rank, ["PYTHON", "-c", SAY_PARENT])], 600))
        received = read_until(keepers, lambda received: len(events_of(received, LogLine)) == 2)
        assert launcher.process is not None
        os.kill(launcher.process.pid, number)
        for line in events_of(received, LogLine):  # as srun's own processes on the hosts do
            os.kill(int(line.text), signal.SIGKILL)
        received = read_until(keepers, lambda received: len(events_of(received, HostLost)) == 2)
    finally:
        stop_all(keepers)
    assert {lost.culprit for lost in events_of(received, HostLost)} == {""}
    assert all(reason in lost.stderr_tail[0] for lost in events_of(received, HostLost))


def start_controller(script: str) -> subprocess.Popen[str]:
    """Start a process that runs a script with the names of this module."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from test_callback import *; {script}"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (Path(__file__).parent, *sys.path)))},
        stdout=subprocess.PIPE,
        text=True,
    )


def kill_after_line(controller: subprocess.Popen[str], line: str, condition: Callable[[], bool] = lambda: True) -> None:
    """Kill a process when it has printed this line; a condition must hold then."""
    assert controller.stdout is not None
    with controller.stdout as output:
        assert output.readline() == f"{line}\n"
        assert condition()
        controller.kill()
        controller.wait()


@pytest.mark.processes
def test_a_killed_controller_takes_its_keepers_their_ranks_and_the_command_with_it(folder: Path) -> None:
    controller = start_controller(f"hold({str(folder)!r})")
    kill_after_line(
        controller, "training", lambda: len(marked(str(folder))) >= 6
    )  # it, the command, 2 keepers, 2 ranks


def hold(folder: str) -> None:
    """Runs in a process of its own, which is killed."""
    launcher = Here(2, remote_dir=folder)
    keepers = launcher.open(launcher.names)
    ready(keepers, {})
    for number, keeper in enumerate(keepers):
        keeper.write(
            encode_tasks(
                [Task(keeper.host, number, ["PYTHON", "-c", "import time; print(1, flush=True); time.sleep(600)"])], 600
            )
        )
    read_until(keepers, lambda received: len(events_of(received, LogLine)) == 2)
    print("training", flush=True)
    time.sleep(600)


def open_and_wait(folder: Path) -> str:
    """A script that starts a command which waits, says so, and waits too."""
    launcher = f"Here(1, first='import time; time.sleep(600)', remote_dir={str(folder)!r})"
    return f"{launcher}.open(['host0']); print('open', flush=True); time.sleep(600)"


@pytest.mark.processes
def test_a_command_that_waits_for_hosts_does_not_outlive_a_killed_controller(folder: Path) -> None:
    kill_after_line(start_controller(open_and_wait(folder)), "open")


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="there is no setpriv here (it is part of util-linux)")
def test_a_command_does_not_start_when_its_controller_was_killed_a_moment_before(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller is dead before setpriv asks the system for a signal at its death."""
    program(folder, "setpriv", f'until [ -e "{folder}/go" ]; do sleep 0.01; done\nexec {shutil.which("setpriv")} "$@"')
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    kill_after_line(start_controller(open_and_wait(folder)), "open")
    assert marked(str(folder))
    (folder / "go").touch()


@pytest.mark.processes
def test_a_stubborn_command_is_ended_with_all_that_it_started(folder: Path) -> None:
    stubborn = (
        "import os, signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], process_group=0)\n"
        "print('started', flush=True)\n"
        "time.sleep(600)\n"
    )
    process = LauncherProcess([sys.executable, "-c", stubborn], os.environ)
    until(lambda: "started" in process.output, "the command to start its child")
    assert not process.has_ended
    assert process.stop(0.0, 0.2) == -signal.SIGKILL
    assert process.has_ended
    assert process.exit_reason().endswith("was ended by SIGKILL")


# ---- where they call


def test_the_address_for_call_backs_is_the_one_by_which_hosts_are_reached() -> None:
    """Those of this machine itself, as a hosts file may name it, say nothing about the others."""
    assert find_outward_address(["127.0.0.1"]) == "127.0.0.1"
    outward = [address for address in addresses().values() if not address.startswith("127.")]
    if outward:
        assert find_outward_address(["localhost", outward[0]]) == outward[0]
        assert find_outward_address(["no such host"]) in outward
        assert find_outward_address([]) in outward
    else:
        assert find_outward_address([]) == socket.gethostname()
