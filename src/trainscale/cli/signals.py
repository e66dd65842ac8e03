"""Signals to terminate are like Ctrl-C, and a reader of the output may go away."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

INTERRUPTED = 130
_REPEAT_SECONDS = 1.0  # a shell and the system, or Slurm's step and job, may both send the same signal
_END_SECONDS = 1.0  # to release what can be released quickly, before a second signal ends everything
_AGAIN = b"trainscale: interrupted again: ending at once; what was finished is kept\n"
# Slurm warns a job by the signal that --signal names; USR1 and USR2 are the usual ones besides TERM.
_TERMINATING = (signal.SIGTERM, signal.SIGHUP)
_WARNING = (signal.SIGUSR1, signal.SIGUSR2)


@contextmanager
def interrupt_on_signals(ends_process: bool = True) -> Iterator[None]:
    """Raise KeyboardInterrupt when asked to terminate, when the terminal is closed, and when Slurm warns of the end.

    A second signal, or a second Ctrl-C, ends this process within a second, unless it is a user's program
    (``ends_process``). What it started ends with it, because its connections close.

    A signal that was ignored before stays ignored: nohup starts a program so, and it must outlive the terminal. Only
    the main thread can handle signals. In a thread that a user's program started, they stay as they are.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    first: float | None = None

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal first
        now = time.monotonic()
        if first is None:
            first = now
        elif number != signal.SIGINT and now < first + _REPEAT_SECONDS:
            return
        elif ends_process:
            os.write(2, _AGAIN)  # not by print: the signal may have come in the middle of one
            timer = threading.Timer(_END_SECONDS, os._exit, (INTERRUPTED,))
            timer.daemon = True
            timer.start()
        raise KeyboardInterrupt

    numbers = [number for number in (signal.SIGINT, *_TERMINATING) if signal.getsignal(number) != signal.SIG_IGN]
    # A program that handles the others itself has its own use for them.
    numbers += [number for number in _WARNING if signal.getsignal(number) == signal.SIG_DFL]
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _OutputFile(io.FileIO):
    """A file whose reader may go away. Then it becomes the null device, for child processes as well."""

    def __init__(self, descriptor: int, ends_process: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._ends_process = ends_process

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if self._ends_process:
                raise SystemExit(0) from None
            return memoryview(data).nbytes


def outlive_readers(ends_process: bool) -> None:
    """Let the process go on when the reader of its output goes away, as in ``trainscale run … | head -1``, or else end
    it with exit code 0. Streams that a program has replaced stay as they are.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is not io.TextIOWrapper:
            continue
        raw = getattr(stream.buffer, "raw", stream.buffer)  # with python -u there is no buffer between them
        if type(raw) is not io.FileIO:
            continue
        stream.flush()
        file = _OutputFile(stream.fileno(), ends_process)
        own = io.TextIOWrapper(
            file if raw is stream.buffer else io.BufferedWriter(file),
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=stream.write_through,
        )
        setattr(sys, name, own)
