"""The process of a task, as its keeper runs it."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys

from ..job import Task
from .leased_host import end_with_parent

_START = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "start.py")  # noqa: PTH100, PTH118, PTH120
_LONGEST_LINE = 65536  # bytes: longer ones are passed on in parts. Events are much shorter.
_SUBSTITUTES = {"PYTHON": sys.executable, "START": _START}  # see Task


class RunningTask:
    """The process of a task, and what it has printed."""

    def __init__(self, task: Task) -> None:
        self.rank = task.rank
        self.uses_gpu = task.uses_gpu
        self.gpu = task.gpu
        self.tail: list[str] = []
        self.exited = False
        self.output_left = task.most_output  # characters that may still be relayed; None: any number
        self._buffers: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.streams: dict[str, int] = {}
        # A session of its own, so that one signal reaches the process and all its children.
        self.popen = subprocess.Popen(
            [_SUBSTITUTES.get(argument, argument) for argument in task.command],
            cwd=task.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**task.defaults, **os.environ, **task.environment},
            start_new_session=True,
            # Also while the program starts, it must not outlive a keeper that is killed.
            preexec_fn=functools.partial(end_with_parent, signal.SIGKILL, os.getpid()),
        )
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(task.document.encode() + b"\n")
            self.popen.stdin.close()
        except BrokenPipeError:
            pass  # it ended at once; its exit code and its log say why
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        for name, stream in (("stdout", self.popen.stdout), ("stderr", self.popen.stderr)):
            self.streams[name] = stream.fileno()
            os.set_blocking(stream.fileno(), False)

    def poll_exit_code(self) -> int | None:
        """Return None while it runs. The process is not reaped, so its id and its group's cannot be reused."""
        status = os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def add_output(self, stream: str, data: bytes) -> list[tuple[str, bool]]:
        """Return the lines that the data completes, and for each whether it goes on: a very long line comes in parts.

        No data means the end: return what remains.
        """
        *lines, remainder = (self._buffers[stream] + data).split(b"\n")
        parts = [(line, False) for line in lines]
        if not data and remainder:
            parts.append((remainder, False))
            remainder = b""
        elif len(remainder) > _LONGEST_LINE:
            end = _find_end_of_characters(remainder)
            parts.append((remainder[:end], True))
            remainder = remainder[end:]
        self._buffers[stream] = remainder
        return [(part.decode(errors="replace").rstrip("\r"), goes_on) for part, goes_on in parts]

    def send_signal(self, number: int) -> None:
        """Send a signal to the process and all its children."""
        try:
            os.killpg(self.popen.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


def _find_end_of_characters(data: bytes) -> int:
    """Return where the last character of UTF-8 text begins, because it may be incomplete. The end, if it is no text."""
    for end in range(len(data) - 1, len(data) - 5, -1):
        if data[end] & 0xC0 != 0x80:
            return end
    return len(data)
