"""A survey of hosts, for ``trainscale check --hosts``: what each says of itself, and how fast the network between them
is.

All at once; a host that hangs does not hold up the rest.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...cluster.devices import UsableHost
from ...cluster.hosts import Host
from ...errors import InputError
from ..connections.keeper import HostError
from ..launchers.base import Launcher
from .host_query import HostQuery, Question, read_host_facts, usable_host

_LOOK_SECONDS = 30.0
_LINK_SECONDS = 5.0  # for a neighbour to answer
_LINKS_SECONDS = 60.0


@dataclass(frozen=True)
class Surveyed:
    """One host. ``error`` says why it cannot be used; else ``answer`` is what it said of itself, and
    ``found`` what a run would see of it.
    """

    host: Host
    answer: Mapping[str, Any] = field(default_factory=dict)
    found: UsableHost | None = None
    error: HostError | None = None


@dataclass(frozen=True)
class Link:
    """From one host to the next. ``error`` where nothing could be measured."""

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
    hosts: tuple[Surveyed, ...]
    links: tuple[Link, ...] = ()

    @property
    def usable(self) -> tuple[Surveyed, ...]:
        return tuple(one for one in self.hosts if one.error is None)

    def link_from(self, host: str) -> Link | None:
        return next((link for link in self.links if link.sender == host), None)


def survey(launcher: Launcher, pythons: Mapping[str, str]) -> Survey:
    """``pythons``: where to look first for each framework."""
    hosts = launcher.hosts()
    answers = read_host_facts(launcher, hosts, pythons, _LOOK_SECONDS, hurry=True)
    surveyed = tuple(_surveyed(host, answers[host.name], launcher) for host in hosts)
    able = [one.found for one in surveyed if one.found is not None]
    return Survey(surveyed, measure_links(launcher, able) if len(able) > 1 else ())


def _surveyed(host: Host, answer: dict[str, Any] | HostError, launcher: Launcher) -> Surveyed:
    if isinstance(answer, HostError):
        return Surveyed(host, error=answer)
    try:
        return Surveyed(host, answer, usable_host(host, answer, launcher.access))
    except InputError as error:  # it has no such interface
        return Surveyed(host, error=HostError(host.name, str(error), remedy="name another network by --interface"))


def measure_links(launcher: Launcher, hosts: Sequence[UsableHost]) -> tuple[Link, ...]:
    """Round a ring of these hosts, in their order, over the addresses that training would use."""
    names = [one.host for one in hosts]
    token = secrets.token_hex(16)
    with HostQuery(launcher, names, _LINKS_SECONDS, ports=1, hurry=True) as contact:
        able = [one for one in hosts if one.host not in contact.errors]
        places = [(one.address, contact.ports[one.host][0]) for one in able]
        questions = {
            one.host: [
                Question(
                    "links",
                    {
                        "address": places[number][0],
                        "port": places[number][1],
                        "next": places[(number + 1) % len(places)],
                        "sends_first": sends_first(number, len(places)),
                        "token": token,
                        "seconds": _LINK_SECONDS,
                    },
                )
            ]
            for number, one in enumerate(able)
        }
        answers = contact.ask(questions) if len(able) > 1 else {}
    lost = [Link(host, "the others", error=error.why) for host, error in contact.errors.items() if host not in answers]
    said = {host: _said(answer) for host, answer in answers.items()}
    ring = list(said)
    return (*(_link(said, host, ring[(n + 1) % len(ring)]) for n, host in enumerate(ring)), *lost)


def sends_first(number: int, count: int) -> bool:
    """Every other host of a ring does. In an odd ring not the last, though: its receiver, the first, does already."""
    return number % 2 == 0 and not (count % 2 and number == count - 1)


def _said(answer: list[dict[str, Any]] | HostError) -> dict[str, Any]:
    if isinstance(answer, HostError):
        return {"send_error": answer.why, "receive_error": answer.why}
    if answer[0]["kind"] == "exit":
        tail = str(answer[0]["tail"]).strip().splitlines()
        words = tail[-1] if tail else "ended without an answer"
        return {"send_error": words, "receive_error": words}
    return answer[0]


def _link(said: Mapping[str, dict[str, Any]], sender: str, receiver: str) -> Link:
    """The sender knows how long a word takes, the receiver how much came in. If both have an error, the sender's says
    more: the receiver only waited.
    """
    there, here = said[sender], said[receiver]
    return Link(
        sender,
        receiver,
        here.get("bits_per_second"),
        there.get("round_trip_seconds"),
        there.get("send_error") or here.get("receive_error", ""),
    )
