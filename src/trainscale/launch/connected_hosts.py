"""The hosts of one trial, check or program, while they are connected.

    with launcher.connect(hosts) as connected:
        ports = connected.find_ports({"node1": 2, "node2": 1})
        connected.start(tasks, deadline_seconds=600)
        for received in connected.read_events():
            ...

Leaving the block ends all tasks, and the keepers, unless the launcher keeps them for its next ``connect``.
"""

from __future__ import annotations

import resource
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, TypeVar

from ..errors import TrainscaleError
from ..worker.events import End
from ..worker.job import EndTasksRequest, SignalRequest, Task, TasksRequest, encode_request
from .connection import (
    HostError,
    HostLost,
    KeeperConnection,
    NoFreePorts,
    ReceivedEvent,
    name_signal,
    select_causes,
    stop_all,
)

if TYPE_CHECKING:
    from .launchers.base import Launcher

POLL_SECONDS = 0.25
_KEEP_ALIVE_SECONDS = 5.0
_SILENCE_SECONDS = 120.0  # after which a keeper ends: the controller must be dead
_GATHER_SECONDS_PER_TASK = 5e-5
_STOP_SECONDS = 10.0
_STOP_SECONDS_AFTER_ERROR = 1.0  # a host that does not answer will not end in order either
_FILES_PER_HOST = 4  # the pipes of an ssh, and one to spare
_OTHER_FILES = 256  # logs, the journal, sockets
# Each may be an ssh, of which a jump host takes few (MaxStartups of its sshd).
_MOST_AT_ONCE = 64

Answer = TypeVar("Answer")


class EventReader:
    """With ``keepers_stay``, a keeper's output stays open after its last event."""

    def __init__(self, *, keepers_stay: bool = False) -> None:
        self._keepers_stay = keepers_stay
        self._selector = selectors.DefaultSelector()
        self._received: deque[ReceivedEvent] = deque()
        self._ended: set[str] = set()  # hosts whose keeper has sent its last event
        self._ended_by_signal: dict[str, str] = {}  # hosts whose keeper got a signal, with its name
        self._gather_seconds = self._next_poll = 0.0

    def read_from(self, connections: Sequence[KeeperConnection]) -> None:
        for connection in connections:
            while connection.pending:  # what arrived behind the last answer
                self._add(connection.pending.pop(0))
            self._selector.register(connection.output, selectors.EVENT_READ, connection)

    @property
    def is_open(self) -> bool:
        return bool(self._received or self._selector.get_map())

    def poll(self) -> list[ReceivedEvent]:
        """Return the events that arrive next, after a moment at most."""
        # Callers look at all tasks each time: gather events for a moment.
        time.sleep(max(0.0, self._next_poll - time.monotonic()))
        for key, _ in self._selector.select(0 if self._received else POLL_SECONDS):
            connection: KeeperConnection = key.data
            received = connection.receive()
            for event in received or ():
                self._add(event)
            has_ended = connection.host in self._ended
            if received is None or (has_ended and self._keepers_stay):
                self._selector.unregister(connection.output)
            if received is None and not has_ended:
                was_told_to_end = connection.host in self._ended_by_signal
                culprit, explanation = connection.explain_loss(was_told_to_end)
                text = explanation or self._ended_by_signal.get(connection.host, "")
                lost = HostLost(culprit, tuple(text.splitlines()), was_ended=was_told_to_end)
                self._received.append(ReceivedEvent(connection.host, lost))
        events = list(self._received)
        self._received.clear()
        self._next_poll = time.monotonic() + self._gather_seconds
        return events

    def read_events(self, seconds: float = float("inf")) -> Iterator[ReceivedEvent]:
        deadline = time.monotonic() + seconds
        while self.is_open and time.monotonic() < deadline:
            yield from self.poll()

    def _add(self, received: ReceivedEvent) -> None:
        self._received.append(received)
        if isinstance(received.event, End):
            number = received.event.signal
            if number is None:
                self._ended.add(received.host)
            else:
                self._ended_by_signal[received.host] = f"it was told to end ({name_signal(number)})"


class ConnectedHosts(EventReader):
    """A context manager; see Launcher.connect."""

    def __init__(self, launcher: Launcher, hosts: Sequence[str], seconds: float, tolerates_errors: bool) -> None:
        self.hosts = list(hosts)
        self.errors: dict[str, HostError] = {}
        self._launcher = launcher
        self._seconds, self._tolerates_errors = seconds, tolerates_errors
        # Gets the connections that can be used again.
        self._idle = launcher.idle if launcher.reuses_keepers and not launcher.local else None
        super().__init__(keepers_stay=self._idle is not None)
        self.connections: dict[str, KeeperConnection] = {}
        self._keep_alive: KeepAlive | None = None
        self._started: set[str] = set()  # hosts that have tasks

    def __enter__(self) -> ConnectedHosts:
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        needed = _FILES_PER_HOST * len(self.hosts) + _OTHER_FILES
        if hard != resource.RLIM_INFINITY:
            needed = min(needed, hard)
        if soft != resource.RLIM_INFINITY and soft < needed:
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
        connections = self._launcher.open(self.hosts)
        self.connections = {connection.host: connection for connection in connections}
        try:
            answers = ask_all(connections, lambda each, end: each.become_ready(end), self._seconds)
            self._note_errors(answers)
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        """End the tasks, and keepers that are not used again; after Ctrl-C, all."""
        self.request_end()
        stop_seconds = _STOP_SECONDS_AFTER_ERROR if self.errors else _STOP_SECONDS
        connections = list(self.connections.values())
        if self._idle is not None and (kind is None or issubclass(kind, Exception)):
            deque(self.read_events(stop_seconds), maxlen=0)
            for connection in connections[:]:
                host = connection.host
                has_answered = host not in self.errors or isinstance(self.errors[host], NoFreePorts)
                if has_answered and (host not in self._started or host in self._ended):
                    connections.remove(connection)
                    self._idle.add(connection)
        stop_all(connections, stop_seconds)

    def find_ports(self, counts: Mapping[str, int]) -> dict[str, list[int]]:
        connections = [self.connections[host] for host in counts if host not in self.errors]
        ports = ask_all(connections, lambda each, end: each.find_ports(counts[each.host], end), self._seconds)
        return self._note_errors(ports)

    def _note_errors(self, answers: Mapping[str, Answer | HostError]) -> dict[str, Answer]:
        """Return the other answers, or raise the first error that is a cause."""
        others: dict[str, Answer] = {}
        for host, answer in answers.items():
            if isinstance(answer, HostError):
                self.errors[host] = answer
            else:
                others[host] = answer
        if self.errors and not self._tolerates_errors:
            raise select_causes(self.errors[host] for host in self.hosts if host in self.errors)[0]
        return others

    def start(self, tasks: Iterable[Task], deadline_seconds: float) -> None:
        by_host: dict[str, list[Task]] = {}
        for task in tasks:
            by_host.setdefault(task.host, []).append(task)
        connections = [self.connections[host] for host in by_host]
        self.read_from(connections)
        self._gather_seconds = sum(map(len, by_host.values())) * _GATHER_SECONDS_PER_TASK
        self._started = set(by_host)
        silence_seconds = None if self._launcher.local else _SILENCE_SECONDS
        for host, host_tasks in by_host.items():
            request = TasksRequest(host_tasks, deadline_seconds, silence_seconds, self._keepers_stay)
            self.connections[host].write(encode_request(request))
        if not self._launcher.local:
            self._keep_alive = KeepAlive(connections)
            self._keep_alive.start()

    def drain(self) -> Iterator[ReceivedEvent]:
        self.request_end()
        return self.read_events(10.0)

    def send_signal(self, number: int) -> None:
        for connection in self.connections.values():
            connection.write(encode_request(SignalRequest(number)))

    def request_end(self) -> None:
        """Ask the keepers to end. May be called from another thread, and again."""
        if self._keep_alive is not None:
            self._keep_alive.stop()
        for connection in self.connections.values():
            if self._idle is None:
                connection.close()
            elif connection.host in self._started:
                connection.write(encode_request(EndTasksRequest()))


class KeepAlive(threading.Thread):
    """Sends signs of life, without which keepers end."""

    def __init__(self, connections: Sequence[KeeperConnection] = ()) -> None:
        super().__init__(name="keep-alive", daemon=True)
        self.connections = {connection.host: connection for connection in connections}
        self.lock = threading.Lock()  # guards the connections
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(_KEEP_ALIVE_SECONDS):
            with self.lock:
                for connection in self.connections.values():
                    connection.write(b"\n")

    def stop(self) -> None:
        self._stopped.set()
        if self.is_alive():
            self.join(_KEEP_ALIVE_SECONDS)


class IdleKeepers(KeepAlive):
    """A launcher's keepers that wait for their next tasks; at most one for each host."""

    def take(self, host: str) -> KeeperConnection | None:
        """Return the connection to this host, which the caller then owns, or None."""
        with self.lock:
            return self.connections.pop(host, None)

    def add(self, connection: KeeperConnection) -> None:
        with self.lock:
            kept = self.connections.setdefault(connection.host, connection)
            if self.ident is None:
                self.start()
        if kept is not connection:
            connection.stop(_STOP_SECONDS)

    def close(self) -> None:
        self.stop()
        stop_all(list(self.connections.values()))
        self.connections.clear()


def ask_all(
    connections: Sequence[KeeperConnection],
    ask: Callable[[KeeperConnection, float], Answer],
    seconds: float,
) -> dict[str, Answer | HostError]:
    """Ask many hosts at once. Ctrl-C ends the connections."""
    deadline = time.monotonic() + seconds

    def ask_host(connection: KeeperConnection) -> Answer | HostError:
        try:
            return ask(connection, deadline)
        except HostError as error:
            return error
        except (TrainscaleError, OSError, ValueError) as error:  # no ssh here, or a closed file
            return HostError(connection.host, str(error))

    pool = ThreadPoolExecutor(_MOST_AT_ONCE)
    try:
        futures = [pool.submit(ask_host, connection) for connection in connections]
        wait_for_futures(futures)
    except BaseException:
        for connection in connections:
            connection.cut()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    results = (future.result() for future in futures)
    return {connection.host: result for connection, result in zip(connections, results, strict=True)}


def wait_for_futures(futures: Sequence[Future[Any]]) -> None:
    """Wait until all are done, or raise the exception of one."""
    pending: Collection[Future[Any]] = futures
    while pending:  # wakes up regularly: the system may give a Ctrl-C to another thread
        done, pending = wait(pending, POLL_SECONDS, FIRST_EXCEPTION)
        for future in done:
            future.result()
