"""Many connections over one pair of pipes: nothing is mixed up or lost, and ends reach the other side."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest
from processes import until

from trainscale.launch.notebooks.multiplexer import Multiplexer

LARGE = os.urandom(1 << 20)  # with newlines and everything else


class Ends:
    """The two ends of a pair of pipes. ``served`` has the sockets that the far end got for its connections."""

    def __init__(self) -> None:
        to_far, from_near = os.pipe()
        to_near, from_far = os.pipe()
        self.served: list[socket.socket] = []
        self.connections: list[socket.socket] = []
        self.near_writer, self.far_writer = os.fdopen(from_near, "wb"), os.fdopen(from_far, "wb")
        self.readers = os.fdopen(to_near, "rb"), os.fdopen(to_far, "rb")
        self.near = Multiplexer(self.readers[0], self.near_writer)
        self.far = Multiplexer(self.readers[1], self.far_writer, self.serve)
        self.threads = [threading.Thread(target=end.run, daemon=True) for end in (self.near, self.far)]
        for thread in self.threads:
            thread.start()

    def serve(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        self.served.append(theirs)
        threading.Thread(target=echo, args=(theirs,), daemon=True).start()
        return ours

    def connect(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.settimeout(60)
        self.connections.append(ours)
        self.near.begin(theirs)
        return ours

    def close(self) -> None:
        for connection in self.connections:
            connection.close()
        until(lambda: not self.near._streams and not self.far._streams, "all connections are closed")
        for writer, thread in ((self.near_writer, self.threads[1]), (self.far_writer, self.threads[0])):
            writer.close()
            thread.join(60)
        for reader in self.readers:
            reader.close()


def echo(connection: socket.socket) -> None:
    """Send everything back, and close when the other side does."""
    while data := connection.recv(4096):
        connection.sendall(data)
    connection.close()


def receive_all(connection: socket.socket) -> bytes:
    parts = []
    while data := connection.recv(65536):
        parts.append(data)
    return b"".join(parts)


@pytest.fixture
def ends() -> Iterator[Ends]:
    ends = Ends()
    yield ends
    ends.close()


def test_large_data_goes_both_ways_on_several_connections_at_once(ends: Ends) -> None:
    connections = [ends.connect() for _ in range(4)]
    answers: dict[int, bytes] = {}
    readers = []
    for number, connection in enumerate(connections):
        reader = threading.Thread(target=lambda n=number, c=connection: answers.__setitem__(n, receive_all(c)))
        reader.start()
        readers.append(reader)
    for number, connection in enumerate(connections):
        connection.sendall(bytes([number]) + LARGE)
        connection.shutdown(socket.SHUT_WR)
    for reader in readers:
        reader.join(60)
    assert answers == {number: bytes([number]) + LARGE for number in range(4)}


def test_a_connection_that_nobody_reads_does_not_stop_the_others(ends: Ends) -> None:
    stuck, other = ends.connect(), ends.connect()
    sender = threading.Thread(target=stuck.sendall, args=(LARGE,), daemon=True)
    sender.start()
    other.sendall(b"hello")
    assert other.recv(5) == b"hello"
    received = 0
    while received < len(LARGE):
        received += len(stuck.recv(65536))
    sender.join(60)


def test_the_end_of_the_pipe_ends_the_connections_there(ends: Ends) -> None:
    connection = ends.connect()
    connection.sendall(b"x")
    assert connection.recv(1) == b"x"
    ends.near_writer.close()
    ends.threads[1].join(60)
    assert not ends.threads[1].is_alive()
    until(lambda: ends.served[0].fileno() == -1, "the far connection is closed")


def test_a_server_that_cannot_be_reached_closes_the_connection(ends: Ends) -> None:
    def refuse() -> socket.socket:
        raise ConnectionRefusedError

    ends.far._connect = refuse
    assert ends.connect().recv(1) == b""
