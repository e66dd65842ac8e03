"""Asks many hosts at once, in threads, and can give up those that are much later than the others."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

# In a hurry, the later half of the hosts gets this many times as long as the first half took, but at least so long.
HURRY_FACTOR, HURRY_SECONDS = 3.0, 8.0
# Each may be an ssh, which takes processor time here and a place at a jump host (MaxStartups of its sshd).
MOST_AT_ONCE = 64
_END_SECONDS = 2.0  # for a thread to end after its connection was cut

Answer = TypeVar("Answer")


def fan_out(
    hosts: Sequence[str],
    ask: Callable[[str], Answer],
    cut: Callable[[str], None],
    give_up: Callable[[str, float], Answer] | None = None,
) -> dict[str, Answer]:
    """Ask many hosts at once and return the answers of all, in the order of the hosts. ``cut`` must make a pending
    ``ask`` return soon. With ``give_up``, hosts that take much longer than the others are cut; it makes their answer
    from the host's name and the seconds waited.
    """
    answers: dict[str, Answer] = {}
    waiting, busy = deque(hosts), set[str]()
    changed, began = threading.Condition(), time.monotonic()

    def run() -> None:
        while True:
            with changed:
                if not waiting:
                    return
                busy.add(host := waiting.popleft())
            answer = ask(host)
            with changed:
                answers[host] = answer
                busy.discard(host)
                changed.notify_all()

    try:
        for _ in range(min(MOST_AT_ONCE, len(hosts))):
            threading.Thread(target=run, daemon=True).start()
        with changed:
            _wait_for_answers(changed, answers, len(hosts), hurry=give_up is not None)
            waiting.clear()
            missing = [host for host in hosts if host not in answers]
    except BaseException:  # Ctrl-C
        waiting.clear()
        for host in hosts:
            cut(host)
        raise
    waited = time.monotonic() - began
    for host in missing:
        cut(host)
    with changed:
        changed.wait_for(lambda: not busy, _END_SECONDS)
    for host in missing:
        assert give_up is not None
        answers[host] = give_up(host, waited)
    return {host: answers[host] for host in hosts}


def _wait_for_answers(changed: threading.Condition, answers: Mapping[str, object], hosts: int, *, hurry: bool) -> None:
    """Wait until all hosts have answered; in a hurry, only as long as the first half allows."""
    began = time.monotonic()
    seconds = None
    if hurry:
        changed.wait_for(lambda: 2 * len(answers) >= hosts)
        seconds = hurry_seconds(time.monotonic() - began)
    changed.wait_for(lambda: len(answers) == hosts, seconds)


def hurry_seconds(passed: float) -> float:
    """Return how much longer the later half may take when the first half took ``passed`` seconds."""
    return max(HURRY_SECONDS, HURRY_FACTOR * passed) - passed
