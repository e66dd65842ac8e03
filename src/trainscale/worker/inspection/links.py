"""Measures the network between this host and its neighbours in a ring: the round trip to the
next host, and the bits per second that arrive from the previous one.

A host sends and then receives, or the other way round, and a sender waits until its receiver is
free. So a ring of any size takes about as long as a ring of three.
"""

from __future__ import annotations

import hmac
import json
import os
import socket
import statistics
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass

from ..events import Links, claim_stdout, encode
from ..listening import GreetingReader

STREAMS = 4  # connections at once: one alone does not fill a fast link
_PINGS, _PING_SECONDS = 200, 0.2  # whichever comes first
_WARM_SECONDS, _WINDOW_SECONDS = 0.15, 0.35  # TCP needs a while to reach its speed
_BLOCK = 1 << 18  # bytes
_RETRY_SECONDS = 0.05
_BACKLOG = 256  # unknown clients may also connect
_PATIENCE = 3  # times ``seconds``, for a neighbour that is busy
_FREE, _PING, _DATA = b"f", b"p", b"d"


@dataclass(frozen=True)
class LinksRequest:
    address: str  # where this host listens
    port: int
    next_address: str  # where the next one does
    next_port: int
    sends_first: bool
    token: str
    seconds: float  # that a neighbour may take to answer


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    request = LinksRequest(**json.loads(sys.stdin.readline()))
    os.write(out, encode(measure(request)))
    return 0


def measure(request: LinksRequest) -> Links:
    """Measure both links. If one fails, the other is measured all the same."""

    def send() -> float:
        with first_connection.result() as connection:
            return _send(request, connection)

    def attempt(part: Callable[[], float]) -> tuple[float | None, str]:
        try:
            return part(), ""
        except OSError as error:
            return None, _describe_error(error)

    try:
        callers = GreetingReader(socket.create_server((request.address, request.port), backlog=_BACKLOG))
    except OSError as error:
        return Links(send_error=_describe_error(error), receive_error=_describe_error(error))
    # Every host connects at once, whichever sends first. So a host to which none connects knows
    # it after ``seconds``, while those behind it still wait for their turn.
    with closing(callers), ThreadPoolExecutor(1) as caller:
        first_connection = caller.submit(_connect, request)
        sent = attempt(send) if request.sends_first else None
        received = attempt(lambda: _receive(request, callers))
        return Links(*(sent or attempt(send)), *received)


def _send(request: LinksRequest, connection: socket.socket) -> float:
    """Return the median round trip in seconds. Then send as much data as the receiver takes."""
    _expect(connection, _FREE, _PATIENCE * request.seconds)
    times: list[float] = []
    deadline = time.perf_counter() + _PING_SECONDS
    while len(times) < _PINGS and (now := time.perf_counter()) < deadline:
        connection.sendall(_PING)
        _expect(connection, _PING, _PATIENCE * request.seconds)
        times.append(time.perf_counter() - now)
    connection.sendall(_DATA)

    def send_until_closed(stream: socket.socket) -> None:
        block = bytes(_BLOCK)
        with suppress(OSError), stream:  # until the receiver has measured enough
            _expect(stream, _FREE, request.seconds)
            while True:
                stream.sendall(block)

    streams = [_connect(request) for _ in range(STREAMS)]
    threads = [threading.Thread(target=send_until_closed, args=(stream,), daemon=True) for stream in streams]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(request.seconds)
    return statistics.median(times)


def _expect(connection: socket.socket, message: bytes, seconds: float) -> None:
    connection.settimeout(seconds)
    if connection.recv(1) != message:
        raise ConnectionError("it ended the connection")


def _receive(request: LinksRequest, callers: GreetingReader) -> float:
    """Return the bits per second that arrive over all streams, once they are up to speed."""
    with _accept(callers, request.token, request.seconds) as connection:
        connection.settimeout(_PATIENCE * request.seconds)
        connection.sendall(_FREE)
        while (message := connection.recv(1)) == _PING:
            connection.sendall(_PING)
        if message != _DATA:
            raise ConnectionError("it ended the connection")
        streams = [_accept(callers, request.token, request.seconds) for _ in range(STREAMS)]
        counts = [0] * STREAMS

        def count_received(number: int) -> None:
            buffer = memoryview(bytearray(_BLOCK))
            with suppress(OSError):  # it is closed below
                while size := streams[number].recv_into(buffer):
                    counts[number] += size

        for stream in streams:
            stream.sendall(_FREE)
        for number, stream in enumerate(streams):
            stream.recv(1)  # wait until its data comes
            threading.Thread(target=count_received, args=(number,), daemon=True).start()
        time.sleep(_WARM_SECONDS)
        began, before = time.perf_counter(), sum(counts)
        time.sleep(_WINDOW_SECONDS)
        bits = 8 * (sum(counts) - before) / (time.perf_counter() - began)
        for stream in streams:  # unread data makes the sender see a reset at once
            stream.shutdown(socket.SHUT_RDWR)
            stream.close()
    return bits


def _connect(request: LinksRequest) -> socket.socket:
    """Connect to the next host. Retry, because it may start a little later."""
    deadline = time.monotonic() + request.seconds
    to = (request.next_address, request.next_port)
    while True:
        try:
            left = max(0.1, deadline - time.monotonic())
            connection = socket.create_connection(to, left, (request.address, 0))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(request.token.encode() + b"\n")
            return connection
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_RETRY_SECONDS)


def _accept(callers: GreetingReader, token: str, seconds: float) -> socket.socket:
    """Return the next connection that sends the token; close others."""
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        greeting = callers.wait_for_greeting(left)
        if greeting is None:
            continue
        if hmac.compare_digest(greeting.received, token.encode() + b"\n"):
            greeting.connection.settimeout(seconds)
            greeting.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return greeting.connection
        greeting.connection.close()
    raise socket.timeout("timed out")


def _describe_error(error: OSError) -> str:
    """Return the message without numbers and addresses."""
    if isinstance(error, socket.timeout):  # before Python 3.10 no TimeoutError
        return "no answer in time"
    return (error.strerror or str(error)).partition(" (while")[0]
