"""Asks many hosts at once, each in a thread, and does not wait for one that is much later than the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

# In a hurry, the later half of the hosts has this many times as long as the first half took, and at least so long.
HURRY_FACTOR, HURRY_SECONDS = 3.0, 8.0
_END_SECONDS = 2.0  # for a thread whose connection was cut

Answer = TypeVar("Answer")


class Crowd(Generic[Answer]):
    """``ask`` is called for every host and returns its answer; ``cut`` makes it return soon, whatever it waits for."""

    def __init__(self, hosts: Sequence[str], ask: Callable[[str], Answer], cut: Callable[[str], None]) -> None:
        self._hosts, self._ask, self._cut = hosts, ask, cut
        self._answers: dict[str, Answer] = {}
        self._began = time.monotonic()
        self._changed = threading.Condition()
        self._threads = {host: threading.Thread(target=self._run, args=(host,), daemon=True) for host in hosts}

    def answers(self, late: Callable[[str, float], Answer] | None = None) -> dict[str, Answer]:
        """Of all hosts, in their order. With ``late``, which makes an answer from a host's name and the seconds it was
        waited for, those that take much longer than the others are given up.
        """
        try:
            for thread in self._threads.values():
                thread.start()
            self._wait(hurry=late is not None)
        except BaseException:  # Ctrl-C: nobody is waited for any more
            for host in self._hosts:
                self._cut(host)
            raise
        passed = time.monotonic() - self._began
        with self._changed:
            missing = [host for host in self._hosts if host not in self._answers]
        for host in missing:
            self._cut(host)
        for host in missing:
            assert late is not None
            self._threads[host].join(_END_SECONDS)
            self._answers[host] = late(host, passed)
        return {host: self._answers[host] for host in self._hosts}

    def _run(self, host: str) -> None:
        answer = self._ask(host)
        with self._changed:
            self._answers[host] = answer
            self._changed.notify_all()

    def _wait(self, hurry: bool) -> None:
        def at_least(count: float) -> Callable[[], bool]:
            return lambda: len(self._answers) >= count

        with self._changed:
            if not hurry:
                self._changed.wait_for(at_least(len(self._hosts)))
                return
            self._changed.wait_for(at_least(len(self._hosts) / 2))
            self._changed.wait_for(at_least(len(self._hosts)), time_left(time.monotonic() - self._began))


def time_left(passed: float) -> float:
    """For the later half, when the first half took so long."""
    return max(HURRY_SECONDS, HURRY_FACTOR * passed) - passed
