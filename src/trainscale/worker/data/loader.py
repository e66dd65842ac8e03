"""The input pipeline: processes that make batches in shared memory, ahead of the training.

The rank requests batches in the order in which it will use them; each of n processes makes every
n-th and answers in order. A process ends when its standard input closes, and so with its rank.
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
from dataclasses import asdict
from typing import Any, NamedTuple

from ..events import claim_stdout
from ..start import end_with_parent
from .batches import BatchMaker, BatchSettings, PhotoBatchMaker, SharedArrays
from .facts import FOLDER, DataError, parse_data_kind
from .seen import compute_hash_sum

_AHEAD = 2  # batches that each process may be ahead
# Slots that stay reserved after their batch was handed out: steps may still be reading them.
_IN_USE = 4
_ARRAYS = ("pixels", "labels", "samples")  # that a process writes for each batch


class LoaderError(RuntimeError):
    """A loader process could not make a batch, or has ended."""


class BatchRequest(NamedTuple):
    step: int
    epoch: int | None = None  # None: of the validation set


class LoadedBatch(NamedTuple):
    pixels: Any
    labels: Any
    counted: int  # of the images
    epoch: int | None
    samples: Any  # the numbers of the images in the data set, in training only
    hash_sum: int  # of ``samples``, by seen.py


class Loader:
    """``waited_seconds`` is how long the training waited for batches that were not ready."""

    def __init__(self, stored: SharedArrays, settings: BatchSettings, shape: tuple[int, ...], processes: int) -> None:
        slots = _AHEAD * processes + _IN_USE
        self.waited_seconds = 0.0
        self._stored = stored
        numbers = ("<i8", (slots, settings.batch))
        shapes = {"pixels": ("|u1", (slots, settings.batch, *shape)), "labels": numbers, "samples": numbers}
        self._batches = SharedArrays.allocate(shapes)
        self._arrays = tuple(self._batches[name] for name in _ARRAYS)
        self._free = deque(range(slots))
        self._in_use: deque[int] = deque()
        self._pending: deque[tuple[BatchRequest, int, int]] = deque()  # with their process and slot
        self._next_process = 0
        start = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "start.py")
        self._processes = [
            subprocess.Popen(
                [sys.executable, start, "loader"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                pass_fds=(stored.descriptor, self._batches.descriptor),
                bufsize=0,
            )
            for _ in range(processes)
        ]
        for number in range(processes):
            arrays = [[shared.descriptor, shared.layout] for shared in (stored, self._batches)]
            self._send(number, [asdict(settings), *arrays, [entry for entry in sys.path if entry]])

    def load_batches(self, requests: Iterable[BatchRequest]) -> Iterator[LoadedBatch]:
        """Yield the batch of every request, in order. This ends any such iterator from before.

        A batch may be used until three more have been taken.
        """
        while self._pending:  # nobody needs them, but their slots are written to until then
            _, process, slot = self._pending.popleft()
            self._free.append(slot)
            try:
                self._wait_for(process)
            except LoaderError:
                pass  # the next request to that process reports it
        upcoming, ahead = iter(requests), _AHEAD * len(self._processes)
        while True:
            while len(self._in_use) >= _IN_USE:
                self._free.append(self._in_use.popleft())
            for request in itertools.islice(upcoming, ahead - len(self._pending)):
                process, slot = self._next_process, self._free.popleft()
                self._next_process = (process + 1) % len(self._processes)
                self._send(process, [slot, *request])
                self._pending.append((request, process, slot))
            if not self._pending:
                return
            request, process, slot = self._pending.popleft()
            self._in_use.append(slot)
            counted, hash_sum = self._wait_for(process)
            pixels, labels, samples = (array[slot] for array in self._arrays)
            yield LoadedBatch(pixels, labels, counted, request.epoch, samples, hash_sum)

    def _send(self, number: int, message: Any) -> None:
        pipe = self._processes[number].stdin
        assert pipe is not None
        try:
            pipe.write(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # it has ended; waiting for its answer reports that

    def _wait_for(self, number: int) -> tuple[int, int]:
        """Return how many images of a process's next batch count, and their hash sum."""
        began = time.perf_counter()
        output = self._processes[number].stdout
        assert output is not None
        line = output.readline()
        self.waited_seconds += time.perf_counter() - began
        if not line:
            code = self._processes[number].wait()
            end = f"was ended by {signal.strsignal(-code)}" if code < 0 else f"ended with exit code {code}"
            if code == -signal.SIGKILL:
                end = "was ended by SIGKILL: is there memory left?"
            raise LoaderError(f"a loader process {end}; its last output is in this rank's log")
        answer = json.loads(line)
        if isinstance(answer, str):
            raise LoaderError(answer)
        counted, hash_sum = answer
        return counted, hash_sum

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        self._stored.close()
        self._batches.close()


def main(arguments: list[str]) -> int:
    """Run a loader process: read settings, then answer each request."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C ends the rank, and that ends this process
    out = claim_stdout()
    lines = sys.stdin.buffer
    first = lines.readline()
    if not first:
        return 1
    values, stored, batches, sys.path[:] = json.loads(first)
    settings, shared = BatchSettings(**values), SharedArrays(*batches)
    is_folder = parse_data_kind(settings.data) == FOLDER
    maker = (PhotoBatchMaker if is_folder else BatchMaker)(SharedArrays(*stored), settings)
    arrays = tuple(shared[name] for name in _ARRAYS)
    for line in iter(lines.readline, b""):
        slot, step, epoch = json.loads(line)
        pixels, labels, samples = (array[slot] for array in arrays)
        answer: tuple[int, int] | str  # how many images count and their hash sum; or what is wrong
        try:
            if epoch is None:
                answer = maker.write_validation_batch(step, pixels, labels), 0
            else:
                samples[...] = maker.write_training_batch(epoch, step, pixels, labels)
                answer = len(labels), compute_hash_sum(samples)
        except DataError as error:
            answer = str(error)
        except Exception as error:
            traceback.print_exc()
            name = "out of memory" if isinstance(error, MemoryError) else type(error).__name__
            answer = f"in a loader process: {name}: {error}"
        try:
            os.write(out, json.dumps(answer).encode() + b"\n")
        except OSError:
            return 1  # the rank has ended
    return 0
