"""The input pipeline: processes that make batches ahead of the training, in shared memory.

The rank asks for batches in the order in which it will use them, as many ahead as there are free places; each process
makes every n-th. Each answers in order, so the rank waits for one answer, of the process whose turn it is. A process
ends when its standard input closes: with its rank, however that ends.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

from ..events import claim_stdout
from ..pinning import die_with_parent
from .facts import DataError
from .making import BatchRequest, maker
from .shared import Shared

_AHEAD = 2  # batches that each process may be ahead
# Places that are kept after their batch was handed out: so many steps may still be reading from them.
_IN_USE = 4

Request = tuple[Any, ...]  # ("train", epoch, step) or ("validate", step)


class LoaderError(RuntimeError):
    """A loader process could not make a batch, or is gone."""


class Loader:
    """``waited_seconds``: how long the training stood still because a batch was not ready."""

    def __init__(self, stored: Shared, wish: BatchRequest, shape: tuple[int, ...], processes: int) -> None:
        count = _AHEAD * processes + _IN_USE
        self.waited_seconds = 0.0
        self._stored = stored
        self._places = Shared.make(
            {"pixels": ("|u1", (count, wish.batch, *shape)), "labels": ("<i8", (count, wish.batch))}
        )
        self._pixels, self._labels = self._places["pixels"], self._places["labels"]
        self._free = deque(range(count))
        self._used: deque[int] = deque()
        self._asked: deque[tuple[Request, int, int]] = deque()  # what is being made: of which process, in which place
        self._turn = 0
        self._ahead = _AHEAD * processes
        self._processes = [self._start(stored, wish) for _ in range(processes)]

    def _start(self, stored: Shared, wish: BatchRequest) -> subprocess.Popen[bytes]:
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

    def batches(self, requests: Iterable[Request], then: Iterable[Request] = ()) -> Iterator[tuple[Any, Any, int]]:
        """Pixels, labels and how many of them count, of every request in order. A batch may be used until three more
        have been taken. ``then``: what will probably be asked for next; it is begun when these requests run out, so
        that an epoch does not begin with empty hands. One such iterator at a time.
        """
        wanted = iter(requests)
        mine, rest = deque(itertools.islice(wanted, self._ahead)), iter(then)
        if [request for request, _, _ in self._asked] != list(itertools.islice(mine, len(self._asked))):
            self._forget()
        mine_asked = len(self._asked)
        for _ in range(mine_asked):
            mine.popleft()
        coming = itertools.chain(mine, wanted)
        while True:
            while len(self._asked) < self._ahead and self._free:
                request = next(coming, None)
                if request is not None:
                    mine_asked += 1
                elif (request := next(rest, None)) is None:
                    break
                self._ask(request)
            if not mine_asked:
                return
            mine_asked -= 1
            _, process, place = self._asked.popleft()
            self._used.append(place)
            counted = self._hear(process)
            yield self._pixels[place], self._labels[place], counted
            while len(self._used) >= _IN_USE:
                self._free.append(self._used.popleft())

    def _ask(self, request: Request) -> None:
        place = self._free.popleft()
        _say(self._processes[self._turn], [place, *request])
        self._asked.append((request, self._turn, place))
        self._turn = (self._turn + 1) % len(self._processes)

    def _forget(self) -> None:
        """What was asked for in vain is still being made: nobody may write to its places until it is."""
        while self._asked:
            _, process, place = self._asked.popleft()
            self._free.append(place)
            try:
                self._hear(process)
            except LoaderError:
                pass  # whoever asks that process for something else is told

    def _hear(self, number: int) -> int:
        began = time.perf_counter()
        output = self._processes[number].stdout
        assert output is not None
        line = output.readline()
        self.waited_seconds += time.perf_counter() - began
        if not line:
            code = self._processes[number].wait()
            raise LoaderError(f"a loader process {_end(code)}; its last words, if any, are in this rank's log")
        answer = json.loads(line)
        if "error" in answer:
            raise LoaderError(answer["error"])
        return int(answer["counted"])

    def close(self) -> None:
        """Ends the processes, whatever they are making; gives the memory back."""
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        self._stored.close()
        self._places.close()


def _end(code: int) -> str:
    """In words: by which signal, or with which exit code."""
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else f"signal {-code}"
    memory = ": is there memory left?" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{memory}"


def _say(process: subprocess.Popen[bytes], what: Any) -> None:
    assert process.stdin is not None
    try:
        process.stdin.write(json.dumps(what).encode() + b"\n")
    except OSError:
        pass  # it has ended: whoever waits for its answer is told


def main(arguments: list[str]) -> int:
    """A loader process."""
    die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C ends the rank, and that ends this
    out = claim_stdout()
    lines = sys.stdin.buffer
    first = lines.readline()
    if not first:
        return 1
    told = json.loads(first)
    sys.path[:] = told["path"]
    stored, places = Shared(*told["stored"]), Shared(*told["places"])
    make = maker(stored, BatchRequest(**told["wish"]))
    pixels, labels = places["pixels"], places["labels"]
    for line in iter(lines.readline, b""):
        place, kind, *which = json.loads(line)
        try:
            counted = getattr(make, kind)(*which, pixels[place], labels[place])
            answer: dict[str, Any] = {"counted": len(labels[place]) if counted is None else counted}
        except DataError as error:
            answer = {"error": str(error)}
        except Exception as error:
            traceback.print_exc()
            what = "out of memory" if isinstance(error, MemoryError) else type(error).__name__
            answer = {"error": f"in a loader process: {what}: {error}"}
        try:
            os.write(out, json.dumps(answer).encode() + b"\n")
        except OSError:
            return 1  # the rank is gone
    return 0
