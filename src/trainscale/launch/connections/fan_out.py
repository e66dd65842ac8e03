"""Asks many hosts at once, each in a thread, and can give up those that are much later than the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

# In a hurry, the later half of the hosts gets this many times as long as the first half took, but at least so long.
HURRY_FACTOR, HURRY_SECONDS = 3.0, 8.0
_END_SECONDS = 2.0  # for a thread to end after its connection was cut

Answer = TypeVar("Answer")


def fan_out(
    hosts: Sequence[str],
    ask: Callable[[str], Answer],
    cut: Callable[[str], None],
    give_up: Callable[[str, float], Answer] | None = None,
) -> dict[str, Answer]:
    """Ask every host at once and return the answers, in the order of the hosts. ``cut`` must make a pending ``ask``
    return soon. With ``give_up``, hosts that take much longer than the others are cut; it makes their answer from the
    host's name and the seconds waited.
    """
    answers: dict[str, Answer] = {}
    changed, began = threading.Condition(), time.monotonic()

    def run(host: str) -> None:
        answer = ask(host)
        with changed:
            answers[host] = answer
            changed.notify_all()

    threads = {host: threading.Thread(target=run, args=(host,), daemon=True) for host in hosts}
    try:
        for thread in threads.values():
            thread.start()
        with changed:
            seconds = None
            if give_up is not None:
                changed.wait_for(lambda: 2 * len(answers) >= len(hosts))
                seconds = hurry_seconds(time.monotonic() - began)
            changed.wait_for(lambda: len(answers) == len(hosts), seconds)
            missing = [host for host in hosts if host not in answers]
    except BaseException:  # Ctrl-C
        for host in hosts:
            cut(host)
        raise
    waited = time.monotonic() - began
    for host in missing:
        cut(host)
    for host in missing:
        assert give_up is not None
        threads[host].join(_END_SECONDS)
        answers[host] = give_up(host, waited)
    return {host: answers[host] for host in hosts}


def hurry_seconds(passed: float) -> float:
    """Return how much longer the later half may take when the first half took ``passed`` seconds."""
    return max(HURRY_SECONDS, HURRY_FACTOR * passed) - passed
