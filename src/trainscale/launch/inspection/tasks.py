"""Runs roles of the worker on connected hosts and collects what each role answers."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ...worker.events import Deadline, Event, Exit, LogLine
from ...worker.job import Task
from ..connected_hosts import ConnectedHosts
from ..connection import HostError
from ..events import AnyEvent, HostLost
from ..fan_out import compute_hurry_seconds
from ..launchers.base import ITS_PYTHON, ITS_START

_GRACE_SECONDS = 5.0  # for a keeper to report that its deadline has passed


@dataclass
class TaskAnswer:
    """The events of one task. Without an exit, the task did not end in time."""

    events: list[Event] = field(default_factory=list)
    exit: Exit | None = None

    def select_events(self, kind: type[AnyEvent]) -> list[AnyEvent]:
        return [event for event in self.events if isinstance(event, kind)]

    def find_last(self, kind: type[AnyEvent]) -> AnyEvent | None:
        return next(iter(self.select_events(kind)[::-1]), None)

    @property
    def last_line(self) -> str:
        """Return the last line that the task printed, besides events."""
        lines = self.exit.tail.strip().splitlines() if self.exit else []
        return lines[-1] if lines else ""


HostAnswers = dict[str, list[TaskAnswer] | HostError]


def make_role_task(host: str, rank: int, role: str, request: object, python: str = ITS_PYTHON) -> Task:
    """Return a task that runs a role of the worker. ``request`` is the dataclass that the role reads."""
    return Task(host, rank, [python, ITS_START, role], json.dumps(request, default=vars))


def run_host_tasks(
    connected: ConnectedHosts, tasks: Mapping[str, Sequence[Task]], seconds: float, *, hurry: bool = False
) -> HostAnswers:
    """Run the tasks of every host, whose ranks count from 0, and return their answers in this order.

    Wait until every host has answered or the time is up. In a ``hurry``, give up hosts that are much later than the
    others. A host that cannot be asked or stops answering has an error.
    """
    usable = {host: host_tasks for host, host_tasks in tasks.items() if host not in connected.errors}
    connected.start([task for host_tasks in usable.values() for task in host_tasks], seconds)
    answers = {host: [TaskAnswer() for _ in host_tasks] for host, host_tasks in usable.items()}
    pending = set(usable)
    began = time.monotonic()
    deadline, is_half_done = began + seconds + _GRACE_SECONDS, not hurry
    while pending and connected.is_open and time.monotonic() < deadline:
        for received in connected.poll():
            host = received.host
            if isinstance(received.event, HostLost):
                error = HostError(host, connected.find_connection(host).last_stderr_line() or "it stopped answering")
                connected.errors.setdefault(host, error)
                pending.discard(host)
            elif isinstance(received.event, Deadline):
                pending.discard(host)
            elif received.rank is not None:
                _add_event(answers[host][received.rank], received.event)
                if all(answer.exit for answer in answers[host]):
                    pending.discard(host)
        if not is_half_done and 2 * len(pending) <= len(usable):
            is_half_done, now = True, time.monotonic()
            deadline = min(deadline, now + compute_hurry_seconds(now - began))
    for host in pending:
        stderr = connected.find_connection(host).last_stderr_line()
        connected.errors[host] = HostError(host, stderr or "it stopped answering")
    return {host: connected.errors[host] if host in connected.errors else answers[host] for host in tasks}


def _add_event(answer: TaskAnswer, event: Event) -> None:
    if isinstance(event, Exit):
        answer.exit = event
    elif not isinstance(event, LogLine):
        answer.events.append(event)
