"""The input pipeline: processes that make batches ahead of the training, in shared memory.

The rank asks for batches in the order in which it will use them, as many ahead as there are free places; each process
makes every n-th. Each answers in order, so the rank waits for one answer, of the process whose turn it is. A process
ends when its standard input closes: with its rank, however that ends.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ..pinning import die_with_parent
from .making import Wish, maker
from .shared import Shared

_AHEAD = 2  # batches that each process may be ahead
# Places that are kept after their batch was handed out: so many steps may still be reading from them.
_IN_USE = 4

Request = tuple[Any, ...]  # ("train", epoch, step) or ("validate", step)


class Loader:
    """``waited_seconds``: how long the training stood still because a batch was not ready."""

    def __init__(self, stored: Shared, wish: Wish, shape: tuple[int, ...], processes: int) -> None:
        count = _AHEAD * processes + _IN_USE
        self.waited_seconds = 0.0
        self._places = Shared.make(
            {"pixels": ("|u1", (count, wish.batch, *shape)), "labels": ("<i8", (count, wish.batch))}
        )
        self._pixels, self._labels = self._places["pixels"], self._places["labels"]
        self._free = deque(range(count))
        self._used: deque[int] = deque()
        self._processes = [self._start(stored, wish) for _ in range(processes)]
        self._ahead = _AHEAD * processes

    def _start(self, stored: Shared, wish: Wish) -> subprocess.Popen[bytes]:
        door = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "start.py")  # noqa: PTH100, PTH118, PTH120
        process = subprocess.Popen(
            [sys.executable, door, "loader"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(stored.descriptor, self._places.descriptor),
            bufsize=0,
        )
        told = {
            "stored": [stored.descriptor, stored.layout],
            "places": [self._places.descriptor, self._places.layout],
            "wish": wish.to_dict(),
            "path": [entry for entry in sys.path if entry],
        }
        _say(process, told)
        return process

    def batches(self, requests: Iterable[Request]) -> Iterator[tuple[Any, Any, int]]:
        """Pixels, labels and how many of them count, of every request in order. A batch may be used until three more
        have been taken. One such iterator at a time; what it did not hand out is made in vain.
        """
        asked: deque[tuple[int, int]] = deque()  # process, place
        wanted, turn = iter(requests), 0
        try:
            while True:
                while len(asked) < self._ahead and self._free:
                    request = next(wanted, None)
                    if request is None:
                        break
                    place = self._free.popleft()
                    _say(self._processes[turn], [place, *request])
                    asked.append((turn, place))
                    turn = (turn + 1) % len(self._processes)
                if not asked:
                    return
                number, place = asked.popleft()
                self._used.append(place)
                counted = self._hear(number)
                yield self._pixels[place], self._labels[place], counted
                while len(self._used) >= _IN_USE:
                    self._free.append(self._used.popleft())
        finally:
            for number, place in asked:  # a rank that stops early: what was asked for is still being made
                self._hear(number)
                self._free.append(place)

    def _hear(self, number: int) -> int:
        began = time.perf_counter()
        output = self._processes[number].stdout
        assert output is not None
        line = output.readline()
        self.waited_seconds += time.perf_counter() - began
        if not line:
            code = self._processes[number].wait()
            raise RuntimeError(f"a loader process ended with exit code {code}; its last words are in this log")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(answer["error"])
        return int(answer["counted"])

    def close(self) -> None:
        for process in self._processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in self._processes:
            process.wait()


def _say(process: subprocess.Popen[bytes], what: Any) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(what).encode() + b"\n")
    except OSError:
        pass  # it has ended: whoever waits for its answer is told


def main(arguments: list[str]) -> int:
    """A loader process."""
    die_with_parent()
    lines = sys.stdin.buffer
    told = json.loads(lines.readline())
    sys.path[:] = told["path"]
    stored, places = Shared(*told["stored"]), Shared(*told["places"])
    make = maker(stored, Wish(**told["wish"]))
    pixels, labels = places["pixels"], places["labels"]
    for line in iter(lines.readline, b""):
        place, kind, *which = json.loads(line)
        try:
            counted = getattr(make, kind)(*which, pixels[place], labels[place])
            answer: dict[str, Any] = {"counted": len(labels[place]) if counted is None else counted}
        except Exception as error:
            answer = {"error": str(error) or type(error).__name__}
        try:
            sys.stdout.buffer.write(json.dumps(answer).encode() + b"\n")
            sys.stdout.buffer.flush()
        except OSError:
            return 1  # the rank is gone
    return 0
