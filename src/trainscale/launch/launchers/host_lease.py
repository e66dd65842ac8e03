"""One leased host: the connection that it holds open for the whole run, and its name among the others."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from ...spec.devices import Host
from ..callback import Caller
from ..connection import wait_for_readable


class HostLease:
    """The connection that a host holds open for the whole run."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.lost_reason = ""  # why no keeper can be started there any more
        self._errors: dict[str, str] = {}  # by the key of the keeper that cannot call
        self._received = b""

    def request_keeper(self, port: int, token: str, key: str) -> None:
        """Ask for a keeper that calls this port and identifies itself by the key."""
        try:
            self.caller.connection.sendall(f"{port} {token} {key}\n".encode())
        except OSError as error:
            self.lost_reason = self.lost_reason or str(error)

    def take_error(self, key: str) -> str:
        """Return why the keeper with this key will not call, if the host has said so."""
        self._read()
        return self._errors.pop(key, "")

    @property
    def is_lost(self) -> bool:
        self._read()
        return bool(self.lost_reason)

    def _read(self) -> None:
        while not self.lost_reason and wait_for_readable([self.caller.connection], 0):
            try:
                data = self.caller.connection.recv(4096)
            except OSError as error:
                self.lost_reason = str(error)
                break
            if not data:
                self.lost_reason = "it closed its connection"
                break
            *lines, self._received = (self._received + data).split(b"\n")
            for line in lines:
                failed_key, _, error_text = line.decode(errors="replace").partition(" ")
                self._errors[failed_key] = error_text

    def close(self) -> None:
        self.caller.connection.close()


def sort_and_name(candidates: Sequence[tuple[Host, Caller]]) -> list[tuple[Host, Caller]]:
    """Sort by address, so that ranks do not depend on who called first. Make names unique, because several containers
    of one machine are several hosts.
    """
    ordered = sorted(candidates, key=lambda pair: (_make_address_key(pair[0].address), pair[0].name, pair[1].index))
    names = [host.name for host, _ in ordered]
    taken = set(names)
    named = []
    for host, caller in ordered:
        if names.count(host.name) > 1:
            alias = next(alias for number in count(1) if (alias := f"{host.name}-{number}") not in taken)
            taken.add(alias)
            host = replace(host, alias=alias)
        named.append((host, caller))
    return named


def _make_address_key(text: str) -> tuple[int, int, str]:
    """Return a key by which addresses are sorted as numbers: 10.0.0.9 comes before 10.0.0.10."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return (9, 0, text)
    return (address.version, int(address), text)
