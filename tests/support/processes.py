"""Helpers to find the processes that a test started, to wait for a condition, and to write small programs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

MARK = "TRAINSCALE_TEST_MARK"


def marked(mark: str) -> list[int]:
    """Return the ids of the processes whose environment carries this mark. Zombies do not count."""
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes()
        except OSError:
            continue
        if f"{MARK}={mark}".encode() in environment.split(b"\0") and is_living(int(entry.name)):
            pids.append(int(entry.name))
    return pids


def read_arguments(pid: int) -> list[bytes]:
    """Return the command line of a process, empty if there is none."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


def is_living(pid: int) -> bool:
    """Return whether there is such a process. A zombie has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Wait until the condition holds; fail with ``what`` if it does not in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"still waiting for {what} after {seconds:.0f} s"
        time.sleep(0.05)


def program(folder: Path, name: str, text: str) -> Path:
    """Write an executable shell script."""
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path
