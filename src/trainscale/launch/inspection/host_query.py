"""Asks hosts things: runs roles of the worker on many of them at once and brings back what each said."""

from __future__ import annotations

import ipaddress
import json
import os
import selectors
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ...cluster.devices import UsableHost
from ...cluster.hosts import Host, HostAccess
from ...errors import InputError
from ...worker.events import decode
from ...worker.frameworks.catalog import FRAMEWORKS
from ...worker.inspection.machine import Machine
from ..connections.fan_out import time_left
from ..connections.keeper import HostError, KeeperConnection, stop_all, try_ready
from ..launchers.base import ITS_PYTHON, ITS_START, Launcher, Task, plan

_SECONDS = 120.0
_POLL_SECONDS = 0.25
_CUT_SECONDS = 1.0  # for a host that did not answer to hear that nobody listens any more


@dataclass(frozen=True)
class Question:
    """A role of the worker, the line it reads, and the interpreter that runs it (the keeper's own by default)."""

    role: str
    request: dict[str, Any]
    python: str = ITS_PYTHON


Answers = dict[str, list[dict[str, Any]] | HostError]


class HostQuery:
    """Keepers on hosts, for one round of questions; gone when left. ``errors`` says which hosts cannot be asked and
    why, ``ports`` which ports of the others are free, as many as wanted. In a ``hurry``, hosts that are much later than
    the others are given up.
    """

    def __init__(
        self,
        launcher: Launcher,
        hosts: Iterable[str],
        seconds: float = _SECONDS,
        *,
        ports: int = 0,
        hurry: bool = False,
    ) -> None:
        self._launcher, self._hosts, self._seconds, self._ports, self._hurry = (
            launcher,
            list(hosts),
            seconds,
            ports,
            hurry,
        )
        self._keepers: list[KeeperConnection] = []
        self.errors: dict[str, HostError] = {}
        self.ports: dict[str, list[int]] = {}

    def __enter__(self) -> HostQuery:
        self._keepers = self._launcher.open(self._hosts)
        try:
            wanted = dict.fromkeys(self._hosts, self._ports)
            states = try_ready(self._keepers, wanted, self._seconds, hurry=self._hurry, clocks=True)
        except BaseException:
            stop_all(self._keepers)
            raise
        self.errors = {host: state for host, state in states.items() if isinstance(state, HostError)}
        self.ports = {host: state for host, state in states.items() if not isinstance(state, HostError)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        stop_all(self._keepers, _CUT_SECONDS if self.errors else 10.0)

    def keeper(self, host: str) -> KeeperConnection:
        return next(keeper for keeper in self._keepers if keeper.host == host)

    def ask(self, questions: Mapping[str, Sequence[Question]]) -> Answers:
        """For each host, the event that answers each of its questions, or why it cannot be asked. A question that was
        not answered has {"kind": "exit", "code", "tail"}: how its process ended.
        """
        able = [self.keeper(host) for host in questions if host not in self.errors]
        for keeper in able:
            tasks = [
                Task(number, [question.python, ITS_START, question.role], json.dumps(question.request))
                for number, question in enumerate(questions[keeper.host])
            ]
            keeper.write(plan(tasks, self._seconds))
        heard = _Heard(able, {host: len(asked) for host, asked in questions.items()})
        heard.listen(self._seconds, self._hurry)
        answers = {keeper.host: heard.answer(keeper) for keeper in able}
        self.errors.update({host: answer for host, answer in answers.items() if isinstance(answer, HostError)})
        return {host: answers.get(host) or self.errors[host] for host in questions}


def ask(launcher: Launcher, questions: Mapping[str, Sequence[Question]], seconds: float = _SECONDS) -> Answers:
    with HostQuery(launcher, questions, seconds) as contact:
        return contact.ask(questions)


class _Heard:
    """What keepers say of their roles. A role may answer in several lines of one kind."""

    def __init__(self, keepers: Sequence[KeeperConnection], counts: Mapping[str, int]) -> None:
        self._keepers, self._counts = keepers, counts
        self._said: dict[str, dict[int, dict[str, Any]]] = {keeper.host: {} for keeper in keepers}
        self._exits: dict[str, dict[int, dict[str, Any]]] = {keeper.host: {} for keeper in keepers}
        self._buffers = {keeper.host: b"" for keeper in keepers}

    def listen(self, seconds: float, hurry: bool) -> None:
        """Until all have answered, or that time has passed, or the others have answered long ago."""
        began = time.monotonic()
        until, half_done = began + seconds, not hurry
        with selectors.DefaultSelector() as selector:
            for keeper in self._keepers:
                self._take(keeper.host, keeper.take_left_over())
                if not self._complete(keeper.host):
                    selector.register(keeper.output, selectors.EVENT_READ, keeper)
            while (waiting := len(selector.get_map())) and time.monotonic() < until:
                if not half_done and 2 * waiting <= len(self._keepers):
                    half_done, now = True, time.monotonic()
                    until = min(until, now + time_left(now - began))
                for key, _ in selector.select(_POLL_SECONDS):
                    data = _read(key.fd)
                    self._take(key.data.host, data)
                    if not data or self._complete(key.data.host):
                        selector.unregister(key.fileobj)

    def answer(self, keeper: KeeperConnection) -> list[dict[str, Any]] | HostError:
        said, exits = self._said[keeper.host], self._exits[keeper.host]
        if self._complete(keeper.host):
            return [said.get(number, exits[number]) for number in range(self._counts[keeper.host])]
        return HostError(keeper.host, keeper.last_complaint() or "it stopped answering")

    def _complete(self, host: str) -> bool:
        return len(self._exits[host]) == self._counts[host]

    def _take(self, host: str, data: bytes) -> None:
        *lines, self._buffers[host] = (self._buffers[host] + data).split(b"\n")
        for line in lines:
            event = decode(line.decode(errors="replace"))
            if event is None or "rank" not in event or event["kind"] == "log":
                continue
            number = event["rank"]
            if event["kind"] == "exit":
                self._exits[host][number] = event
            else:
                self._said[host][number] = {**self._said[host].get(number, {}), **event}


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65536)
    except OSError:  # a connection whose other end lost its power
        return b""


def read_host_facts(
    launcher: Launcher,
    hosts: Sequence[Host],
    pythons: Mapping[str, str],
    seconds: float = _SECONDS,
    *,
    hurry: bool = False,
) -> dict[str, dict[str, Any] | HostError]:
    """What each host says of itself (host_facts.py of the worker), or why it cannot be reached.
    ``pythons``: where to look first
    for each framework. Added are ``ahead_seconds``, the least and the most by which the host's clock is ahead of this
    one, and ``copied``: whether the worker was copied there just now.
    """
    wanted = {
        name: {"modules": list(FRAMEWORKS[name].imports), "pythons": [python] if python else []}
        for name, python in pythons.items()
    }
    request = {"frameworks": wanted, "folder": launcher.access.remote_dir}
    names = [host.name for host in hosts]
    with HostQuery(launcher, names, seconds, hurry=hurry) as contact:
        answers = contact.ask({name: [Question("look", request)] for name in names})
        return {name: _looked(answers[name], contact.keeper(name)) for name in names}


def _looked(answer: list[dict[str, Any]] | HostError, keeper: KeeperConnection) -> dict[str, Any] | HostError:
    if isinstance(answer, HostError):
        return answer
    if "frameworks" not in answer[0]:
        lines = str(answer[0].get("tail", "")).strip().splitlines()
        return HostError(keeper.host, f"cannot be looked at: {lines[-1] if lines else 'no message'}")
    machine = {**answer[0]["machine"], "gpus": answer[0]["gpus"]}
    return {**answer[0], "machine": machine, "ahead_seconds": keeper.ahead_seconds, "copied": keeper.copied}


def usable_host(host: Host, answer: Mapping[str, Any], where: HostAccess) -> UsableHost:
    """A host that was looked at, with the address and interface that training shall use."""
    address, interface = network_of(host, answer["addresses"], where.interface, answer.get("reached_at", ""))
    return UsableHost(
        machine=Machine.from_dict({"gpus": answer["gpus"], **answer["machine"]}),
        host=host.name,
        address=address,
        interface=interface,
        slots=host.slots,
        pythons={name: one["python"] for name, one in answer["frameworks"].items() if one},
    )


def network_of(
    host: Host, addresses: Mapping[str, str], wanted: str | None, reached_at: str = ""
) -> tuple[str, str | None]:
    """Address and interface of a host: those that --interface means (a name, or a range such as 10.0.0.0/16), else
    those by which the hosts file names it, else those at which ssh reached it, else those of its default route.
    """
    shown = ", ".join(f"{name} {address}" for name, address in addresses.items())
    if wanted and "/" in wanted:
        network = _range(wanted)
        for name, address in addresses.items():
            if ipaddress.ip_address(address) in network:
                return address, name
        raise InputError(f"interface {wanted}: {host.name} has no address in this range; it has {shown}")
    if wanted:
        if wanted not in addresses:
            raise InputError(f"interface {wanted!r}: {host.name} has none of this name with an address; it has {shown}")
        return addresses[wanted], wanted
    by_address = {address: name for name, address in addresses.items() if not address.startswith("127.")}
    for known in (*_numeric(host.address), reached_at, *by_address):
        if known in by_address:
            return known, by_address[known]
    return host.address, None


def _range(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise InputError(f"interface {text!r}: {error}; valid: a range such as 10.0.0.0/16, or a name") from None


def _numeric(name: str) -> list[str]:
    try:
        return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)))
    except (OSError, UnicodeError):
        return []
