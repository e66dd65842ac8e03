"""Keepers that a test opens by hand: waiting until they are ready, and reading their events."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from trainscale.launch.connected_hosts import EventReader, ask_all
from trainscale.launch.connection import AnyEvent, HostError, KeeperConnection, ReceivedEvent, select_causes, stop_all
from trainscale.launch.launchers.base import Launcher


@contextmanager
def opened(launcher: Launcher, hosts: Sequence[str] = ()) -> Iterator[list[KeeperConnection]]:
    """Open keepers, by default of all hosts, without waiting for them; end them with the block."""
    keepers = launcher.open(hosts or [host.name for host in launcher.access.hosts])
    try:
        yield keepers
    finally:
        stop_all(keepers, 2.0)


def try_ready(
    connections: Sequence[KeeperConnection], ports: Mapping[str, int], seconds: float = 120.0
) -> dict[str, list[int] | HostError]:
    """Return free ports of each host, or its error."""

    def ask(connection: KeeperConnection, deadline: float) -> list[int]:
        connection.become_ready(deadline)
        count = ports.get(connection.host, 0)
        return connection.find_ports(count, deadline) if count else []

    return ask_all(connections, ask, seconds)


def ready(
    connections: Sequence[KeeperConnection], ports: Mapping[str, int], seconds: float = 120.0
) -> dict[str, list[int]]:
    """Return free ports of each host, or raise the first error."""
    answers = try_ready(connections, ports, seconds)
    for error in select_causes(answer for answer in answers.values() if isinstance(answer, HostError)):
        raise error
    return {host: answer for host, answer in answers.items() if not isinstance(answer, HostError)}


def read_until(
    connections: Sequence[KeeperConnection], is_enough: Callable[[list[ReceivedEvent]], bool]
) -> list[ReceivedEvent]:
    """Read events until there are enough."""
    reader, received = EventReader(connections), list[ReceivedEvent]()
    deadline = time.monotonic() + 30
    while not is_enough(received):
        assert time.monotonic() < deadline, received
        received += reader.poll()
    return received


def events_of(received: Sequence[ReceivedEvent], kind: type[AnyEvent]) -> list[AnyEvent]:
    return [message.event for message in received if isinstance(message.event, kind)]
