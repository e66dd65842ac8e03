"""Ports that are free on this host, for what frameworks listen on. The keeper of a host chooses them."""

from __future__ import annotations

import errno
import random
import socket
from contextlib import ExitStack

_FIRST_PORT = 10000  # below are the ports of well-known services
_TRIES = 500
_SYSTEM_RANGE = "/proc/sys/net/ipv4/ip_local_port_range"


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now, on any address of this host, all different. An OSError when there are too few.

    Not among those that the system gives to outgoing connections: a peer that calls before anybody listens there, and
    calls again, would sooner or later be given that very port for its own end, and the listener would find it taken.
    """
    found: list[int] = []
    with ExitStack() as stack:
        for port in random.sample(_quiet_ports(), k=_TRIES):
            if len(found) == count:
                break
            one = stack.enter_context(socket.socket())
            try:
                one.bind(("", port))
            except OSError:
                continue
            found.append(port)
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"no {count} free ports: {_TRIES} were tried")
    return found


def _quiet_ports() -> range:
    """The larger of the two ranges below and above the system's own."""
    try:
        with open(_SYSTEM_RANGE) as file:  # noqa: PTH123
            low, high = map(int, file.read().split())
    except (OSError, ValueError):
        low, high = 32768, 60999  # what Linux has unless told otherwise
    ranges = (range(_FIRST_PORT, low), range(high + 1, 65536))
    widest = max(ranges, key=len)
    return widest if len(widest) >= _TRIES else range(_FIRST_PORT, 65536)
