"""Runs roles of the worker on hosts, such as the numbers of a parity check or a witness."""

import base64
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..spec.config import Config, Trial
from ..spec.devices import Host, Slot
from ..worker.config import ALLOCATORS, TUNED
from ..worker.events import AnswerPiece, Deadline, Event, Exit, LogLine, RankError
from ..worker.job import Device, Measure, Task
from .connected_hosts import ConnectedHosts
from .connection import AnyEvent, HostError, HostLost, describe_exit, find_last_line
from .launchers.base import ITS_PYTHON, ITS_START, Launcher
from .trial.trial import TrialSettings, build_jobs, count_ports

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
        return find_last_line(self.exit.tail) if self.exit else ""


def make_role_task(host: str, rank: int, role: str, request: object, python: str = ITS_PYTHON) -> Task:
    return Task(host, rank, [python, ITS_START, role], json.dumps(request, default=vars))


def run_host_tasks(
    connected: ConnectedHosts, tasks: Mapping[str, Sequence[Task]], seconds: float
) -> dict[str, list[TaskAnswer] | HostError]:
    """Run the tasks of every host, whose ranks count from 0."""

    def give_up(host: str) -> None:
        stderr = find_last_line(connected.connections[host].stderr_text())
        connected.errors.setdefault(host, HostError(host, stderr or "it stopped answering"))

    usable = {host: host_tasks for host, host_tasks in tasks.items() if host not in connected.errors}
    connected.start([task for host_tasks in usable.values() for task in host_tasks], seconds)
    answers = {host: [TaskAnswer() for _ in host_tasks] for host, host_tasks in usable.items()}
    pending = set(usable)
    deadline = time.monotonic() + seconds + _GRACE_SECONDS
    while pending and connected.is_open and time.monotonic() < deadline:
        for received in connected.poll():
            host, event = received.host, received.event
            if isinstance(event, HostLost):
                give_up(host)
                pending.discard(host)
            elif isinstance(event, Deadline):
                pending.discard(host)
            elif received.rank is not None:
                answer = answers[host][received.rank]
                if isinstance(event, Exit):
                    answer.exit = event
                    if all(answer.exit for answer in answers[host]):
                        pending.discard(host)
                elif not isinstance(event, LogLine):
                    answer.events.append(event)
    for host in pending:
        give_up(host)
    return {host: connected.errors.get(host) or answers[host] for host in tasks}


# ---- numbers that one process computes


@dataclass(frozen=True)
class EncodedNumbers:
    """What a process computed."""

    head: bytes  # JSON that describes the values
    values: bytes  # eight for each value
    seconds: float


class NumbersFailed(Exception):
    """A process could not compute its numbers; the message says why."""


def compute_numbers(
    launcher: Launcher,
    host: str,
    make_task: Callable[[ConnectedHosts], Task],
    seconds: float,
) -> EncodedNumbers:
    """Return the numbers, or raise NumbersFailed."""
    try:
        with launcher.connect([host]) as connected:
            answer = run_host_tasks(connected, {host: [make_task(connected)]}, seconds)[host]
    except HostError as error:
        raise NumbersFailed(str(error)) from None
    if isinstance(answer, HostError):
        raise NumbersFailed(str(answer))
    (task,) = answer
    last, failure = task.find_last(AnswerPiece), task.find_last(RankError)
    if task.exit is None:
        raise NumbersFailed(f"still computing after {seconds:.0f} s")
    if failure or last is None or last.seconds is None:
        reason = f"{describe_exit(task.exit.code)}: {task.last_line or 'no message'}"
        raise NumbersFailed(failure.message if failure else reason)
    text = b"".join(base64.b64decode(piece.text) for piece in task.select_events(AnswerPiece))
    head, _, values = text.partition(b"\n")
    return EncodedNumbers(head, values, last.seconds)


# ---- parity: a few steps of a network with one framework

FP64, FP32 = "fp64", "fp32"
STEPS = 3
BATCH = 4  # samples, so that batch norm has something to average over
# Large: even a parameter without gradient (a bias before batch norm) changes.
WEIGHT_DECAY = 0.01
VERSION = 3  # of the numbers that a framework computes; part of the cache's key
PARITY_SECONDS = 1200.0


def compute_parity_numbers(
    launcher: Launcher,
    site: Host,
    python: str,
    config: Config,
    device: Device,
    seed: int,
    on_connect: Callable[[ConnectedHosts], None] = lambda _: None,
) -> EncodedNumbers:
    """Raise NumbersFailed if there are none. ``on_connect`` gets the connection."""
    config = replace(
        config.reset_training(),
        strategy="local",
        servers=0,
        compile=False,
        batch=BATCH,
        weight_decay=WEIGHT_DECAY,
    )

    def make_task(connected: ConnectedHosts) -> Task:
        on_connect(connected)
        slots, settings = [Slot(site, device)], TrialSettings(Measure(0, STEPS), seed, {})
        ports = connected.find_ports(count_ports(slots))
        (job,) = build_jobs(Trial(config, 1, 0), slots, ports, settings)
        job = replace(job, dropout=config.precision != FP64)  # else it is there, and switched off
        command = [site.pythons.get(config.framework) or python, ITS_START, "parity"]
        return Task(site.name, 0, command, job.to_json(), defaults=ALLOCATORS[TUNED])

    return compute_numbers(launcher, site.name, make_task, PARITY_SECONDS)
