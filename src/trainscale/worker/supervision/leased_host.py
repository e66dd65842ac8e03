"""Runs on a host that a cluster lends for a whole run, in a YARN container or a Ray actor: calls the controller, holds
that line, and starts a keeper whenever the controller asks for one.

Sent as text, so it stands alone; it must run under any Python 3, so that the keeper can say which one is too old. When
the line ends, for whatever reason, everything here ends: the run is over.
"""

import ctypes
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

_CONNECT_SECONDS = 60
_END_SECONDS = 10  # for keepers to end their ranks
_PR_SET_PDEATHSIG = 1


def run_leased_host(keeper: str, number: int, name: str, address: str = "-", with_parent: bool = False) -> int:
    """Returns an exit code when the run is over. ``keeper`` is the program that makes an interpreter a keeper;
    ``number``, ``name`` and ``address`` say which of the hosts this is. ``with_parent``: when the process that started
    this one is gone, the host is not ours any more.
    """
    if with_parent:
        _end_with_parent()
    # Taken out: what is started here has no use for it.
    where, port, token = os.environ.pop("TRAINSCALE_CALL").rsplit(",", 2)
    try:
        line = _call(where, int(port), token, number, name, address)
    except OSError as error:
        print(f"{name}: no controller at {where}:{port}: {error}", file=sys.stderr)
        return 1
    keepers = []  # type: list[subprocess.Popen[bytes]]
    try:
        for asked in _requests(line, keepers):
            try:
                keepers.append(_start(keeper, _call(where, asked["port"], asked["token"], number, name, asked["word"])))
            except OSError as error:
                line.sendall(json.dumps({"word": asked["word"], "error": str(error)}).encode() + b"\n")
    except OSError as error:
        print(f"{name}: the line to the controller broke: {error}", file=sys.stderr)
    finally:
        _end(keepers)
    return 0


def _call(where: str, port: int, token: str, number: int, name: str, word: str) -> socket.socket:
    connection = socket.create_connection((where, port), _CONNECT_SECONDS)
    connection.settimeout(None)
    # A controller that lost its power says nothing: ask the system to find out.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    connection.sendall(f"{token} {number} {name} {word}\n".encode())
    return connection


def _requests(line: socket.socket, keepers: "list[subprocess.Popen[bytes]]") -> "Iterator[dict[str, Any]]":
    """What the controller asks for, until it closes the line. Keepers that have ended are let go meanwhile."""
    buffer = b""
    while True:
        if select.select([line], [], [], 1.0)[0]:
            data = line.recv(4096)
            if not data:
                return
            *lines, buffer = (buffer + data).split(b"\n")
            for text in lines:
                yield json.loads(text)
        keepers[:] = [one for one in keepers if one.poll() is None]


def _start(keeper: str, connection: socket.socket) -> "subprocess.Popen[bytes]":
    """A keeper whose standard input and output are this connection; only it keeps that open."""
    with connection:
        end = connection.fileno()
        return subprocess.Popen([sys.executable, "-c", keeper], stdin=end, stdout=end, preexec_fn=_end_with_parent)


def _end(keepers: "list[subprocess.Popen[bytes]]") -> None:
    for one in keepers:
        one.terminate()  # it ends its ranks, then itself
    for one in keepers:
        try:
            one.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            one.kill()


def _end_with_parent() -> None:
    """Also when that is ended by kill -9."""
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    except (OSError, AttributeError):
        pass
