"""Chooses the network of a host that training uses."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping

from ...cluster.hosts import Host
from ...errors import InputError


def choose_network(
    host: Host, addresses: Mapping[str, str], interface: str | None, reached_at: str = ""
) -> tuple[str, str | None]:
    """Return the address and interface of a host that training uses. --interface (a name, or a range such as
    10.0.0.0/16) decides; else the address in the hosts file, else the one that ssh connected to, else the one of the
    default route.
    """
    all_addresses = ", ".join(f"{name} {address}" for name, address in addresses.items())
    if interface and "/" in interface:
        network = _parse_range(interface)
        for name, address in addresses.items():
            if ipaddress.ip_address(address) in network:
                return address, name
        raise InputError(f"interface {interface}: {host.name} has no address in this range; it has {all_addresses}")
    if interface:
        if interface not in addresses:
            raise InputError(
                f"interface {interface!r}: {host.name} has none of this name with an address; it has {all_addresses}"
            )
        return addresses[interface], interface
    by_address = {address: name for name, address in addresses.items() if not address.startswith("127.")}
    for candidate in (*_resolve(host.address), reached_at, *by_address):
        if candidate in by_address:
            return candidate, by_address[candidate]
    return host.address, None


def _parse_range(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError as error:
        raise InputError(f"interface {text!r}: {error}; valid: a range such as 10.0.0.0/16, or a name") from None


def _resolve(name: str) -> list[str]:
    try:
        return list(dict.fromkeys(str(info[4][0]) for info in socket.getaddrinfo(name, None, socket.AF_INET)))
    except (OSError, UnicodeError):
        return []
