"""The processes of a keeper's tasks: their environment and output, and how they end with their keeper."""

import subprocess
import sys
from collections.abc import Iterator

import pytest
from processes import is_living, until

from trainscale.worker.job import Task
from trainscale.worker.keeper.keeper import RunningTask

pytestmark = pytest.mark.processes

IMPORTS = """
import os, signal, subprocess, sys, time
from trainscale.worker.job import Task
from trainscale.worker.start import end_with_parent
from trainscale.worker.keeper.keeper import RunningTask
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
script = "import os, sys; from trainscale.worker.start import end_with_parent;"
script += "end_with_parent(15, int(sys.argv[1])); print('it goes on')"
sys.exit(subprocess.call(["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", script, str(os.getpid())]))
"""
KEEPER = """
print(RunningTask(Task("localhost", 0, ["sleep", "600"])).popen.pid, flush=True)
time.sleep(600)
"""


def printed(task: Task) -> str:
    running = RunningTask(task)
    stdout, stderr = running.popen.stdout, running.popen.stderr
    assert stdout is not None
    assert stderr is not None
    running.popen.wait(30)
    with stdout, stderr:
        return stdout.read().decode()


@pytest.fixture
def running() -> Iterator[RunningTask]:
    """A task that prints nothing by itself."""
    task = RunningTask(Task("localhost", 0, ["true"]))
    yield task
    task.popen.wait(30)
    for stream in (task.popen.stdout, task.popen.stderr):
        assert stream is not None
        stream.close()


def test_a_very_long_line_is_passed_on_in_parts_that_cut_no_character(running: RunningTask) -> None:
    text = "é" * 400_000
    data = text.encode()
    parts = []
    for start in range(0, len(data), 65535):
        parts += running.add_output("stdout", data[start : start + 65535])
    parts += running.add_output("stdout", b"!\nnext\n")
    assert len(parts) > 3
    assert [goes_on for _, goes_on in parts] == [True] * (len(parts) - 2) + [False, False]
    assert "".join(part for part, _ in parts) == text + "!" + "next"
    # Bytes that are no text are passed on too.
    assert sum(len(part) for part, _ in running.add_output("stdout", b"\x80" * 100_000)) == 100_000


def test_a_tasks_variables_replace_the_hosts_and_its_defaults_yield_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TOP_PAD_", "of the host")
    monkeypatch.setenv("MALLOC_ARENA_MAX", "of the host")
    monkeypatch.delenv("MALLOC_TRIM_THRESHOLD_", raising=False)
    task = Task(
        "localhost",
        0,
        ["sh", "-c", 'echo "$MALLOC_TOP_PAD_, $MALLOC_ARENA_MAX, $MALLOC_TRIM_THRESHOLD_"'],
        environment={"MALLOC_ARENA_MAX": "of the task"},
        defaults=dict.fromkeys(("MALLOC_TOP_PAD_", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_"), "a default"),
    )
    assert printed(task) == "of the host, of the task, a default\n"
    unset = Task("localhost", 0, ["sh", "-c", "echo ${MALLOC_TRIM_THRESHOLD_-unset}"])
    assert printed(unset) == "unset\n"


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
