"""Finds free ports of this host for the frameworks to listen on. The keeper of a host calls this."""

from __future__ import annotations

import errno
import random
import socket
from contextlib import ExitStack

_FIRST_PORT = 10000  # well-known services have the ports below
_ATTEMPTS = 500
_SYSTEM_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def find_free_ports(count: int) -> list[int]:
    """Return different ports on which no process of this host listens now; an OSError if there are too few.

    They are not among those that the system gives to outgoing connections: a peer that connects repeatedly before
    anybody listens would sooner or later get that very port for its own end, and the listener would find it in use.
    """
    ports: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(_choose_candidate_ports(), k=_ATTEMPTS):
            if len(ports) == count:
                break
            probe = stack.enter_context(socket.socket())
            try:
                probe.bind(("", port))
            except OSError:
                continue
            ports.append(port)
    if len(ports) < count:
        raise OSError(errno.EADDRINUSE, f"no {count} free ports: {_ATTEMPTS} were tried")
    return ports


def _choose_candidate_ports() -> range:
    """Return the larger of the two ranges below and above the system's own."""
    try:
        with open(_SYSTEM_RANGE) as file:  # noqa: PTH123
            low, high = map(int, file.read().split())
    except (OSError, ValueError):
        low, high = 32768, 60999  # the default of Linux
    ranges = (range(_FIRST_PORT, low), range(high + 1, 65536))
    widest = max(ranges, key=len)
    return widest if len(widest) >= _ATTEMPTS else range(_FIRST_PORT, 65536)
