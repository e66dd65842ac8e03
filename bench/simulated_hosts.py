"""Plays the keepers of many hosts in one process, for bench/controller.py: real connections to the controller's
callback server, the real protocol, and ranks that send what real ranks send and otherwise sleep.

It reads where to call from its environment, as the hosts of mpirun do.
"""

import asyncio
import json
import os
import random
import sys
import time

from trainscale.worker.events import Emitter, End, Event, Exit, Heartbeat, Hello, LogLine, Ports, Ready, encode
from trainscale.worker.sample import RankSample, Report

_FIRST_PORT = 20_000
_CONNECTING = 64  # at once, as when a launcher starts hosts


class SimulatedRank:
    """Encodes the events of one rank, with sequence numbers."""

    def __init__(self, rank: int) -> None:
        self.rank = rank
        self._sequence = 0

    def encode(self, *events: Event) -> bytes:
        lines = []
        for event in events:
            is_own = not isinstance(event, LogLine | Exit)  # those are the keeper's
            lines.append(encode(event, self.rank, self._sequence if is_own else None))
            self._sequence += is_own
        return b"".join(lines)


class SimulatedHost:
    def __init__(self, index: int, seconds: int, steps: int) -> None:
        self._index, self._seconds, self._steps = index, seconds, steps

    async def serve(self, address: str, port: int, token: str, limit: asyncio.Semaphore) -> None:
        async with limit:
            reader, writer = await asyncio.open_connection(address, port, limit=2**28)
            writer.write(f"{token} {self._index} host{self._index}\n".encode())
            await reader.readline()  # the bootstrap program
            writer.write(b'@trainscale {"kind":"bootstrap","has":true}\n')
            writer.write(b'@trainscale {"kind":"bootstrap","start":"start.py","python":"python3","version":"3.11"}\n')
        while line := await reader.readline():
            request = json.loads(line)
            if "tasks" in request:
                ranks = [SimulatedRank(task["rank"]) for task in request["tasks"]]
                del request, line
                await self._train(ranks, writer)
                break
            ports = list(range(_FIRST_PORT, _FIRST_PORT + request["ports"]))
            writer.write(encode(Ports(ports, time.time())))
        while await reader.read(65536):
            pass  # signs of life, until the controller closes the connection
        writer.close()

    async def _train(self, ranks: list[SimulatedRank], writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        hello = Hello(f"host{self._index}", 1, "worker", {"torch": "2.13.0"}, {})
        writer.write(b"".join(rank.encode(hello, Ready(1_000_000)) for rank in ranks))
        await asyncio.sleep(random.random())  # hosts do not send at the same moment
        for second in range(1, self._seconds + 1):
            for rank in ranks:
                text = f"rank {rank.rank}: {second} s of training"
                writer.write(rank.encode(Heartbeat("measure", second), LogLine(text, "stderr")))
            await writer.drain()
            await asyncio.sleep(1)
        for rank in ranks:
            writer.write(rank.encode(*self._list_pieces(rank.rank), Exit(0, "")))
        cpu_seconds = 1.0 * self._seconds
        writer.write(encode(End(time.monotonic() - began, cpu_seconds, cpu_seconds, 0.0, 0)))
        await writer.drain()

    def _list_pieces(self, rank: int) -> list[Event]:
        """Return the report of a rank as the lines that a real one sends."""
        times = tuple(round(random.gauss(0.1, 0.001), 6) for _ in range(self._steps))
        sample = RankSample(
            rank, f"host{self._index}", 32 * self._steps, sum(times), times, 1.0, 0.1, 2.3, 2.2, "0" * 16
        )
        sample.host_peak_bytes, sample.cpu_seconds, sample.involuntary_switches = 10**9, sum(times), 0
        pieces = PieceList(rank)
        pieces.send_report(Report(sample, warmup=10))
        return pieces.events


class PieceList(Emitter):
    """Keeps events instead of sending them."""

    def __init__(self, rank: int) -> None:
        super().__init__(rank, -1)
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)


async def main(hosts: int, seconds: int, steps: int) -> None:
    address, port, token = os.environ.pop("TRAINSCALE_CALL").split(",")
    limit = asyncio.Semaphore(_CONNECTING)
    await asyncio.gather(
        *(SimulatedHost(index, seconds, steps).serve(address, int(port), token, limit) for index in range(hosts))
    )


if __name__ == "__main__":
    asyncio.run(main(*map(int, sys.argv[1:])))
