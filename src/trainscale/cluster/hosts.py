"""Hosts: how a hosts file describes them, how they are reached, and which devices they have.

A hosts file may be in any dialect of the older systems: one name or address on each line; ``address ssh_alias``;
``address:port``; ``user@address``; ``address slots=4``. Further pairs are port, user, python and setup.
"""

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import InputError, shorten, shorten_path
from ..spec.devices import LOCALHOST, LOOPBACK, AvailableDevices, Host
from ..spec.experiment import Experiment
from ..spec.settings import whole
from ..worker.inspection.host import HostFacts, Machine
from ..worker.job import Device
from ..worker.regular_files import read_regular

_KEYS = ("slots", "port", "user", "python", "setup")
_IGNORED = ("max_slots", "max-slots")  # Open MPI has them; this project never oversubscribes
_NAME = re.compile(r"[\w][\w.:%-]{0,252}", re.ASCII)
_LONGEST_LINE = 4096  # characters
_NUMBERS = {
    "port": replace(whole(1, 65535), name="port 1 … 65535"),
    "slots": replace(whole(1, 65536), name="slots 1 … 65536"),
}
_MOST_BYTES = 1 << 24  # of a hosts file
_ADDRESS_AND_PORT = re.compile(r"(?P<address>[^:\[\]]+|\[[^\]]+\]):(?P<port>\d+)")
_MOST_CPU_SLOTS = 8  # by default: a ladder to 128 single cores would measure the memory bus


@dataclass(frozen=True)
class HostList:
    hosts: tuple[Host, ...] = ()
    source: str = ""


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
    # What is requested from a cluster that chooses the hosts itself, such as YARN or Ray.
    nodes: int | None = None
    device: str = "auto"
    devices: int | None = None  # on each host
    cores_per_device: int | None = None
    patience_seconds: float = 1800.0  # how long the cluster may take

    def find_host(self, name: str) -> Host:
        return next(host for host in self.hosts if host.name == name)

    def join_setup(self, host: Host) -> tuple[str, ...]:
        return (*self.setup, *host.setup)


# ---- hosts files


def read_hosts(path: Path) -> tuple[Host, ...]:
    try:
        # Some editors put a byte-order mark first.
        text = read_regular(path, _MOST_BYTES, pipes=True).decode("utf-8-sig")
    except OSError as error:
        raise InputError(f"hosts {shorten_path(path)}: cannot read this hosts file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"hosts {path}: this hosts file is not UTF-8 text") from None
    hosts: list[Host] = []
    lines: dict[str | tuple[str, int | None], int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        try:
            host = _parse_line(line)
            if host is None:
                continue
            for identity in (host.name, (host.address, host.port)):
                if identity in lines:
                    reason = f"host {host.name!r} is also on line {lines[identity]}"
                    raise ValueError(f"{reason}; valid: each once, with slots=N for N devices")
                lines[identity] = number
            hosts.append(host)
        except ValueError as error:
            raise InputError(f"{path}:{number}: {error}") from None
    if not hosts:
        raise InputError(f"hosts {path}: no host in this file; valid: a name or an address on each line")
    return tuple(hosts)


def _parse_line(line: str) -> Host | None:
    shown = repr(shorten(line.strip()))
    if len(line) > _LONGEST_LINE:
        raise ValueError(f"this line has {len(line)} characters; valid: at most {_LONGEST_LINE}")
    try:
        if "\0" in line:
            raise ValueError("it has a NUL character")
        parts = shlex.split(line, comments=True)
    except ValueError as error:
        raise ValueError(f"{shown}: {error}") from None
    if not parts:
        return None
    names = [part for part in parts if "=" not in part]
    if not names or len(names) > 2 or parts[: len(names)] != names:
        raise ValueError(f"{shown} is not a host; valid: ADDRESS [SSH_ALIAS] [slots=N] [port=N] …")
    user, _, address = names[0].rpartition("@")
    values = {"user": user} if user else {}
    match = _ADDRESS_AND_PORT.fullmatch(address)  # several colons without brackets are an IPv6 address
    if match:
        address, values["port"] = match["address"], match["port"]
    names[0] = address.strip("[]")
    for name in names:
        if not _NAME.fullmatch(name):
            raise ValueError(f"{shorten(name)!r} is not a host name or an address")
    given = set()
    for part in parts[len(names) :]:
        key, _, value = part.partition("=")
        if key not in (*_KEYS, *_IGNORED):
            raise ValueError(f"unknown key {shorten(key)!r}; valid: {', '.join(_KEYS)}")
        if key in given:
            raise ValueError(f"{key} is given twice; valid: once")
        given.add(key)
        values[key] = value
    numbers = {key: kind.read_text(values[key]) for key, kind in _NUMBERS.items() if key in values}
    return Host(
        address=names[0],
        alias=names[1] if len(names) == 2 else "",
        **numbers,
        user=values.get("user", ""),
        python=values.get("python", ""),
        setup=(values["setup"],) if values.get("setup") else (),
    )


def select_first_hosts(hosts: Sequence[Host], count: int | None, source: str) -> tuple[Host, ...]:
    if count is not None and count > len(hosts):
        raise InputError(f"hosts count {count}: {source} has {len(hosts)}; valid: 1 … {len(hosts)}")
    return tuple(hosts[:count])


# ---- devices: GPUs, or CPU slots with a fixed number of cores each


def find_local_devices(machine: Machine, experiment: Experiment) -> AvailableDevices:
    return find_devices([Host(LOOPBACK, LOCALHOST, facts=HostFacts(machine))], experiment)


def find_devices(visited: Sequence[Host], experiment: Experiment) -> AvailableDevices:
    """Use the requested kind, else the first host's, as -g and slots allow."""
    machine, resources = get_machine(visited[0]), experiment.resources
    fewest = min(len(get_machine(host).cores) for host in visited)
    kind = resources.device if resources.device != "auto" else "cuda" if machine.gpus else "cpu"
    cores = resources.cores_per_device or math.ceil(fewest / _MOST_CPU_SLOTS)
    hosts, descriptions = [], []
    for host in visited:
        found, ranks = get_machine(host), resources.ranks_per_gpu
        devices = list_devices(found, kind, cores, ranks, host.title)
        detail = f"{len(found.cores)} core{'s' if len(found.cores) != 1 else ''}, {cores} each"
        if kind == "cuda":
            detail = f"{len(found.gpus)} × {', '.join(sorted({gpu.name for gpu in found.gpus}))}"
        plural = "s" if len(devices) != 1 else ""
        descriptions.append(f"{len(devices)} {'GPU' if kind == 'cuda' else 'CPU'} device{plural} ({detail})")
        limit = resources.gpus_per_host or host.slots
        most = len(found.gpus) if kind == "cuda" else len(devices)
        if limit is not None and limit > most:
            key = "devices per host" if resources.gpus_per_host else "slots"
            raise InputError(f"{key} {limit}: {host.title} has {descriptions[-1]}; valid: 1 … {most}")
        if limit is not None and kind == "cuda":
            devices = list_devices(replace(found, gpus=found.gpus[:limit]), kind, cores, ranks)
        hosts.append(replace(host, devices=devices[:limit] if kind == "cpu" else devices))
    if len(hosts) > 1:
        counts = sorted({len(host.devices) for host in hosts})
        each = str(counts[0]) if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        plural = "s" if counts[-1] > 1 else ""
        description = f"{len(hosts)} hosts with {each} {'GPU' if kind == 'cuda' else 'CPU'} device{plural} each"
    else:
        description = descriptions[0]
        if hosts[0].name != LOCALHOST:
            description += f" on {hosts[0].name}"
        if resources.gpus_per_host:
            description += f", {resources.gpus_per_host} per host requested"
    if kind == "cuda":
        gpu = machine.gpus[0]
        return AvailableDevices(kind, tuple(hosts), 0, description, gpu.name, gpu.memory_bytes)
    return AvailableDevices(kind, tuple(hosts), cores, description, machine.cpu, machine.memory_bytes)


def get_machine(host: Host) -> Machine:
    assert host.facts is not None
    return host.facts.machine


def list_devices(
    machine: Machine, kind: str, cores_per_device: int, ranks_per_gpu: int, title: str = "this machine"
) -> tuple[Device, ...]:
    if kind == "cuda":
        if not machine.gpus:
            raise InputError(f"device 'cuda': {title} has no GPU ({machine.gpu_note}); valid: cpu")
        is_shared = ranks_per_gpu > 1
        # One rank on each GPU first, then the second: every count uses as many GPUs as possible.
        return tuple(Device("cuda", gpu.index, (), is_shared) for _ in range(ranks_per_gpu) for gpu in machine.gpus)
    cores = machine.cores
    if len(cores) < cores_per_device:
        most = len(cores)
        raise InputError(f"cores per device {cores_per_device}: {title} has {most} cores; valid: 1 … {most}")
    starts = range(0, len(cores) - cores_per_device + 1, cores_per_device)
    return tuple(Device("cpu", slot, cores[start : start + cores_per_device]) for slot, start in enumerate(starts))
