"""TensorFlow's errors in the words that matter: theirs begin with headings, nodes and tracebacks, and a worker reports
the first line.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

_SAYS_NOTHING = re.compile(
    r"\s*$|=+$|\s*\^|  File |Traceback|Graph execution error|Detected at node|([A-Z_]+: )?From /job:\S*$|\s*\(\d+\)"
    r"|\d+ root error"
)


@contextmanager
def plainly() -> Iterator[None]:
    """The complete error stays in the log, as the cause."""
    import tensorflow as tf

    try:
        yield
    except tf.errors.OpError as error:
        words = first_words(str(error))
        if isinstance(error, tf.errors.ResourceExhaustedError):
            raise MemoryError(words) from error
        if "could not start grpc server" in words.lower():
            raise OSError(errno.EADDRINUSE, f"address already in use: {words}") from error
        raise RuntimeError(words) from error


def first_words(text: str) -> str:
    lines = text.splitlines() or [""]
    return next((line.strip() for line in lines if not _SAYS_NOTHING.match(line)), lines[0])
