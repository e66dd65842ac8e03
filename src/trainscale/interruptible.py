"""Waits of the main thread that Ctrl-C ends at once, also if the system gives the signal to another thread.

Python handles signals in its main thread only. A main thread that waits for others without a limit does not notice a
signal that another thread received.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from typing import Any

_POLL_SECONDS = 0.2


def wait_for_futures(futures: Sequence[Future[Any]]) -> None:
    """Wait until all are done, or one has raised an exception, which is raised here."""
    is_done = False
    while not is_done:
        done, pending = wait(futures, _POLL_SECONDS, FIRST_EXCEPTION)
        for future in done:
            future.result()
        is_done = not pending


def wait_for_condition(
    condition: threading.Condition, predicate: Callable[[], bool], seconds: float | None = None
) -> None:
    """Wait until the predicate holds, at most for so many seconds. The condition must be locked."""
    end = float("inf") if seconds is None else time.monotonic() + seconds
    while not condition.wait_for(predicate, max(0.0, min(_POLL_SECONDS, end - time.monotonic()))):
        if time.monotonic() >= end:
            return
