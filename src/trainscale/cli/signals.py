"""Signals to terminate are like Ctrl-C, and a reader of the output may go away."""

import io
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130
_REPEAT_SECONDS = 1.0  # a shell and the system, or Slurm's step and job, may both send it
_END_SECONDS = 1.0  # to release what it can, before a second signal ends everything
_AGAIN = b"trainscale: interrupted again: ending at once; what was finished is kept\n"
# Slurm warns a job by the signal that --signal names; USR1 and USR2 are the usual ones besides TERM.
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_WARNING = (signal.SIGUSR1, signal.SIGUSR2)


@contextmanager
def interrupt_on_signals(ends_process: bool = True) -> Iterator[None]:
    """Raise KeyboardInterrupt at a signal to terminate, and when Slurm warns of the end.

    With ``ends_process``, a second one ends this process within a second, and with it what it
    started, because its connections close. An ignored signal stays ignored, as under nohup. Only
    the main thread can handle signals: in other threads they stay as they are.
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

    numbers = [number for number in _ENDING if signal.getsignal(number) != signal.SIG_IGN]
    # A program that handles the others itself has its own use for them.
    numbers += [number for number in _WARNING if signal.getsignal(number) == signal.SIG_DFL]
    previous = {number: signal.signal(number, interrupt) for number in numbers}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _LastingOutput(io.TextIOWrapper):
    """When its reader goes away, becomes the null device, or ends the process."""

    ends_process = False
    earlier: io.TextIOWrapper | None = None  # would close the buffer if it were forgotten

    def write(self, text: str, /) -> int:
        try:
            return super().write(text)
        except BrokenPipeError:
            self._lose_reader()
            return len(text)

    def flush(self) -> None:
        try:
            super().flush()
        except BrokenPipeError:
            self._lose_reader()
            super().flush()

    def _lose_reader(self) -> None:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, self.fileno())
        os.close(null)
        if self.ends_process:
            raise SystemExit(0) from None


def outlive_readers(ends_process: bool) -> None:
    """Go on, or end with exit code 0, when the reader goes away, as in ``trainscale run … | head -1``.

    Streams that a program has replaced stay as they are.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            stream.flush()
            own = _LastingOutput(
                stream.buffer,
                encoding=stream.encoding,
                errors=stream.errors,
                line_buffering=stream.line_buffering,
                write_through=stream.write_through,
            )
            own.ends_process = ends_process
            own.earlier = stream
            setattr(sys, name, own)
