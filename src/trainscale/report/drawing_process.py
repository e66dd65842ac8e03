"""The process that draws charts (draw_charts.py): one for all charts of this process, started when it is first needed.

V8 reserves more addresses than some sites allow (``ulimit -v``), and then ends its process. So it has one of its own,
and a run whose charts cannot be drawn has its tables all the same.
"""

from __future__ import annotations

import atexit
import json
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import IO, Any

from ..errors import TrainscaleError
from ..launch.events import describe_exit
from ..worker.type_aliases import JsonObject

_PROGRAM = Path(__file__).resolve().parent / "draw_charts.py"
_END_SECONDS = 5.0


class ChartsUnavailable(TrainscaleError):
    """Charts cannot be drawn; the message says why."""


class DrawingProcess:
    """The running program. Once it has ended, each request raises the same ChartsUnavailable."""

    def __init__(self) -> None:
        self.problem = ""
        self.owner = os.getpid()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        try:
            # A session of its own: Ctrl-C ends the controller in order, which may draw the charts of what there is.
            self._popen = subprocess.Popen(
                [sys.executable, "-P", str(_PROGRAM)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                start_new_session=True,
            )
        except OSError as error:
            self._errors.close()
            raise ChartsUnavailable(f"the process that draws them cannot be started: {error.strerror}") from None

    def request(self, values: JsonObject) -> bytes:
        if self.problem:
            raise ChartsUnavailable(self.problem)
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        try:
            self._popen.stdin.write(json.dumps(values).encode() + b"\n")
            self._popen.stdin.flush()
            kind, _, size = self._popen.stdout.readline().partition(b" ")
            content = self._popen.stdout.read(int(size or 0))
        except BrokenPipeError:
            kind, content = b"", b""
        except BaseException as error:  # such as Ctrl-C: the next answer would be the one to this request
            self.problem = f"their drawing was interrupted ({type(error).__name__})"
            self._popen.kill()
            raise
        if not kind:
            self.problem = self._explain_end()
            raise ChartsUnavailable(self.problem)
        if kind == b"error":
            raise ValueError(content.decode())
        return content

    def close(self) -> None:
        if os.getpid() != self.owner:
            return  # a fork has a copy of this object, but the process is not its own
        for stream in (self._popen.stdin, self._popen.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                pass
        try:
            self._popen.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._popen.kill()
            self._popen.wait()
        self._errors.close()

    def _explain_end(self) -> str:
        code = self._popen.wait()
        self._errors.seek(0)
        lines = [line.strip("# \n") for line in self._errors.read().decode(errors="replace").splitlines()]
        fatal = [line for line in lines if line.startswith("Fatal ")] or [line for line in lines if line][-1:]
        message = f"the process that draws them {describe_exit(code)}{f': {fatal[0]}' if fatal else ''}"
        limit = resource.getrlimit(resource.RLIMIT_AS)[0]
        if limit == resource.RLIM_INFINITY:
            return message
        return f"{message}; its addresses are limited to {limit / 2**30:.0f} GiB (ulimit -v), and it needs more"


_current: list[DrawingProcess] = []  # at most one


def begin_drawing() -> None:
    """Start the process if there is none, so that it is ready when the first chart is drawn. One that failed before is
    started again.
    """
    for process in _current:
        if not process.problem and process.owner == os.getpid():
            return
        end_drawing()
    try:
        _current.append(DrawingProcess())
    except ChartsUnavailable:
        pass  # the first request tries again, and raises it


def render(**request: Any) -> bytes:
    """Return what the process answers to a request. ChartsUnavailable is raised if it cannot draw."""
    if not _current or _current[0].owner != os.getpid():
        _current[:] = [DrawingProcess()]
    return _current[0].request(request)


@atexit.register
def end_drawing() -> None:
    for process in _current:
        process.close()
    _current.clear()
