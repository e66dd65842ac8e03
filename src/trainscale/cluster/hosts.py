"""Hosts: their names, how they are reached, and how a hosts file describes them.

A hosts file may be in any dialect of the older systems: one name or address on each line; ``address ssh_alias``;
``address:port``; ``user@address``; ``address slots=4``. Comments and blank lines are skipped. After the names, a line
may have ``key=value`` pairs: slots, port, user, python and setup (a shell line, in quotes if it has spaces).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError, shorten, shorten_path
from ..spec.devices import Host
from ..worker.regular_files import read_regular

_KEYS = ("slots", "port", "user", "python", "setup")
_IGNORED = ("max_slots", "max-slots")  # Open MPI has them; this project never oversubscribes
_NAME = re.compile(r"[\w][\w.:%-]*", re.ASCII)
_MOST_HOSTS = 65536
_LONGEST_LINE = 4096  # characters
_LONGEST_NAME = 253  # characters, by the rules of the domain name system
_MOST_SLOTS = 65536
_MOST_BYTES = 1 << 24  # of a hosts file
_ADDRESS_AND_PORT = re.compile(r"(?P<address>[^:\[\]]+|\[[^\]]+\]):(?P<port>\d+)")


@dataclass(frozen=True)
class HostList:
    """The hosts of an experiment, and where they come from, for messages."""

    hosts: tuple[Host, ...] = ()
    source: str = ""


@dataclass(frozen=True)
class HostRequest:
    """What is requested from a cluster that chooses the hosts itself, such as YARN or Ray."""

    nodes: int | None = None
    device: str = "auto"
    devices: int | None = None  # on each host
    cores_per_device: int | None = None
    patience_seconds: float = 1800.0  # how long the cluster may take


@dataclass(frozen=True)
class HostAccess:
    """How hosts are reached. What a Host itself says comes first."""

    hosts: tuple[Host, ...] = ()
    remote_dir: str = "/tmp"
    python: str = ""
    setup: tuple[str, ...] = ()
    interface: str | None = None
    controller: str = ""  # the address by which hosts reach this machine; empty: the launcher finds it
    connect_seconds: int = 15  # how long ssh may take to connect
    request: HostRequest = HostRequest()

    def find_host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def join_setup(self, host: Host) -> tuple[str, ...]:
        return (*self.setup, *host.setup)


def read_hosts(path: Path) -> tuple[Host, ...]:
    """Read a hosts file. Errors name file and line."""
    try:
        # Some editors put a byte-order mark first.
        text = read_regular(path, _MOST_BYTES, pipes=True).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"hosts {shorten_path(path)}: cannot read this hosts file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"hosts {path}: this hosts file is not UTF-8 text") from None
    return parse_hosts(text, str(path))


def parse_hosts(text: str, source: str) -> tuple[Host, ...]:
    hosts: list[Host] = []
    lines: dict[str | tuple[str, int | None], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        position = f"{source}:{number}"
        host = _parse_line(line, position)
        if host is None:
            continue
        for identity in (host.name, (host.address, host.port)):
            if identity in lines:
                reason = f"host {host.name!r} is also on line {lines[identity]}"
                raise InputError(f"{position}: {reason}; valid: each once, with slots=N for N devices")
            lines[identity] = number
        hosts.append(host)
        if len(hosts) > _MOST_HOSTS:
            raise InputError(f"{position}: too many hosts; valid: at most {_MOST_HOSTS}")
    if not hosts:
        raise InputError(f"hosts {source}: no host in this file; valid: a name or an address on each line")
    return tuple(hosts)


def _parse_line(line: str, position: str) -> Host | None:
    if len(line) > _LONGEST_LINE:
        raise InputError(f"{position}: this line has {len(line)} characters; valid: at most {_LONGEST_LINE}")
    if "\0" in line:
        raise InputError(f"{position}: {shorten(line.strip())!r} has a NUL character")
    try:
        parts = shlex.split(line, comments=True)
    except ValueError as error:
        raise InputError(f"{position}: {shorten(line.strip())!r}: {error}") from None
    if not parts:
        return None
    names = [part for part in parts if "=" not in part]
    if not names or len(names) > 2 or parts[: len(names)] != names:
        raise InputError(
            f"{position}: {shorten(line.strip())!r} is not a host; valid: ADDRESS [SSH_ALIAS] [slots=N] [port=N] …"
        )
    user, _, address_and_port = names[0].rpartition("@")
    address, port = _split_port(address_and_port, position)
    for name in (address, *names[1:]):
        if not _NAME.fullmatch(name):
            raise InputError(f"{position}: {shorten(name)!r} is not a host name or an address")
        if len(name) > _LONGEST_NAME:
            raise InputError(f"{position}: a name of {len(name)} characters; valid: at most {_LONGEST_NAME}")
    values = _parse_pairs(parts[len(names) :], position)
    return Host(
        address=address,
        alias=names[1] if len(names) == 2 else "",
        port=_parse_port(values["port"], position) if "port" in values else port,
        user=values.get("user", user),
        slots=_parse_slots(values["slots"], position) if "slots" in values else None,
        python=values.get("python", ""),
        setup=(values["setup"],) if values.get("setup") else (),
    )


def _split_port(text: str, position: str) -> tuple[str, int | None]:
    """Split "10.0.0.1:2222" and "[fe80::1]:22". Several colons without brackets are an IPv6 address."""
    match = _ADDRESS_AND_PORT.fullmatch(text)
    if match:
        return match["address"].strip("[]"), _parse_port(match["port"], position)
    return text.strip("[]"), None


def _parse_port(text: str, position: str) -> int:
    return _parse_number("port", text, 65535, position)


def _parse_slots(text: str, position: str) -> int:
    return _parse_number("slots", text, _MOST_SLOTS, position)


def _parse_number(key: str, text: str, most: int, position: str) -> int:
    digits = text.lstrip("0")
    if not text.isdecimal() or not digits or len(digits) > len(str(most)) or int(digits) > most:
        raise InputError(f"{position}: {key} {text[:60]!r}; valid: 1 … {most}")
    return int(digits)


def _parse_pairs(pairs: Sequence[str], position: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in pairs:
        key, _, value = pair.partition("=")
        if key not in (*_KEYS, *_IGNORED):
            raise InputError(f"{position}: unknown key {shorten(key)!r}; valid: {', '.join(_KEYS)}")
        if key in values:
            raise InputError(f"{position}: {key} is given twice; valid: once")
        values[key] = value
    return values


def select_first_hosts(hosts: Sequence[Host], count: int | None, source: str) -> tuple[Host, ...]:
    """Return the hosts that --hosts-count leaves."""
    if count is not None and count > len(hosts):
        raise InputError(f"hosts count {count}: {source} has {len(hosts)}; valid: 1 … {len(hosts)}")
    return tuple(hosts[:count])
