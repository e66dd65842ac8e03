"""Measures the network between this host and its neighbours in a ring: how long a word takes to the next host and back,
and how many bits a second come from the one before.

Reads one JSON line {"address", "port", "next": [address, port], "sends_first", "token", "seconds"}, prints one event:
round_trip_seconds or send_error, bits_per_second or receive_error. A host is in one measurement at a time: it sends and
then receives, or the other way round, and a sender waits until its receiver says that it is free. So all pairs that do
not share a host are measured at once, and a ring of any size takes about as long as one of three.
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
from typing import Any

from ..events import claim_stdout, encode

STREAMS = 4  # connections at once: one alone does not fill a fast link
_PINGS, _PING_SECONDS = 200, 0.2  # whichever comes first
_WARM_SECONDS, _WINDOW_SECONDS = 0.15, 0.35  # TCP needs a while to find its speed
_BLOCK = 1 << 18  # bytes
_RETRY_SECONDS = 0.05
_PATIENCE = 3  # times ``seconds``: those before may wait that once for a call, and measure
_FREE, _PING, _DATA = b"f", b"p", b"d"


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    asked = json.loads(sys.stdin.readline())
    os.write(out, encode({"kind": "links", **measure(asked)}))
    return 0


def measure(asked: dict[str, Any]) -> dict[str, Any]:
    """What can be said of both links. One that fails does not spoil the other."""
    token, seconds = asked["token"].encode(), float(asked["seconds"])
    answer: dict[str, Any] = {}

    def sending() -> None:
        try:
            with line.result() as there:
                answer["round_trip_seconds"] = send(there, call, seconds)
        except OSError as error:
            answer["send_error"] = words_of(error)

    def receiving() -> None:
        try:
            answer["bits_per_second"] = receive(server, token, seconds)
        except OSError as error:
            answer["receive_error"] = words_of(error)

    def call() -> socket.socket:
        return _connect(asked["address"], tuple(asked["next"]), token, seconds)

    try:
        server = socket.create_server((asked["address"], asked["port"]), backlog=2 * STREAMS)
    except OSError as error:
        return {"send_error": words_of(error), "receive_error": words_of(error)}
    # Everybody calls at once, whoever's turn it is: a host that nobody calls knows it after ``seconds``, while those
    # behind it still wait for their turn.
    with server, ThreadPoolExecutor(1) as caller:
        line = caller.submit(call)
        for act in (sending, receiving) if asked["sends_first"] else (receiving, sending):
            act()
    return answer


def send(line: socket.socket, call: Callable[[], socket.socket], seconds: float) -> float:
    """Seconds for a word there and back, the median; then as much data as the receiver takes."""
    line.settimeout(_PATIENCE * seconds)  # it may be busy with its other neighbour
    if line.recv(1) != _FREE:
        raise ConnectionError("it ended the connection")
    times: list[float] = []
    until = time.perf_counter() + _PING_SECONDS
    while len(times) < _PINGS and (now := time.perf_counter()) < until:
        line.sendall(_PING)
        if line.recv(1) != _PING:
            raise ConnectionError("it ended the connection")
        times.append(time.perf_counter() - now)
    line.sendall(_DATA)
    threads = [threading.Thread(target=_pour, args=(call(),), daemon=True) for _ in range(STREAMS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    return statistics.median(times)


def receive(server: socket.socket, token: bytes, seconds: float) -> float:
    """Bits a second that come in, of all streams together, once they have found their speed."""
    with _accept(server, token, seconds) as line:
        line.settimeout(_PATIENCE * seconds)  # its sender may be busy with its other neighbour
        line.sendall(_FREE)
        while (word := line.recv(1)) == _PING:
            line.sendall(_PING)
        if word != _DATA:
            raise ConnectionError("it ended the connection")
        streams = [_accept(server, token, seconds) for _ in range(STREAMS)]
        counts = [0] * STREAMS
        for number, stream in enumerate(streams):
            threading.Thread(target=_drink, args=(stream, counts, number), daemon=True).start()
        time.sleep(_WARM_SECONDS)
        began, before = time.perf_counter(), sum(counts)
        time.sleep(_WINDOW_SECONDS)
        bits = 8 * (sum(counts) - before) / (time.perf_counter() - began)
        for stream in streams:  # with data unread: the sender sees a reset at once, whatever it has still to send
            stream.shutdown(socket.SHUT_RDWR)
            stream.close()
    return bits


def _connect(source: str, to: tuple[str, int], token: bytes, seconds: float) -> socket.socket:
    """Again and again: the other host may be a little later."""
    until = time.monotonic() + seconds
    while True:
        try:
            line = socket.create_connection(to, max(0.1, until - time.monotonic()), (source, 0))
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            line.sendall(token)
            return line
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(_RETRY_SECONDS)


def _accept(server: socket.socket, token: bytes, seconds: float) -> socket.socket:
    """The next caller that knows the token; others are sent away."""
    until = time.monotonic() + seconds
    while True:
        server.settimeout(max(0.01, until - time.monotonic()))
        line, _ = server.accept()
        line.settimeout(max(0.01, until - time.monotonic()))
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        said = b""
        while len(said) < len(token) and (piece := line.recv(len(token) - len(said))):
            said += piece
        if hmac.compare_digest(said, token):
            return line
        line.close()


def _pour(line: socket.socket) -> None:
    block = bytes(_BLOCK)
    try:
        with line:
            while True:
                line.sendall(block)
    except OSError:
        pass  # the receiver has seen enough


def _drink(line: socket.socket, counts: list[int], number: int) -> None:
    room = memoryview(bytearray(_BLOCK))
    try:
        while size := line.recv_into(room):
            counts[number] += size
    except OSError:
        pass  # closed by whoever counts


def words_of(error: OSError) -> str:
    """Without numbers and addresses: whoever asked knows those."""
    if isinstance(error, socket.timeout):  # before Python 3.10 no TimeoutError
        return "no answer in time"
    return (error.strerror or str(error)).partition(" (while")[0]
