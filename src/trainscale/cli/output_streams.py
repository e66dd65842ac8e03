"""Standard output and standard error whose reader may go away, as in ``trainscale run … | head -1``."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class ReaderGone(BaseException):
    """Nobody reads what a command prints, and it has nothing else to do. No handler of errors is meant to catch it."""


class _OutputFile(io.FileIO):
    """A file whose reader may go away. Then it is connected to the null device, for child processes as well."""

    def __init__(self, descriptor: int, goes_on: bool) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._goes_on = goes_on

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, self.fileno())
            os.close(null)
            if not self._goes_on:
                raise ReaderGone from None
            return memoryview(data).nbytes


@contextmanager
def outlive_readers(goes_on: bool) -> Iterator[None]:
    """Let a command go on when the reader of its output goes away, or else end it by ``ReaderGone``. Streams that a
    program has replaced stay as they are.
    """
    with ExitStack() as stack:
        for name in ("stdout", "stderr"):
            stack.enter_context(_replace_stream(name, goes_on))
        yield


def _find_raw_file(stream: io.TextIOWrapper) -> object:
    """Return the file below the text. With python -u there is no buffer between them."""
    return getattr(stream.buffer, "raw", stream.buffer)


@contextmanager
def _replace_stream(name: str, goes_on: bool) -> Iterator[None]:
    original = getattr(sys, name)
    if type(original) is not io.TextIOWrapper or type(_find_raw_file(original)) is not io.FileIO:
        yield
        return
    file = _OutputFile(original.fileno(), goes_on)
    buffer = io.BufferedWriter(file) if isinstance(original.buffer, io.BufferedWriter) else file
    stream = io.TextIOWrapper(
        buffer,  # a raw file will do, as for sys.stdout with python -u
        encoding=original.encoding,
        errors=original.errors,
        line_buffering=original.line_buffering,
        write_through=original.write_through,
    )
    original.flush()
    setattr(sys, name, stream)
    try:
        yield
    finally:
        setattr(sys, name, original)
        stream.flush()
