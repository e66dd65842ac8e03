"""Requests to end, turned into what Ctrl-C is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def signals_interrupt() -> Iterator[None]:
    """A request to terminate, or a terminal that is closed, stops things in order, once; again changes nothing."""

    def interrupt(*_: object) -> None:
        for number in previous:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
