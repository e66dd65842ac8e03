"""Asks hosts things: runs roles of the worker on many of them at once and brings back what each said."""

from __future__ import annotations

import ipaddress
import json
import selectors
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..cluster.devices import Found
from ..cluster.hosts import Host, Where
from ..errors import InputError
from ..worker.events import decode
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.machine import Machine
from .base import ITS_PYTHON, ITS_START, Launcher, Task, plan
from .keepers import HostError, Keeper, stop_all, try_ready

_SECONDS = 120.0


@dataclass(frozen=True)
class Question:
    """A role of the worker, the line it reads, and the interpreter that runs it (the keeper's own by default)."""

    role: str
    request: dict[str, Any]
    python: str = ITS_PYTHON


Answers = dict[str, list[dict[str, Any]] | HostError]


def ask(launcher: Launcher, questions: Mapping[str, Sequence[Question]], seconds: float = _SECONDS) -> Answers:
    """For each host, the event that answers each of its questions, or why the host cannot be asked. A question that
    was not answered has {"kind": "exit", "code", "tail"}: how its process ended.
    """
    keepers = launcher.open(list(questions))
    try:
        states = try_ready(keepers, {}, seconds)
        answers: Answers = {host: state for host, state in states.items() if isinstance(state, HostError)}
        able = [keeper for keeper in keepers if keeper.host not in answers]
        for keeper in able:
            tasks = [
                Task(number, [question.python, ITS_START, question.role], json.dumps(question.request))
                for number, question in enumerate(questions[keeper.host])
            ]
            keeper.write(plan(tasks, seconds))
        answers.update(_collect(able, {host: len(asked) for host, asked in questions.items()}, seconds))
    finally:
        stop_all(keepers)
    return {host: answers[host] for host in questions}


def _collect(keepers: Sequence[Keeper], counts: Mapping[str, int], seconds: float) -> Answers:
    said: dict[str, dict[int, dict[str, Any]]] = {keeper.host: {} for keeper in keepers}
    exits: dict[str, dict[int, dict[str, Any]]] = {keeper.host: {} for keeper in keepers}
    buffers = {keeper.host: keeper.take_left_over() for keeper in keepers}
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as selector:
        for keeper in keepers:
            selector.register(keeper.output, selectors.EVENT_READ, keeper)
        while selector.get_map() and time.monotonic() < until:
            for key, _ in selector.select(0.5):
                host = key.data.host
                data = key.fileobj.recv(65536) if isinstance(key.fileobj, socket.socket) else key.fileobj.read(65536)  # type: ignore[union-attr]
                *lines, buffers[host] = (buffers[host] + (data or b"")).split(b"\n")
                for line in lines:
                    _note(decode(line.decode(errors="replace")), said[host], exits[host])
                if not data or len(exits[host]) == counts[host]:
                    selector.unregister(key.fileobj)
    answers: Answers = {}
    for keeper in keepers:
        host = keeper.host
        if len(exits[host]) < counts[host]:
            answers[host] = HostError(host, keeper.last_complaint() or "stopped answering")
        else:
            answers[host] = [said[host].get(n, exits[host][n]) for n in range(counts[host])]
    return answers


def _note(event: dict[str, Any] | None, said: dict[int, dict[str, Any]], exits: dict[int, dict[str, Any]]) -> None:
    """Roles other than ranks do not say which they are; the keeper adds it when one is alone on its pipe."""
    if event is None or "rank" not in event:
        return
    (exits if event["kind"] == "exit" else said)[event["rank"]] = event


def look_at(
    launcher: Launcher, hosts: Sequence[Host], pythons: Mapping[str, str], seconds: float = _SECONDS
) -> dict[str, dict[str, Any] | HostError]:
    """What each host says of itself (worker/look.py), or why it cannot be reached. ``pythons``: where to look first
    for each framework.
    """
    wanted = {
        name: {"modules": list(FRAMEWORKS[name].imports), "pythons": [python] if python else []}
        for name, python in pythons.items()
    }
    request = {"frameworks": wanted, "folder": launcher.where.remote_dir}
    answers = ask(launcher, {host.name: [Question("look", request)] for host in hosts}, seconds)
    found: dict[str, dict[str, Any] | HostError] = {}
    for host, answer in answers.items():
        if isinstance(answer, HostError):
            found[host] = answer
        elif answer[0]["kind"] == "exit":
            lines = answer[0]["tail"].strip().splitlines()
            found[host] = HostError(host, f"cannot be looked at: {lines[-1] if lines else 'no message'}")
        else:
            found[host] = answer[0]
    return found


def found_of(host: Host, answer: Mapping[str, Any], where: Where) -> Found:
    """A host that was looked at, with the address and interface that training shall use."""
    address, interface = network_of(host, answer["addresses"], where.interface)
    return Found(
        machine=Machine.from_dict(answer["machine"]),
        host=host.name,
        address=address,
        interface=interface,
        slots=host.slots,
        pythons={name: python for name, python in answer["pythons"].items() if python},
    )


def network_of(host: Host, addresses: Mapping[str, str], wanted: str | None) -> tuple[str, str | None]:
    """Address and interface of a host: those that --interface means (a name, or a range such as 10.0.0.0/16), else
    those by which the hosts file names it.
    """
    shown = ", ".join(f"{name} {address}" for name, address in addresses.items())
    if wanted and "/" in wanted:
        network = ipaddress.ip_network(wanted, strict=False)
        for name, address in addresses.items():
            if ipaddress.ip_address(address) in network:
                return address, name
        raise InputError(f"interface {wanted}: {host.name} has no address in this range; it has {shown}")
    if wanted:
        if wanted not in addresses:
            raise InputError(f"interface {wanted!r}: {host.name} has none of this name with an address; it has {shown}")
        return addresses[wanted], wanted
    by_address = {address: name for name, address in addresses.items()}
    for known in _numeric(host.address):
        if known in by_address and not known.startswith("127."):
            return known, by_address[known]
    for name, address in addresses.items():
        if not address.startswith("127."):
            # Its name means nothing here, or a gateway's address: then the host's own word counts.
            return address, name
    return host.address, None


def _numeric(name: str) -> list[str]:
    try:
        return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)))
    except (OSError, UnicodeError):
        return []
