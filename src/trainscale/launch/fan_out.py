"""Asks many hosts at once, in threads, and can give up those that are much later than the others."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from ..interruptible import wait_for_condition

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
    queue, began = _HostQueue(hosts, ask), time.monotonic()
    try:
        for _ in range(min(MOST_AT_ONCE, len(hosts))):
            threading.Thread(target=queue.work, daemon=True).start()
        with queue.changed:
            _wait_for_answers(queue.changed, queue.answers, len(hosts), hurry=give_up is not None)
            queue.waiting.clear()
            missing = [host for host in hosts if host not in queue.answers]
    except BaseException:  # Ctrl-C
        queue.waiting.clear()
        for host in hosts:
            cut(host)
        raise
    waited = time.monotonic() - began
    for host in missing:
        cut(host)
    with queue.changed:
        queue.changed.wait_for(lambda: not queue.busy, _END_SECONDS)
    for host in missing:
        assert give_up is not None
        queue.answers[host] = give_up(host, waited)
    return {host: queue.answers[host] for host in hosts}


class _HostQueue(Generic[Answer]):
    """The hosts that are not asked yet, those that are asked now, and the answers. ``changed`` guards all of it."""

    def __init__(self, hosts: Sequence[str], ask: Callable[[str], Answer]) -> None:
        self.waiting, self.busy = deque(hosts), set[str]()
        self.answers: dict[str, Answer] = {}
        self.changed = threading.Condition()
        self._ask = ask

    def work(self) -> None:
        """Ask one host after the other, until no host is waiting."""
        while True:
            with self.changed:
                if not self.waiting:
                    return
                self.busy.add(host := self.waiting.popleft())
            answer = self._ask(host)
            with self.changed:
                self.answers[host] = answer
                self.busy.discard(host)
                self.changed.notify_all()


def _wait_for_answers(changed: threading.Condition, answers: Mapping[str, object], hosts: int, *, hurry: bool) -> None:
    """Wait until all hosts have answered; in a hurry, only as long as the first half allows."""
    began = time.monotonic()
    seconds = None
    if hurry:
        wait_for_condition(changed, lambda: 2 * len(answers) >= hosts)
        seconds = compute_hurry_seconds(time.monotonic() - began)
    wait_for_condition(changed, lambda: len(answers) == hosts, seconds)


def compute_hurry_seconds(passed: float) -> float:
    """Return how much longer the later half may take when the first half took ``passed`` seconds."""
    return max(HURRY_SECONDS, HURRY_FACTOR * passed) - passed
