"""Handles signals to terminate in the same way as Ctrl-C: the first ends a command in order, the second at once."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

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
    interrupt = _Interrupt(ends_process)
    numbers = [number for number in (signal.SIGINT, *_TERMINATING) if signal.getsignal(number) != signal.SIG_IGN]
    # A program that handles the others itself has its own use for them.
    numbers += [number for number in _WARNING if signal.getsignal(number) == signal.SIG_DFL]
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Interrupt:
    """The handler of all these signals."""

    def __init__(self, ends_process: bool) -> None:
        self._ends_process = ends_process
        self._first: float | None = None

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._first is None:
            self._first = now
        elif number != signal.SIGINT and now < self._first + _REPEAT_SECONDS:
            return
        elif self._ends_process:
            os.write(2, _AGAIN)  # not by print: the signal may have come in the middle of one
            timer = threading.Timer(_END_SECONDS, os._exit, (INTERRUPTED,))
            timer.daemon = True
            timer.start()
        raise KeyboardInterrupt
