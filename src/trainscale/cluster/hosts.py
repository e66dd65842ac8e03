"""Hosts: who they are, how they are reached, and what a hosts file says of them.

Every dialect of the older systems is read: one name or address a line; ``address ssh_alias``; ``address:port``;
``user@address``; ``address slots=4``. Comments and blank lines are skipped. After the names a line may have
``key=value`` words: slots, port, user, python and setup (a shell line, in quotes when it has spaces).
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError

_KEYS = ("slots", "port", "user", "python", "setup")
_IGNORED = ("max_slots", "max-slots")  # of Open MPI's dialect; nothing here oversubscribes
_NAME = re.compile(r"[\w][\w.:%-]*", re.ASCII)
_ADDRESS_AND_PORT = re.compile(r"(?P<address>[^:\[\]]+|\[[^\]]+\]):(?P<port>\d+)")


@dataclass(frozen=True)
class Host:
    """``address`` is what other hosts call it; ``alias`` is what ssh calls it."""

    address: str
    alias: str = ""
    port: int | None = None  # of its sshd
    user: str = ""
    slots: int | None = None
    python: str = ""  # that runs the keeper there
    setup: tuple[str, ...] = ()  # shell lines before it

    @property
    def name(self) -> str:
        """The name that is shown, and by which everything here knows the host."""
        return self.alias or self.address


@dataclass(frozen=True)
class Request:
    """What a cluster that chooses the hosts itself is asked for: YARN, Ray."""

    nodes: int | None = None
    device: str = "auto"
    devices: int | None = None  # on each host
    cores_per_device: int | None = None
    queue: str = "default"  # YARN's
    yarn: tuple[str, ...] = ()  # further options of its distributed shell
    ray_address: str = ""
    patience_seconds: float = 1800.0  # for it to give them


@dataclass(frozen=True)
class HostAccess:
    """All that says how hosts are reached; launchers are made from it. What a host says of itself wins."""

    hosts: tuple[Host, ...] = ()
    remote_dir: str = "/tmp"
    python: str = ""
    setup: tuple[str, ...] = ()
    interface: str | None = None
    controller: str = ""  # what the hosts call this machine, where it cannot be found out
    ssh_config: str | None = None
    forward_agent: bool = False
    connect_seconds: int = 15  # that ssh may take for a connection
    request: Request = Request()

    def host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def setup_of(self, host: Host) -> tuple[str, ...]:
        return (*self.setup, *host.setup)


def read_hosts(path: Path) -> tuple[Host, ...]:
    """Those of a hosts file, in its order. Wrong lines are named by file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a mark
    except OSError as error:
        raise InputError(f"hosts {path}: cannot read this hosts file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"hosts {path}: this hosts file is not UTF-8 text") from None
    return parse_hosts(text, str(path))


def parse_hosts(text: str, source: str) -> tuple[Host, ...]:
    found: list[Host] = []
    lines: dict[str | tuple[str, int | None], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{source}:{number}"
        host = _parse_line(line, where)
        if host is None:
            continue
        for known in (host.name, (host.address, host.port)):
            if known in lines:
                words = f"host {host.name!r} is also on line {lines[known]}"
                raise InputError(f"{where}: {words}; valid: each once, with slots=N for N devices")
            lines[known] = number
        found.append(host)
    if not found:
        raise InputError(f"hosts {source}: no host in this file; valid: a name or an address on each line")
    return tuple(found)


def _parse_line(line: str, where: str) -> Host | None:
    try:
        words = shlex.split(line, comments=True)
    except ValueError as error:
        raise InputError(f"{where}: {line.strip()!r}: {error}") from None
    if not words:
        return None
    names = [word for word in words if "=" not in word]
    if not names or len(names) > 2 or words[: len(names)] != names:
        raise InputError(f"{where}: {line.strip()!r} is not a host; valid: ADDRESS [SSH_ALIAS] [slots=N] [port=N] …")
    user, _, rest = names[0].rpartition("@")
    address, port = _split_port(rest, where)
    alias = names[1] if len(names) == 2 else ""
    for name in (address, *names[1:]):
        if not _NAME.fullmatch(name):
            raise InputError(f"{where}: {name!r} is not a host name or an address")
    values = _pairs(words[len(names) :], where)
    return Host(
        address=address,
        alias=alias,
        port=_valid_port(values["port"], where) if "port" in values else port,
        user=values.get("user", user),
        slots=_number(values, "slots", where),
        python=values.get("python", ""),
        setup=(values["setup"],) if values.get("setup") else (),
    )


def _split_port(text: str, where: str) -> tuple[str, int | None]:
    """«10.0.0.1:2222», «[fe80::1]:22», and plain names. More than one colon without brackets is an IPv6 address."""
    match = _ADDRESS_AND_PORT.fullmatch(text)
    if match:
        return match["address"].strip("[]"), _valid_port(match["port"], where)
    return text.strip("[]"), None


def _valid_port(text: str, where: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 65536:
        raise InputError(f"{where}: port {text!r}; valid: 1 … 65535")
    return int(text)


def _pairs(words: Sequence[str], where: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in (*_KEYS, *_IGNORED):
            raise InputError(f"{where}: unknown key {key!r}; valid: {', '.join(_KEYS)}")
        if key in found:
            raise InputError(f"{where}: {key} is given twice; valid: once")
        found[key] = value
    return found


def _number(values: dict[str, str], key: str, where: str) -> int | None:
    if key not in values:
        return None
    if not values[key].isdecimal() or int(values[key]) < 1:
        raise InputError(f"{where}: {key} {values[key]!r}; valid: a whole number, 1 or more")
    return int(values[key])


def first_hosts(hosts: Sequence[Host], count: int | None, source: str) -> tuple[Host, ...]:
    """Those that --hosts-count leaves."""
    if count is not None and count > len(hosts):
        raise InputError(f"hosts count {count}: {source} has {len(hosts)}; valid: 1 … {len(hosts)}")
    return tuple(hosts[:count])
