"""The hosts of one trial, parity check, inspection or launched program, while they are connected.

    with launcher.connect(hosts) as connected:
        ports = connected.find_ports({"node1": 2, "node2": 1})
        connected.start(tasks, deadline_seconds=600)
        for received in connected.read_events():
            ...

Leaving the block ends everything that the keepers started, and the keepers, unless the launcher keeps them for its next
call of ``connect``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...errors import TrainscaleError
from ...worker.job import Task
from ...worker.keeper.requests import EndTasksRequest, SignalRequest, encode_request, encode_tasks
from .decoding import ReceivedEvent
from .event_reader import POLL_SECONDS, EventReader
from .fan_out import fan_out
from .idle_keepers import IdleKeepers
from .keeper import READY_SECONDS, HostError, KeeperConnection, select_causes, stop_all
from .open_files import allow_open_files

_KEEP_ALIVE_SECONDS = 5.0
_SILENCE_SECONDS = 120.0  # after which a keeper on another machine assumes that the controller is dead
_GATHER_SECONDS_PER_TASK = 5e-5
_STOP_SECONDS = 10.0
_STOP_SECONDS_AFTER_ERROR = 1.0  # a host that does not answer will not end in order either

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class ConnectOptions:
    """How to wait for hosts. If errors are tolerated, they are in ``ConnectedHosts.errors`` instead of raised. In a
    ``hurry``, hosts that are much later than the others are given up.
    """

    seconds: float = READY_SECONDS
    tolerates_errors: bool = False
    hurry: bool = False
    compares_clocks: bool = False


class ConnectedHosts:
    """A context manager; ``open_connections`` begins to start a keeper on every host. See Launcher.connect."""

    def __init__(
        self,
        open_connections: Callable[[Sequence[str]], list[KeeperConnection]],
        hosts: Sequence[str],
        options: ConnectOptions,
        *,
        is_local: bool,
        idle: IdleKeepers | None = None,
    ) -> None:
        """``idle`` gets the connections that can be used again."""
        self.hosts = list(hosts)
        self.errors: dict[str, HostError] = {}
        self._open = open_connections
        self._options = options
        self._is_local = is_local
        self._idle = idle
        self._connections: dict[str, KeeperConnection] = {}
        self._reader = EventReader([])
        self._keep_alive: _KeepAlive | None = None
        self._started: set[str] = set()  # hosts that have tasks
        self._task_count = self._polled_events = 0
        self._next_poll = 0.0

    def __enter__(self) -> ConnectedHosts:
        allow_open_files(len(self.hosts))
        connections = self._open(self.hosts)
        self._connections = {connection.host: connection for connection in connections}
        try:
            self.errors = wait_until_ready(connections, self._options)
            self._raise_error()
        except BaseException as error:
            self.__exit__(type(error))
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_: object) -> None:
        self.request_end()
        connections = list(self._connections.values())
        if self._idle is not None and kind is None:
            self._let_end()
            reusable = [connection for connection in connections if self._is_reusable(connection)]
            connections = [connection for connection in connections if connection not in reusable]
            self._idle.add(reusable)
        stop_all(connections, _STOP_SECONDS_AFTER_ERROR if self.errors else _STOP_SECONDS)

    def _let_end(self) -> None:
        """Read the events of keepers that are ending their tasks. Nobody needs them any more."""
        for _ in self._reader.drain(_STOP_SECONDS_AFTER_ERROR if self.errors else _STOP_SECONDS):
            pass

    def _is_reusable(self, connection: KeeperConnection) -> bool:
        """Return whether its keeper waits for requests: it has ended its tasks, or never had any."""
        host = connection.host
        return host not in self.errors and (host not in self._started or self._reader.has_ended(host))

    def find_connection(self, host: str) -> KeeperConnection:
        return self._connections[host]

    def find_ports(self, counts: Mapping[str, int]) -> dict[str, list[int]]:
        """Have each host choose as many free ports. Hosts with an error are left out."""
        connections = [self._connections[host] for host in counts if host not in self.errors]
        answers = find_ports(connections, counts, self._options)
        self.errors.update({host: answer for host, answer in answers.items() if isinstance(answer, HostError)})
        self._raise_error()
        return {host: answer for host, answer in answers.items() if not isinstance(answer, HostError)}

    def start(self, tasks: Iterable[Task], deadline_seconds: float) -> None:
        """Start all tasks; their keepers end them when the deadline has passed."""
        by_host: dict[str, list[Task]] = {}
        for task in tasks:
            by_host.setdefault(task.host, []).append(task)
        connections = [self._connections[host] for host in by_host]
        self._task_count = sum(map(len, by_host.values()))
        self._reader = EventReader(connections, keepers_stay=self._idle is not None)
        self._started = set(by_host)
        silence_seconds, stays = None if self._is_local else _SILENCE_SECONDS, self._idle is not None
        for host, host_tasks in by_host.items():
            self._connections[host].write(encode_tasks(host_tasks, deadline_seconds, silence_seconds, stays=stays))
        if not self._is_local:
            self._keep_alive = _KeepAlive(connections)
            self._keep_alive.start()

    @property
    def is_open(self) -> bool:
        """Whether events may still arrive."""
        return self._reader.is_open

    def poll(self, seconds: float = POLL_SECONDS) -> list[ReceivedEvent]:
        """Return the events that arrive next. Wait at most this long for the first of them.

        Who calls this looks at all tasks after each call. So that this work does not grow with the square of their
        number, events are gathered for a moment, unless there are many already.
        """
        if self._polled_events < self._task_count:
            time.sleep(max(0.0, self._next_poll - time.monotonic()))
        events = self._reader.poll(seconds)
        self._polled_events = len(events)
        self._next_poll = time.monotonic() + self._task_count * _GATHER_SECONDS_PER_TASK
        return events

    def read_events(self, seconds: float = float("inf")) -> Iterator[ReceivedEvent]:
        """Yield events as they arrive, until all keepers have ended or the time is up."""
        deadline = time.monotonic() + seconds
        while self.is_open and time.monotonic() < deadline:
            yield from self.poll()

    def send_signal(self, number: int) -> None:
        """Send a signal to all tasks."""
        for connection in self._connections.values():
            connection.write(encode_request(SignalRequest(number)))

    def request_end(self) -> None:
        """Ask the keepers to end. May be called from another thread, and again."""
        if self._keep_alive is not None:
            self._keep_alive.stop()
        for connection in self._connections.values():
            if self._idle is None:
                connection.close()
            elif connection.host in self._started:
                connection.write(encode_request(EndTasksRequest()))

    def drain(self) -> Iterator[ReceivedEvent]:
        """Ask the keepers to end, and yield their last events."""
        self.request_end()
        yield from self._reader.drain()

    def _raise_error(self) -> None:
        """Raise the first error, in the order of the hosts, that is no consequence of another."""
        if self.errors and not self._options.tolerates_errors:
            raise select_causes(self.errors[host] for host in self.hosts if host in self.errors)[0]


class _KeepAlive(threading.Thread):
    """Sends signs of life to keepers on other machines. A thread of its own, because the main thread may be blocked
    while it prints.
    """

    def __init__(self, connections: Sequence[KeeperConnection]) -> None:
        super().__init__(name="keep-alive", daemon=True)
        self._connections = connections
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(_KEEP_ALIVE_SECONDS):
            for connection in self._connections:
                connection.write(b"\n")

    def stop(self) -> None:
        self._stopped.set()
        self.join(_KEEP_ALIVE_SECONDS)


def wait_until_ready(connections: Sequence[KeeperConnection], options: ConnectOptions) -> dict[str, HostError]:
    """Return the errors of the hosts whose keepers do not become ready."""

    def become_ready(connection: KeeperConnection, deadline: float) -> None:
        connection.become_ready(deadline)
        if options.compares_clocks:
            connection.compare_clocks(deadline)

    answers = _ask_all(connections, become_ready, options)
    return {host: answer for host, answer in answers.items() if isinstance(answer, HostError)}


def find_ports(
    connections: Sequence[KeeperConnection], counts: Mapping[str, int], options: ConnectOptions
) -> dict[str, list[int] | HostError]:
    """Return free ports of every host, or its error."""

    def find(connection: KeeperConnection, deadline: float) -> list[int]:
        count = counts.get(connection.host, 0)
        return connection.find_ports(count, deadline) if count else []

    return _ask_all(connections, find, options)


def _ask_all(
    connections: Sequence[KeeperConnection],
    ask: Callable[[KeeperConnection, float], Answer],
    options: ConnectOptions,
) -> dict[str, Answer | HostError]:
    deadline = time.monotonic() + options.seconds
    by_host = {connection.host: connection for connection in connections}

    def ask_host(host: str) -> Answer | HostError:
        try:
            return ask(by_host[host], deadline)
        except HostError as error:
            return error
        except TrainscaleError as error:  # there is no ssh here
            return HostError(host, str(error))
        except (OSError, ValueError) as error:  # for example, a file that was closed meanwhile
            return HostError(host, str(error))

    if len(connections) == 1 and not options.hurry:
        return {host: ask_host(host) for host in by_host}
    give_up = (lambda host, seconds: _explain_late_answer(by_host[host], seconds)) if options.hurry else None
    return fan_out(list(by_host), ask_host, lambda host: by_host[host].cut(), give_up)


def _explain_late_answer(connection: KeeperConnection, seconds: float) -> HostError:
    stderr = connection.last_stderr_line()
    message = f"no answer: waited {seconds:.0f} s for it{f' ({stderr})' if stderr else ''}"
    remedy = f"does it answer at once to: ssh {connection.host} true? Set-up lines and login scripts count too"
    return HostError(connection.host, message, remedy=remedy)
