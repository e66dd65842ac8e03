"""A process ends with its parent, also where the parent has ended before the process could ask for that."""

from __future__ import annotations

import subprocess
import sys

import pytest
from processes import is_living, until

pytestmark = pytest.mark.processes

IMPORTS = """
import os, signal, subprocess, sys, time
from trainscale.worker.job import Task
from trainscale.worker.supervision.leased_host import end_with_parent
from trainscale.worker.supervision.running_task import RunningTask
"""
ORPHAN = """
parent = os.getpid()
if os.fork() == 0:
    while os.getppid() == parent:
        time.sleep(0.01)
    end_with_parent(signal.SIGNAL, parent)
    print("it goes on", flush=True)
os._exit(0)
"""
CHILD = """
parent = os.getpid()
if os.fork() == 0:
    end_with_parent(signal.SIGTERM, parent)
    print("it goes on", flush=True)
    os._exit(0)
os.wait()
"""
GRANDCHILD = """
script = "import os, sys; from trainscale.worker.supervision.leased_host import end_with_parent;"
script += "end_with_parent(15, int(sys.argv[1])); print('it goes on')"
sys.exit(subprocess.call(["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", script, str(os.getpid())]))
"""
KEEPER = """
print(RunningTask(Task("localhost", 0, ["sleep", "600"])).popen.pid, flush=True)
time.sleep(600)
"""


def output_of(script: str) -> str:
    """Return what a script and all its descendants print until the last of them has ended."""
    done = subprocess.run([sys.executable, "-c", IMPORTS + script], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize("number", ["SIGTERM", "SIGKILL"])
def test_a_process_whose_parent_has_ended_already_ends_at_once(number: str) -> None:
    assert output_of(ORPHAN.replace("SIGNAL", number)) == ""


@pytest.mark.parametrize("script", [CHILD, GRANDCHILD], ids=["child", "child of a wrapper"])
def test_a_process_whose_parent_runs_goes_on(script: str) -> None:
    assert output_of(script) == "it goes on\n"


def test_the_program_of_a_task_ends_with_a_keeper_that_is_killed_and_need_not_ask_for_it() -> None:
    with subprocess.Popen([sys.executable, "-c", IMPORTS + KEEPER], stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        task = int(keeper.stdout.readline())
        assert is_living(task)
        keeper.kill()
    until(lambda: not is_living(task), "the end of the task")
