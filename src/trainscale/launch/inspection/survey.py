"""A survey of hosts, for ``trainscale check --hosts``: the facts of each host, and the speed of the network between
them. All hosts are asked at once, and one that hangs does not delay the others.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...cluster.devices import UsableHost
from ...cluster.hosts import Host
from ...errors import InputError
from ...worker.events import Links
from ...worker.inspection.host_facts import HostFacts
from ...worker.inspection.links import LinksRequest
from ..connected_hosts import ConnectOptions
from ..connection import HostError
from ..launchers.base import Launcher
from .host_facts import make_usable_host, read_host_facts
from .host_tasks import TaskAnswer, make_role_task, run_host_tasks

_FACTS_SECONDS = 30.0
_LINK_SECONDS = 5.0  # for a neighbour to answer
_LINKS_SECONDS = 60.0


@dataclass(frozen=True)
class SurveyedHost:
    """One host: its facts and what a run would use of it, or the error why it cannot be used."""

    host: Host
    facts: HostFacts | None = None
    usable_host: UsableHost | None = None
    error: HostError | None = None


@dataclass(frozen=True)
class Link:
    """The network from one host to the next, or the error why it could not be measured."""

    sender: str
    receiver: str
    bits_per_second: float | None = None
    round_trip_seconds: float | None = None
    error: str = ""

    @property
    def name(self) -> str:
        return f"{self.sender} → {self.receiver}"


@dataclass(frozen=True)
class Survey:
    hosts: tuple[SurveyedHost, ...]
    links: tuple[Link, ...] = ()

    @property
    def usable(self) -> tuple[SurveyedHost, ...]:
        return tuple(host for host in self.hosts if host.error is None)

    def find_link_from(self, host: str) -> Link | None:
        return next((link for link in self.links if link.sender == host), None)


def survey(launcher: Launcher, pythons: Mapping[str, str]) -> Survey:
    """Survey all hosts of the launcher. ``pythons``: where to look first for each framework."""
    hosts = launcher.hosts()
    answers = read_host_facts(launcher, hosts, pythons, _FACTS_SECONDS, hurry=True)
    surveyed = tuple(_survey_host(host, answers[host.name], launcher) for host in hosts)
    usable_hosts = [host.usable_host for host in surveyed if host.usable_host is not None]
    return Survey(surveyed, measure_links(launcher, usable_hosts) if len(usable_hosts) > 1 else ())


def _survey_host(host: Host, answer: HostFacts | HostError, launcher: Launcher) -> SurveyedHost:
    if isinstance(answer, HostError):
        return SurveyedHost(host, error=answer)
    try:
        return SurveyedHost(host, answer, make_usable_host(host, answer, launcher.access))
    except InputError as error:  # it has no such interface
        return SurveyedHost(host, error=HostError(host.name, str(error), remedy="name another network by --interface"))


def measure_links(launcher: Launcher, hosts: Sequence[UsableHost]) -> tuple[Link, ...]:
    """Measure the links of a ring of these hosts, in their order, over the addresses that training would use."""
    names = [host.host for host in hosts]
    options = ConnectOptions(_LINKS_SECONDS, tolerates_errors=True, hurry=True)
    with launcher.connect(names, options) as connected:
        ports = connected.find_ports(dict.fromkeys(names, 1))
        ring = [host for host in hosts if host.host in ports]
        requests = _make_link_requests(ring, ports)
        tasks = {
            host.host: [make_role_task(host.host, 0, "links", request)]
            for host, request in zip(ring, requests, strict=True)
        }
        answers = run_host_tasks(connected, tasks, _LINKS_SECONDS, hurry=True) if len(ring) > 1 else {}
    lost = [
        Link(host, "the others", error=error.why) for host, error in connected.errors.items() if host not in answers
    ]
    measured = {host: _read_links(answer) for host, answer in answers.items()}
    order = list(measured)
    links = [_make_link(measured, host, order[(number + 1) % len(order)]) for number, host in enumerate(order)]
    return (*links, *lost)


def _make_link_requests(ring: Sequence[UsableHost], ports: Mapping[str, Sequence[int]]) -> list[LinksRequest]:
    token = secrets.token_hex(16)
    requests = []
    for number, host in enumerate(ring):
        following = ring[(number + 1) % len(ring)]
        requests.append(
            LinksRequest(
                address=host.address,
                port=ports[host.host][0],
                next_address=following.address,
                next_port=ports[following.host][0],
                sends_first=sends_first(number, len(ring)),
                token=token,
                seconds=_LINK_SECONDS,
            )
        )
    return requests


def sends_first(number: int, count: int) -> bool:
    """Every other host of a ring sends first. The last host of an odd ring does not, because the first one does."""
    return number % 2 == 0 and not (count % 2 and number == count - 1)


def _read_links(answer: list[TaskAnswer] | HostError) -> Links:
    if isinstance(answer, HostError):
        return Links(send_error=answer.why, receive_error=answer.why)
    error = answer[0].last_line or "ended without an answer"
    return answer[0].find_last(Links) or Links(send_error=error, receive_error=error)


def _make_link(measured: Mapping[str, Links], sender: str, receiver: str) -> Link:
    """Return the link. The sender knows the round trip, the receiver the bandwidth. If both have an error, the sender's
    explains more, because the receiver only waited.
    """
    sent, received = measured[sender], measured[receiver]
    error = sent.send_error or received.receive_error
    return Link(sender, receiver, received.bits_per_second, sent.round_trip_seconds, error)
