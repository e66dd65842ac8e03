"""Reads what hosts say about themselves (worker/inspection/host_facts.py) and makes them usable for a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...cluster.devices import UsableHost
from ...cluster.hosts import Host, HostAccess
from ...record.decoding import DecodingError, convert, decode_object
from ...worker.events import HostFactsPiece
from ...worker.frameworks.catalog import FRAMEWORKS
from ...worker.inspection.host_facts import FrameworkSearch, HostFacts, HostFactsRequest
from ..connected_hosts import ConnectOptions
from ..connection import HostError, KeeperConnection
from ..launchers.base import Launcher
from .host_tasks import TaskAnswer, make_role_task, run_host_tasks
from .networks import choose_network

_SECONDS = 120.0


def read_host_facts(
    launcher: Launcher,
    hosts: Sequence[Host],
    pythons: Mapping[str, str],
    seconds: float = _SECONDS,
    *,
    hurry: bool = False,
) -> dict[str, HostFacts | HostError]:
    """Return the facts of each host, or why it cannot be reached. ``pythons``: where to look first for each framework.
    In a ``hurry``, hosts that are much later than the others are given up.
    """
    searches = {
        name: FrameworkSearch(list(FRAMEWORKS[name].imports), [python] if python else [])
        for name, python in pythons.items()
    }
    request = HostFactsRequest(searches, launcher.access.remote_dir)
    names = [host.name for host in hosts]
    options = ConnectOptions(seconds, tolerates_errors=True, hurry=hurry, compares_clocks=True)
    with launcher.connect(names, options) as connected:
        tasks = {name: [make_role_task(name, 0, "look", request)] for name in names}
        answers = run_host_tasks(connected, tasks, seconds, hurry=hurry)
        return {
            name: answer if isinstance(answer, HostError) else decode_facts(answer[0], connected.find_connection(name))
            for name, answer in answers.items()
        }


def decode_facts(answer: TaskAnswer, connection: KeeperConnection) -> HostFacts | HostError:
    """Put the pieces of a host's facts together, and add what the connection knows."""
    text = "".join(piece.text for piece in answer.select_events(HostFactsPiece))
    try:
        facts = convert(decode_object(text), HostFacts)
    except DecodingError:
        return HostError(connection.host, f"cannot be inspected: {answer.last_line or 'no message'}")
    return replace(facts, clock_ahead_seconds=connection.clock_ahead_seconds, worker_copied=connection.copied)


def make_usable_host(host: Host, facts: HostFacts, access: HostAccess) -> UsableHost:
    """Return the host with the address and interface that training uses."""
    address, interface = choose_network(host, facts.addresses, access.interface, facts.reached_at)
    return UsableHost(
        machine=facts.machine,
        host=host.name,
        address=address,
        interface=interface,
        slots=host.slots,
        pythons={name: location.python for name, location in facts.frameworks.items() if location},
    )
