"""The hosts and devices that an experiment may use, and a slot on them for every process of a trial.

Workers take devices in order, one host after the other. Servers run beside the workers or on hosts of their own.
With ``round-robin``, processes are assigned to the hosts in turn, servers first, as dmlc's launchers did.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..errors import InputError
from ..worker.job import Device
from .config import APART, EACH_HOST, ROUND_ROBIN, Config

if TYPE_CHECKING:
    from ..worker.inspection.host import HostFacts

LOCALHOST, LOOPBACK = "localhost", "127.0.0.1"


@dataclass(frozen=True)
class Host:
    """How a host is named and reached, and after the visit what it has."""

    address: str = LOOPBACK  # for other hosts; after the visit, on the network that training uses
    alias: str = ""  # for ssh
    port: int | None = None  # of its sshd
    user: str = ""
    slots: int | None = None  # number of devices to use there, if the hosts file limits it
    python: str = ""  # runs the keeper there
    setup: tuple[str, ...] = ()  # shell lines to run before the keeper
    # after the visit
    interface: str | None = None
    devices: tuple[Device, ...] = ()
    pythons: Mapping[str, str] = field(default_factory=dict, compare=False)  # by framework
    facts: HostFacts | None = field(default=None, compare=False)

    @property
    def name(self) -> str:
        """Identifies the host everywhere in this project."""
        return self.alias or self.address

    @property
    def title(self) -> str:
        return "this machine" if self.name == LOCALHOST else self.name


@dataclass(frozen=True)
class AvailableDevices:
    kind: str
    hosts: tuple[Host, ...]
    cores_per_device: int  # 0 for GPUs
    description: str  # for messages
    device_name: str = ""
    memory_bytes: int = 0

    @property
    def devices_per_host(self) -> list[int]:
        """Number of devices on each host. Runs are comparable only if it is equal."""
        return [len(host.devices) for host in self.hosts]


# ---- placement


@dataclass(frozen=True)
class Slot:
    host: Host
    device: Device


def place_processes(config: Config, workers: int, available: AvailableDevices, schedulers: int = 0) -> list[Slot]:
    """Return the slots of workers, servers and schedulers. Schedulers run beside the first worker."""
    hosts, apart = available.hosts, count_server_hosts(config, available)
    servers = []
    if config.placement == ROUND_ROBIN:  # process number i goes to host i modulo their number
        turns = [hosts[number % len(hosts)] for number in range(config.servers + workers)]
        for number, host in enumerate(turns[: config.servers]):
            servers.append(_share_any_device(host, number // len(hosts)))
        free = {host.name: list(host.devices) for host in hosts}
        used = [Slot(host, free[host.name].pop(0)) for host in turns[config.servers :]]
    else:
        own = apart if config.server_placement == APART else 0
        slots = [Slot(host, device) for host in hosts[own:] for device in host.devices]
        used, unused = slots[:workers], slots[workers:]
        used_hosts = list({slot.host.name: slot.host for slot in used}.values())
        for number in range(config.count_servers(len(used_hosts))):
            if apart:
                per_host = config.servers_per_host or 1
                host = hosts[number // per_host]
                servers.append(_share_any_device(host, number % per_host))
            elif config.server_placement == APART and config.device == "cpu":
                servers.append(unused[number])
            else:
                host = used_hosts[number % len(used_hosts)]
                beside = [slot.device for slot in used if slot.host is host]
                device = beside[number // len(used_hosts) % len(beside)]
                servers.append(_share_device(host, device, number))
    first = used[0].host
    return used + servers + [_share_any_device(first, number) for number in range(schedulers)]


def _share_any_device(host: Host, number: int) -> Slot:
    return _share_device(host, host.devices[number % len(host.devices)], number)


def _share_device(host: Host, device: Device, number: int) -> Slot:
    """Return a slot beside a worker; beside a GPU, the operating system places it."""
    return Slot(host, Device("cpu", number, ()) if device.kind == "cuda" else device)


def count_most_workers(config: Config, available: AvailableDevices) -> int:
    """Return the most workers; 0 or less if the servers need too much."""
    free = available.devices_per_host
    if config.placement == ROUND_ROBIN:
        workers = 0
        while free[turn := (config.servers + workers) % len(free)]:
            free[turn] -= 1
            workers += 1
        return workers
    own = count_server_hosts(config, available) if config.server_placement == APART else 0
    return sum(free[own:]) - _count_server_devices(config, available)


def count_hosts(config: Config, workers: int, available: AvailableDevices) -> int:
    return len({slot.host.name for slot in place_processes(config, workers, available)})


def count_server_hosts(config: Config, available: AvailableDevices) -> int:
    if config.servers in (0, EACH_HOST) or config.placement == ROUND_ROBIN or len(available.hosts) == 1:
        return 0
    if config.server_placement != APART and not config.servers_per_host:
        return 0
    return math.ceil(config.servers / (config.servers_per_host or 1))


def _count_server_devices(config: Config, available: AvailableDevices) -> int:
    """Return the devices of a single machine that servers apart take."""
    is_alone = config.server_placement == APART and len(available.hosts) == 1 and config.device == "cpu"
    return config.servers if is_alone else 0


def check_room(config: Config, workers: int, available: AvailableDevices, setting: str = "devices") -> None:
    """Raise InputError if there are too few devices or hosts. ``setting`` is what asks for them."""
    most = count_most_workers(config, available)
    hosts, for_servers = len(available.hosts), count_server_hosts(config, available)
    if for_servers > hosts:
        need = f"{config.servers} servers, {config.servers_per_host or 1} a host, need {for_servers} hosts"
        raise InputError(f"{need}; there {'are' if hosts > 1 else 'is'} {hosts}")
    if workers <= most:
        return
    if hosts > 1:
        per_host = max(available.devices_per_host)
        needed = math.ceil(workers / per_host)
        need = f"{workers} workers need" if workers > 1 else "1 worker needs"
        need += f" {needed} host{'s' if needed > 1 else ''} of {per_host} device{'s' if per_host > 1 else ''}"
        if for_servers and config.server_placement == APART:
            need += f", and {config.servers} servers {for_servers} more of their own"
        valid = f"; valid: 1 … {most} workers" if most else ""
        raise InputError(f"{need}; there are {available.description}{valid}")
    taken, has = _count_server_devices(config, available), f"this machine has {available.description}"
    if most < 1:
        need = f"{config.strategy_label} with servers apart needs {taken + 1} devices"
        raise InputError(f"{need}; {has}")
    servers = f", of which the servers of {config.strategy_label} take {taken}" if taken else ""
    raise InputError(f"{setting} {workers}: {has}{servers}; valid: 1 … {most}")
