"""Shortens TensorFlow's errors, which start with headings, nodes and tracebacks, to the line that explains them."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

_UNINFORMATIVE = re.compile(
    r"\s*$|=+$|\s*\^|  File |Traceback|Graph execution error|Detected at node|([A-Z_]+: )?From /job:\S*$|\s*\(\d+\)"
    r"|\d+ root error"
)


@contextmanager
def shorten_errors() -> Iterator[None]:
    """Raise short errors. The complete error stays in the log, as their cause."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        message = find_informative_line(str(error))
        if isinstance(error, tf.errors.ResourceExhaustedError):
            raise MemoryError(message) from error
        if "could not start grpc server" in message.lower():
            raise OSError(errno.EADDRINUSE, f"address already in use: {message}") from error
        raise RuntimeError(message) from error


def find_informative_line(text: str) -> str:
    lines = text.splitlines() or [""]
    return next((line.strip() for line in lines if not _UNINFORMATIVE.match(line)), lines[0])
