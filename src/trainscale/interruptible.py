"""Waits of the main thread that Ctrl-C ends at once, also if the system gives the signal to another thread.

Python handles signals in its main thread only. A main thread that waits for others without a limit does not notice a
signal that another thread received.
"""

from __future__ import annotations

from collections.abc import Sequence
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
