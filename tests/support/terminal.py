"""An interactive shell on a pseudo-terminal: what is typed, and the line that the shell made of it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SECONDS = 60.0


class Terminal:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self.seen = ""

    def type(self, text: str) -> None:
        os.write(self._descriptor, text.encode())

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Return the first match in what the shell wrote since the last call."""
        deadline = time.monotonic() + SECONDS
        while not (match := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self._descriptor], [], [], max(0.0, deadline - time.monotonic()))
            if not ready:
                raise AssertionError(f"no {pattern!r} in {self.seen!r}")
            self.seen += os.read(self._descriptor, 65536).decode(errors="replace")
        self.seen = self.seen[match.end() :]
        return match


@contextmanager
def open_terminal(argv: list[str], folder: Path, environment: dict[str, str]) -> Iterator[Terminal]:
    pid, descriptor = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(argv[0], argv, environment)
    try:
        yield Terminal(descriptor)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(descriptor)
