"""The process of a task: the environment that its keeper gives it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from trainscale.worker.job import Task
from trainscale.worker.supervision.running_task import RunningTask

pytestmark = pytest.mark.processes


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


def test_a_very_long_line_is_passed_on_in_parts_and_no_character_is_cut(running: RunningTask) -> None:
    text = "é" * 150_000
    data = text.encode()
    parts = []
    for start in range(0, len(data), 65535):
        parts += running.add_output("stdout", data[start : start + 65535])
    parts += running.add_output("stdout", b"!\nnext\n")
    assert len(parts) > 3
    assert [goes_on for _, goes_on in parts] == [True] * (len(parts) - 2) + [False, False]
    assert "".join(part for part, _ in parts) == text + "!" + "next"


def test_bytes_that_are_no_text_are_passed_on_too(running: RunningTask) -> None:
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


def test_a_task_without_defaults_has_no_allocator_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MALLOC_TOP_PAD_", raising=False)
    assert printed(Task("localhost", 0, ["sh", "-c", "echo ${MALLOC_TOP_PAD_-unset}"])) == "unset\n"
