"""Runs on a host that a cluster leases for a whole run, in a YARN container or a Ray actor. It connects to the
controller, holds that connection, and starts a keeper whenever the controller requests one.

It is sent as text, so it imports nothing of this project. It must run under any Python 3, so that the keeper can report
a Python that is too old. When the connection ends, for whatever reason, the run is over and everything here ends.
"""

import ctypes
import functools
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

_CONNECT_SECONDS = 60
_END_SECONDS = 10  # for keepers to end their ranks
_POLL_MILLISECONDS = 1000
_PR_SET_PDEATHSIG = 1


def run_leased_host(keeper: str, number: int, name: str, address: str = "-", parent: int = 0) -> int:
    """Serve the controller until the run is over; return an exit code.

    ``keeper`` is the program that makes an interpreter a keeper; ``number``, ``name`` and ``address`` say which of the
    hosts this is. ``parent``: a process with which this one ends, because the host is lost then.
    """
    if parent:
        end_with_parent(signal.SIGTERM, parent)
    # Removed from the environment, because what is started here must not see the token.
    controller, port, token = os.environ.pop("TRAINSCALE_CALL").rsplit(",", 2)
    try:
        connection = _call((controller, int(port)), token, number, name, address)
    except OSError as error:
        print("%s: no controller at %s:%s: %s" % (name, controller, port, error), file=sys.stderr)
        return 1
    keepers = []  # type: list[subprocess.Popen[bytes]]
    try:
        for request in _read_requests(connection, keepers):
            keeper_port, keeper_token, key = request.split()
            try:
                call = _call((controller, int(keeper_port)), keeper_token, number, name, key)
                keepers.append(_start_keeper(keeper, call))
            except OSError as error:
                connection.sendall(("%s %s\n" % (key, error)).encode())
    except OSError as error:
        print("%s: the connection to the controller broke: %s" % (name, error), file=sys.stderr)
    finally:
        _end_keepers(keepers)
    return 0


def _call(server: "tuple[str, int]", token: str, number: int, name: str, detail: str) -> socket.socket:
    connection = socket.create_connection(server, _CONNECT_SECONDS)
    connection.settimeout(None)
    # Have the system find out that a controller lost its power.
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 6)):
        if hasattr(socket, option):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    connection.sendall(("%s %d %s %s\n" % (token, number, name, detail)).encode())
    return connection


def _read_requests(connection: socket.socket, keepers: "list[subprocess.Popen[bytes]]") -> "Iterator[str]":
    """Yield what the controller requests until it closes the connection. Reap keepers that have ended meanwhile."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    received = b""
    while True:
        if poll.poll(_POLL_MILLISECONDS):
            data = connection.recv(4096)
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                yield line.decode()
        keepers[:] = [keeper for keeper in keepers if keeper.poll() is None]


def _start_keeper(program: str, connection: socket.socket) -> "subprocess.Popen[bytes]":
    """Start a keeper whose standard input and output are this connection; only the keeper holds it open."""
    with connection:
        end = connection.fileno()
        with_this_process = functools.partial(end_with_parent, signal.SIGTERM, os.getpid())
        return subprocess.Popen([sys.executable, "-c", program], stdin=end, stdout=end, preexec_fn=with_this_process)


def _end_keepers(keepers: "list[subprocess.Popen[bytes]]") -> None:
    for keeper in keepers:
        keeper.terminate()  # it ends its ranks, then itself
    for keeper in keepers:
        try:
            keeper.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill()


def end_with_parent(number: int = signal.SIGKILL, parent: int = 0) -> None:
    """Have Linux send this process a signal when its parent ends, even by kill -9. Other systems cannot do that.

    ``parent`` is the expected parent, or 0. It may have ended before this call; then the signal is sent now.
    """
    try:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number)
    except (OSError, AttributeError):
        return
    ancestor = os.getppid()
    while parent and ancestor != parent and ancestor > 1:  # a wrapper script may stand between
        try:
            with open("/proc/%d/stat" % ancestor) as file:  # noqa: PTH123
                ancestor = int(file.read().rpartition(")")[2].split()[1])
        except OSError:
            return  # this cannot be known here
    if parent and ancestor != parent:
        os.kill(os.getpid(), number)
