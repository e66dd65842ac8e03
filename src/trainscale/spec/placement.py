"""Placement: a host and a device for every process of a trial. Pure, so that a plan can be checked and shown before
anything starts.

Workers take devices in order, one host after the other. Servers run beside the workers or on hosts of their own. With
``round-robin``, processes are assigned to the hosts in turn, servers first, as dmlc's launchers did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import InputError
from ..worker.job import Device
from .config import APART, EACH_HOST, ROUND_ROBIN, Config
from .devices import AvailableDevices, Host


@dataclass(frozen=True)
class Slot:
    """Where one process runs."""

    host: Host
    device: Device


def place_processes(config: Config, workers: int, available: AvailableDevices, schedulers: int = 0) -> list[Slot]:
    """Return the slots of the workers, then of the servers, then of the schedulers, which run beside the first
    worker.
    """
    place = _place_round_robin if config.placement == ROUND_ROBIN else _place_in_order
    slots = place(config, workers, available)
    first = slots[0].host
    return slots + [Slot(first, _choose_shared_device(first, index)) for index in range(schedulers)]


def count_most_workers(config: Config, available: AvailableDevices) -> int:
    """Return the largest number of workers that this config can have here: 0 or less if its servers need too much."""
    if config.placement == ROUND_ROBIN:
        return _count_most_round_robin(config, available)
    on_hosts = sum(len(host.devices) for host in _list_worker_hosts(config, available))
    return on_hosts - _count_server_devices(config, available)


def count_hosts(config: Config, workers: int, available: AvailableDevices) -> int:
    """Return the number of hosts that the processes of a trial are on."""
    return len({slot.host.name for slot in place_processes(config, workers, available)})


def check_room(config: Config, workers: int, available: AvailableDevices, setting: str = "devices") -> None:
    """Raise InputError if there are too few devices or hosts. ``setting`` names what requires this many workers."""
    most = count_most_workers(config, available)
    hosts, needed = len(available.hosts), count_server_hosts(config, available)
    if needed > hosts:
        raise InputError(
            f"{config.servers} servers, {config.servers_per_host or 1} a host, need {needed} hosts;"
            f" there {'are' if hosts > 1 else 'is'} {hosts}"
        )
    if workers <= most:
        return
    if hosts > 1:
        valid = f"; valid: 1 … {most} workers" if most else ""
        raise InputError(f"{_describe_need(config, workers, available)}; there are {available.description}{valid}")
    taken = _count_server_devices(config, available)
    if most < 1:
        raise InputError(
            f"{config.strategy_label} with servers apart needs {taken + 1} devices; this machine has"
            f" {available.description}"
        )
    servers = f", of which the servers of {config.strategy_label} take {taken}" if taken else ""
    raise InputError(f"{setting} {workers}: this machine has {available.description}{servers}; valid: 1 … {most}")


def count_server_hosts(config: Config, available: AvailableDevices) -> int:
    """Return the number of hosts that are set aside for servers: 0 where servers are spread over the workers' hosts."""
    if config.servers in (0, EACH_HOST) or config.placement == ROUND_ROBIN or len(available.hosts) == 1:
        return 0
    if config.server_placement != APART and not config.servers_per_host:
        return 0
    return math.ceil(config.servers / (config.servers_per_host or 1))


def _describe_need(config: Config, workers: int, available: AvailableDevices) -> str:
    per_host = max(available.devices_per_host)
    hosts = math.ceil(workers / per_host)
    need = f"{workers} workers need" if workers > 1 else "1 worker needs"
    need += f" {hosts} host{'s' if hosts > 1 else ''} of {per_host} device{'s' if per_host > 1 else ''}"
    apart = count_server_hosts(config, available) if config.server_placement == APART else 0
    return f"{need}, and {config.servers} servers {apart} more of their own" if apart else need


def _place_in_order(config: Config, workers: int, available: AvailableDevices) -> list[Slot]:
    slots = [Slot(host, device) for host in _list_worker_hosts(config, available) for device in host.devices]
    used, unused = slots[:workers], slots[workers:]
    servers = config.count_servers(len({slot.host.name for slot in used}))
    return used + [_choose_server_slot(config, index, used, unused, available) for index in range(servers)]


def _list_worker_hosts(config: Config, available: AvailableDevices) -> tuple[Host, ...]:
    """Return the hosts after those of servers that are apart. On a single machine such servers take the devices after
    the workers' instead.
    """
    apart = count_server_hosts(config, available) if config.server_placement == APART else 0
    return available.hosts[apart:]


def _count_server_devices(config: Config, available: AvailableDevices) -> int:
    """Return the number of devices of a single machine that servers apart take."""
    alone = config.server_placement == APART and len(available.hosts) == 1 and config.device == "cpu"
    return config.servers if alone else 0


def _choose_server_slot(
    config: Config, server: int, workers: list[Slot], unused: list[Slot], available: AvailableDevices
) -> Slot:
    if count_server_hosts(config, available):
        per_host = config.servers_per_host or 1
        host = available.hosts[server // per_host]
        return Slot(host, _choose_shared_device(host, server % per_host))
    if config.server_placement == APART and config.device == "cpu":
        return unused[server]
    hosts = list({slot.host.name: slot.host for slot in workers}.values())
    host = hosts[server % len(hosts)]
    beside = [slot for slot in workers if slot.host is host]
    return Slot(host, _leave_out_gpu(beside[server // len(hosts) % len(beside)].device, server))


def _place_round_robin(config: Config, workers: int, available: AvailableDevices) -> list[Slot]:
    """Process number i goes to host i modulo the number of hosts; servers have the lower numbers."""
    count = len(available.hosts)
    free = {host.name: list(host.devices) for host in available.hosts}
    turns = [available.hosts[number % count] for number in range(config.servers + workers)]
    servers = [
        Slot(host, _choose_shared_device(host, number // count)) for number, host in enumerate(turns[: config.servers])
    ]
    return [Slot(host, free[host.name].pop(0)) for host in turns[config.servers :]] + servers


def _count_most_round_robin(config: Config, available: AvailableDevices) -> int:
    free = available.devices_per_host
    for number in range(sum(free)):
        turn = (config.servers + number) % len(free)
        if not free[turn]:
            return number
        free[turn] -= 1
    return sum(available.devices_per_host)


def _choose_shared_device(host: Host, number: int) -> Device:
    return _leave_out_gpu(host.devices[number % len(host.devices)], number)


def _leave_out_gpu(device: Device, number: int) -> Device:
    """Return the device for a process beside a worker. It shares the cores of a CPU device; beside a GPU the operating
    system places it, because such a host has spare cores.
    """
    return Device("cpu", number, ()) if device.kind == "cuda" else device
