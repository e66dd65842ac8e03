"""The process of a task: the environment that its keeper gives it."""

from __future__ import annotations

import pytest

from trainscale.worker.job import Task
from trainscale.worker.supervision.running_task import RunningTask


def printed(task: Task) -> str:
    running = RunningTask(task)
    stdout, stderr = running.popen.stdout, running.popen.stderr
    assert stdout is not None
    assert stderr is not None
    running.popen.wait(30)
    with stdout, stderr:
        return stdout.read().decode()


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


def test_a_task_without_defaults_has_no_allocator_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_TOP_PAD_", raising=False)
    assert printed(Task("localhost", 0, ["sh", "-c", "echo ${MALLOC_TOP_PAD_-unset}"])) == "unset\n"
