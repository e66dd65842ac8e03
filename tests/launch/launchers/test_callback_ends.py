"""Keepers that called back and end: who is named as the cause, and that nothing is left of a command, its keepers or
their ranks, whoever ends first.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from keepers import Here, events_of, opened, read_until, ready, start_task
from processes import marked, program, until

from trainscale.launch import callback
from trainscale.launch.callback import LauncherProcess
from trainscale.launch.connection import HostLost, KeeperConnection, ReceivedEvent
from trainscale.worker.events import LogLine

pytestmark = pytest.mark.processes

SAY_PARENT = "import os, time; print(os.getppid(), flush=True); time.sleep(600)"


def start_tasks(keepers: Sequence[KeeperConnection]) -> list[ReceivedEvent]:
    """Start a task on every keeper. Return the events until each task has printed the process id of its keeper."""
    ready(keepers, {})
    for rank, keeper in enumerate(keepers):
        start_task(keeper, SAY_PARENT, rank=rank)
    return read_until(keepers, lambda received: len(events_of(received, LogLine)) == len(keepers))


def end_second_keeper(launcher: Here) -> HostLost:
    """Send SIGTERM to the second of two keepers that have a task each. Return what is reported about it."""
    with opened(launcher) as keepers:
        received = start_tasks(keepers)
        second = next(int(item.event.text) for item in received if isinstance(item.event, LogLine) and item.rank == 1)
        os.kill(second, signal.SIGTERM)
        received = read_until(keepers, lambda received: bool(events_of(received, HostLost)))
    (lost,) = events_of(received, HostLost)
    return lost


def test_a_keeper_that_is_told_to_end_ends_its_ranks_and_is_named(folder: Path) -> None:
    lost = end_second_keeper(Here(2))
    assert (lost.culprit, lost.stderr_tail, lost.was_ended) == ("host1", ("host1 failed",), True)


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
    with opened(launcher) as keepers:
        received = start_tasks(keepers)
        assert launcher.process is not None
        os.kill(launcher.process.pid, number)
        for line in events_of(received, LogLine):  # as srun's own processes on the hosts do
            os.kill(int(line.text), signal.SIGKILL)
        received = read_until(keepers, lambda received: len(events_of(received, HostLost)) == 2)
    assert {lost.culprit for lost in events_of(received, HostLost)} == {""}
    assert all(reason in lost.stderr_tail[0] for lost in events_of(received, HostLost))


def start_controller(script: str) -> subprocess.Popen[str]:
    """Start a process that runs a script with the names of this module."""
    return subprocess.Popen(
        [sys.executable, "-c", f"from test_callback_ends import *; {script}"],
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


def test_a_killed_controller_takes_its_keepers_their_ranks_and_the_command_with_it(folder: Path) -> None:
    controller = start_controller(f"hold({str(folder)!r})")
    at_least = 6  # it, the command, two keepers and two ranks
    kill_after_line(controller, "training", lambda: len(marked(str(folder))) >= at_least)


def hold(folder: str) -> None:
    """Runs in a process of its own, which is killed."""
    launcher = Here(2, remote_dir=folder)
    start_tasks(launcher.open(launcher.names))
    print("training", flush=True)
    time.sleep(600)


def open_and_wait(folder: Path) -> str:
    """A script that starts a command which waits, says so, and waits too."""
    launcher = f"Here(1, first='import time; time.sleep(600)', remote_dir={str(folder)!r})"
    return f"{launcher}.open(['host0']); print('open', flush=True); time.sleep(600)"


def test_a_command_that_waits_for_hosts_does_not_outlive_a_killed_controller(folder: Path) -> None:
    kill_after_line(start_controller(open_and_wait(folder)), "open")


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


def test_a_stubborn_command_is_ended_with_all_that_it_started(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
    monkeypatch.setattr(callback, "_TERMINATE_SECONDS", 0.2)
    process.stop(0.0)
    assert process.exit_code == -signal.SIGKILL
    assert process.explain_exit().endswith("was ended by SIGKILL")
