"""The markers of the test that runs now. Helpers that start something expensive check them, so that a test without the
marker cannot pass.
"""

from __future__ import annotations

import sys
from typing import Any

import pytest

PROCESS_MARKERS = ("processes", "framework", "hosts", "browser", "installs")  # each of these tests starts processes
_SHARED_PROGRAMS = ("fork_server.py", "draw_charts.py")  # one process serves many tests

_current: pytest.Item | None = None
_process_was_started = False


def set_current(item: pytest.Item) -> None:
    global _current, _process_was_started
    _current, _process_was_started = item, False


def require_process_marker() -> None:
    """Fail the current test if it has started a process and no marker says so."""
    if _process_was_started and _current is not None and not any(map(_current.get_closest_marker, PROCESS_MARKERS)):
        require("processes")


def watch_processes() -> None:
    """Notice from now on when this process starts another one."""
    sys.addaudithook(_notice_process)


def _notice_process(event: str, arguments: tuple[Any, ...]) -> None:
    global _process_was_started
    if event == "subprocess.Popen":
        _, argv, *_ = arguments
        is_shared = isinstance(argv, list) and any(str(word).endswith(_SHARED_PROGRAMS) for word in argv)
        _process_was_started = _process_was_started or not is_shared
    elif event in ("os.fork", "os.forkpty", "os.posix_spawn"):
        _process_was_started = True


def require(marker: str) -> None:
    """Fail the current test unless it has this marker."""
    if _current is not None and _current.get_closest_marker(marker) is None:
        pytest.fail(f"this test must be marked: @pytest.mark.{marker} (see pyproject.toml for what the marker means)")
