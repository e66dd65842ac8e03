"""Who goes where: a seat, on a host and a device, for every process of a trial. Pure, so that a plan can be checked and
shown before anything starts.

Workers take devices in order: one host is filled before the next is begun. Servers sit beside the workers or on hosts
of their own. ``round-robin`` deals processes out to the hosts like cards, servers first, as dmlc's launchers did.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..errors import InputError
from ..worker.job import Device
from .config import APART, EACH_HOST, ROUND_ROBIN, Config
from .devices import Devices, HostDevices


@dataclass(frozen=True)
class Slot:
    site: HostDevices
    device: Device


def place_processes(config: Config, workers: int, supply: Devices, schedulers: int = 0) -> list[Slot]:
    """Of workers, then servers, then a scheduler where the framework has one: that one sits with the first worker."""
    how = _dealt if config.placement == ROUND_ROBIN else _filled
    found = how(config, workers, supply)
    first = found[0].site
    return found + [Slot(first, _idle(first, n)) for n in range(schedulers)]


def most_workers(config: Config, supply: Devices) -> int:
    """The end of the longest ladder that this config can have here; below 1 when its servers alone need too much."""
    if config.placement == ROUND_ROBIN:
        return _most_dealt(config, supply)
    return sum(len(site.devices) for site in _worker_sites(config, supply)) - _devices_of_servers(config, supply)


def hosts_of(config: Config, workers: int, supply: Devices) -> int:
    """How many hosts the processes of a trial are on."""
    return len({seat.site.host for seat in place_processes(config, workers, supply)})


def check(config: Config, workers: int, supply: Devices, asked: str = "devices") -> None:
    """An InputError when there are too few devices or hosts, which says how many are needed. ``asked`` is the name of
    the setting that wants so many.
    """
    most = most_workers(config, supply)
    hosts = server_hosts(config, supply)
    if hosts > len(supply.sites):
        raise InputError(
            f"{config.servers} servers, {config.servers_per_host or 1} a host, need {hosts} hosts;"
            f" there {'are' if len(supply.sites) > 1 else 'is'} {len(supply.sites)}"
        )
    if workers <= most:
        return
    if len(supply.sites) > 1:
        valid = f"; valid: 1 … {most} workers" if most else ""
        raise InputError(f"{_needs(config, workers, supply)}; there are {supply.words}{valid}")
    taken = _devices_of_servers(config, supply)
    words = f", of which the servers of {config.strategy_label} take {taken}" if taken else ""
    if most < 1:
        raise InputError(
            f"{config.strategy_label} with servers apart needs {taken + 1} devices; this machine has {supply.words}"
        )
    raise InputError(f"{asked} {workers}: this machine has {supply.words}{words}; valid: 1 … {most}")


def server_hosts(config: Config, supply: Devices) -> int:
    """Hosts that carry servers, where that is fixed: none when servers are spread over the workers' hosts."""
    if config.servers in (0, EACH_HOST) or config.placement == ROUND_ROBIN or len(supply.sites) == 1:
        return 0
    if config.server_placement != APART and not config.servers_per_host:
        return 0
    return math.ceil(config.servers / (config.servers_per_host or 1))


def _needs(config: Config, workers: int, supply: Devices) -> str:
    per_host = max(supply.shape)
    needed = math.ceil(workers / per_host)
    who = f"{workers} workers need" if workers > 1 else "1 worker needs"
    words = f"{who} {needed} host{'s' if needed > 1 else ''} of {per_host} device{'s' if per_host > 1 else ''}"
    apart = server_hosts(config, supply) if config.server_placement == APART else 0
    if apart:
        words += f", and {config.servers} servers {apart} more of their own"
    return words


def _filled(config: Config, workers: int, supply: Devices) -> list[Slot]:
    free = [Slot(site, device) for site in _worker_sites(config, supply) for device in site.devices]
    taken, rest = free[:workers], free[workers:]
    servers = config.servers_on(len({seat.site.host for seat in taken}))
    return taken + [_server_seat(config, n, taken, rest, supply) for n in range(servers)]


def _worker_sites(config: Config, supply: Devices) -> tuple[HostDevices, ...]:
    """Servers apart come first, on whole hosts; on a single machine they take devices after the workers' instead."""
    apart = server_hosts(config, supply) if config.server_placement == APART else 0
    return supply.sites[apart:]


def _devices_of_servers(config: Config, supply: Devices) -> int:
    alone = config.server_placement == APART and len(supply.sites) == 1 and config.device == "cpu"
    return config.servers if alone else 0


def _server_seat(config: Config, server: int, workers: list[Slot], rest: list[Slot], supply: Devices) -> Slot:
    if server_hosts(config, supply):
        site = supply.sites[server // (config.servers_per_host or 1)]
        return Slot(site, _shared(site, server % (config.servers_per_host or 1)))
    if config.server_placement == APART and config.device == "cpu":
        return rest[server]
    sites = list({seat.site.host: seat.site for seat in workers}.values())
    site = sites[server % len(sites)]
    beside = [seat for seat in workers if seat.site is site]
    return Slot(site, _cores_of(beside[server // len(sites) % len(beside)].device, server))


def _dealt(config: Config, workers: int, supply: Devices) -> list[Slot]:
    """Process number i goes to host i modulo the number of hosts; servers have the lower numbers."""
    free = {site.host: list(site.devices) for site in supply.sites}
    turns = [supply.sites[n % len(supply.sites)] for n in range(config.servers + workers)]
    servers = [Slot(site, _shared(site, n // len(supply.sites))) for n, site in enumerate(turns[: config.servers])]
    return [Slot(site, free[site.host].pop(0)) for site in turns[config.servers :]] + servers


def _most_dealt(config: Config, supply: Devices) -> int:
    free = supply.shape
    for number in range(sum(free)):
        turn = (config.servers + number) % len(free)
        if not free[turn]:
            return number
        free[turn] -= 1
    return sum(supply.shape)


def _shared(site: HostDevices, number: int) -> Device:
    return _cores_of(site.devices[number % len(site.devices)], number)


def _cores_of(device: Device, number: int) -> Device:
    """A server beside a worker shares its cores. A GPU's host has cores to spare: there the system places it."""
    return Device("cpu", number, ()) if device.kind == "cuda" else device


def _idle(site: HostDevices, number: int) -> Device:
    """A scheduler does next to nothing: it may share with anybody."""
    return _shared(site, number)
