"""The input pipeline: processes that make batches in shared memory, ahead of the training.

The rank requests batches in the order in which it will use them; each of n processes makes every
n-th and answers in order. A process ends when its standard input closes, and so with its rank.

An epoch is a permutation of all training images by seed and epoch. Step k of n ranks with batch
b takes the k-th n·b of them, and rank r the r-th b of those: n ranks see what one device sees
with a batch of n·b. Which images are left over differs from epoch to epoch.

The random numbers by which an image is changed depend on seed, epoch and image alone. Images
are written one by one: whole arrays do not fit into a cache.
"""

from __future__ import annotations

import itertools
import json
import math
import mmap
import os
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from ..events import claim_stdout
from ..job import Job
from ..sample import compute_hash_sum
from ..start import START, end_with_parent
from ..type_aliases import NamedArrays
from . import folder, published_files
from .facts import FOLDER, KNOWN, MNIST, TRAIN, VALID, DataError, parse_data_kind

_AHEAD = 2  # batches that each process may be ahead
# Slots reserved after their batch was handed out: steps may still read them.
_IN_USE = 4
_ARRAYS = ("pixels", "labels", "samples")  # that a process writes for each batch
_ALIGNMENT = 64  # of shared arrays, in bytes


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
    hash_sum: int  # of ``samples``


class Loader:
    """``waited_seconds`` is how long the training waited for batches that were not ready."""

    def __init__(self, job: Job, processes: int) -> None:
        config, slots = job.config, _AHEAD * processes + _IN_USE
        self.waited_seconds = 0.0
        self._stored = load_dataset(config.data, job.data_dir)
        numbers = ("<i8", (slots, job.batch))
        shape = (slots, job.batch, config.channels, config.image_size, config.image_size)
        shapes = {"pixels": ("|u1", shape), "labels": numbers, "samples": numbers}
        self._batches = SharedArrays.allocate(shapes)
        self._arrays = tuple(self._batches[name] for name in _ARRAYS)
        self._free = deque(range(slots))
        self._in_use: deque[int] = deque()
        self._pending: deque[tuple[BatchRequest, int, int]] = deque()  # with process and slot
        self._next_process = 0
        command, pipe = [sys.executable, START, "loader"], subprocess.PIPE
        descriptors = self._stored.descriptor, self._batches.descriptor
        self._processes = [
            subprocess.Popen(command, stdin=pipe, stdout=pipe, pass_fds=descriptors, bufsize=0)
            for _ in range(processes)
        ]
        arrays = list(zip(descriptors, (self._stored.layout, self._batches.layout)))
        for number in range(processes):
            self._send(number, [job.to_json(), *arrays, [entry for entry in sys.path if entry]])

    def load_batches(self, requests: Iterable[BatchRequest]) -> Iterator[LoadedBatch]:
        """Yield the batch of every request, in order. This ends any such iterator from before.

        A batch may be used until three more have been taken.
        """
        while self._pending:  # their slots are written to until then
            _, process, slot = self._pending.popleft()
            self._free.append(slot)
            with suppress(LoaderError):  # the next request to that process reports it
                self._wait_for(process)
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
        with suppress(OSError):  # it has ended; waiting for its answer reports that
            pipe.write(json.dumps(message).encode() + b"\n")

    def _wait_for(self, number: int) -> tuple[int, int]:
        """Return how many images of a process's next batch count, and their hash sum."""
        began = time.perf_counter()
        output = self._processes[number].stdout
        assert output is not None
        line = output.readline()
        self.waited_seconds += time.perf_counter() - began
        if not line:
            code = self._processes[number].wait()
            end = f"ended with exit code {code}"
            if code < 0:
                end = f"was ended by {signal.strsignal(-code)}"
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
            process.communicate()  # which closes its pipes and waits for it
        self._stored.close()
        self._batches.close()


def main(arguments: list[str]) -> int:
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the rank
    out = claim_stdout()
    lines = sys.stdin.buffer
    first = lines.readline()
    if not first:
        return 1
    text, stored, batches, sys.path[:] = json.loads(first)
    job, shared = Job.from_json(text), SharedArrays(*batches)
    is_folder = parse_data_kind(job.config.data) == FOLDER
    maker = (PhotoBatchMaker if is_folder else BatchMaker)(SharedArrays(*stored), job)
    arrays = tuple(shared[name] for name in _ARRAYS)
    for line in iter(lines.readline, b""):
        slot, step, epoch = json.loads(line)
        pixels, labels, samples = (array[slot] for array in arrays)
        answer: tuple[int, int] | str  # counted images and hash sum, or an error
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


# ---- what a loader process does: choose the images of a batch, and write them


class BatchMaker:
    """Makes batches of images that are all in memory and all of one size."""

    draws_per_image = 3

    def __init__(self, stored: SharedArrays, job: Job) -> None:
        self._job = job
        # A mirrored digit is no digit.
        self._augments = job.config.augment and parse_data_kind(job.config.data) != MNIST
        self._stored = {name: stored[name] for name in stored.layout}
        self._epoch = -1
        self._order: Any = None
        self._draws: Any = None  # by which images are changed; None where they are not

    def write_training_batch(self, epoch: int, step: int, pixels: Any, labels: Any) -> Any:
        """Return the numbers of the samples."""
        job = self._job
        if epoch != self._epoch:
            count, self._epoch = len(self._stored[f"{TRAIN} labels"]), epoch
            self._order = shuffle_epoch(count, job.seed, epoch)
            if self._augments:
                self._draws = draw_numbers(count, job.seed, epoch, self.draws_per_image)
        chosen = select_rank_batch(self._order, step, job.batch, job.rank, job.workers)
        draws = None if self._draws is None else self._draws[chosen]
        self._write(TRAIN, chosen, draws, pixels, labels)
        return chosen

    def write_validation_batch(self, step: int, pixels: Any, labels: Any) -> int:
        """Return how many of the images count: fewer at the end, or none. The others are black."""
        job, count = self._job, len(self._stored[f"{VALID} labels"])
        low, high = count * job.rank // job.workers, count * (job.rank + 1) // job.workers
        first = min(low + step * job.batch, high)
        chosen = np.arange(first, min(first + job.batch, high))
        counted = len(chosen)
        self._write(VALID, chosen, None, pixels[:counted], labels[:counted])
        pixels[counted:], labels[counted:] = 0, 0
        return counted

    def _write(self, split: str, chosen: Any, draws: Any | None, pixels: Any, labels: Any) -> None:
        write_images(pixels, self._stored[f"{split} images"], chosen, draws)
        labels[...] = self._stored[f"{split} labels"][chosen]


class PhotoBatchMaker(BatchMaker):
    draws_per_image = 5  # area, shape, column, row, mirror

    def _write(self, split: str, chosen: Any, draws: Any | None, pixels: Any, labels: Any) -> None:
        names, ends = self._stored[f"{split} names"], self._stored[f"{split} ends"]
        for row, index in enumerate(chosen):
            first = int(ends[index - 1]) if index else 0
            path = os.fsdecode(names[first : int(ends[index])].tobytes())
            folder.decode_photograph(pixels[row], path, None if draws is None else draws[row])
        labels[...] = self._stored[f"{split} labels"][chosen]


def load_dataset(data: str, directory: str) -> SharedArrays:
    kind = parse_data_kind(data)
    if kind == FOLDER:
        arrays: NamedArrays = {}
        for split in (TRAIN, VALID):
            photographs = folder.list_photographs(directory, split)
            names = [os.fsencode(path) for path in photographs.paths]
            arrays[f"{split} names"] = np.frombuffer(b"".join(names), np.uint8)
            arrays[f"{split} ends"] = np.cumsum([len(name) for name in names], dtype=np.int64)
            arrays[f"{split} labels"] = np.asarray(photographs.labels, np.int64)
        return SharedArrays.from_arrays(arrays)

    known = KNOWN[kind]
    shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
    for split, count in published_files.count_images(kind, directory).items():
        shapes[f"{split} images"] = ("|u1", (count, known.channels, known.image_size, known.image_size))
        shapes[f"{split} labels"] = ("<i8", (count,))
    shared = SharedArrays.allocate(shapes)
    for split in (TRAIN, VALID):
        first = 0
        for images, labels in published_files.read_files(kind, directory, split):
            last = first + len(images)
            shared[f"{split} images"][first:last] = images
            shared[f"{split} labels"][first:last] = labels
            first = last
    return shared


def shuffle_epoch(count: int, seed: int, epoch: int) -> Any:
    return np.random.default_rng([seed, epoch]).permutation(count)


def count_steps_per_epoch(count: int, batch: int, workers: int) -> int:
    return count // (batch * workers)


def select_rank_batch(order: Any, step: int, batch: int, rank: int, workers: int) -> Any:
    first = (step * workers + rank) * batch
    return order[first : first + batch]


def count_validation_steps(count: int, batch: int, workers: int) -> int:
    # As many on every rank, because a sharded network needs all ranks in each step.
    return math.ceil(math.ceil(count / workers) / batch)


def draw_numbers(count: int, seed: int, epoch: int, each: int) -> Any:
    """Return ``each`` numbers in [0, 1) for every image of an epoch."""
    return np.random.default_rng([seed, epoch, each]).random((count, each), dtype=np.float32)


def write_images(out: Any, stored: Any, chosen: Any, draws: Any | None) -> None:
    """Write the ``chosen`` images of ``stored`` to ``out`` (images, channels, size, size).

    ``draws`` (row, column and mirror of each image) is for training. A larger stored image is
    cropped at random and mirrored, as in MXNet's CIFAR-10 example; validation takes the centre.
    One of the same size is shifted by up to a tenth, repeating its edge, and mirrored, as in
    Keras' example. A smaller one is enlarged without randomness, as in the Keras-MXNet profile.
    """
    size, side = out.shape[-1], stored.shape[-1]
    if size > side:
        # Repeat each pixel as often as fits, and leave the border black.
        times = size // side
        first, length = (size - side * times) // 2, side * times
        inside = slice(first, first + length)
        for border in (slice(0, first), slice(first + length, size)):
            out[:, :, border] = 0
            out[:, :, :, border] = 0
        for target, index in zip(out, np.asarray(chosen).tolist()):
            # Rows in groups of equal ones: a view, because only one axis is split.
            rows = target[:, inside, inside].reshape(stored.shape[1], side, times, length)
            rows[...] = stored[index].repeat(times, axis=2)[:, :, None]
    elif draws is None:
        first = (side - size) // 2
        out[...] = stored[chosen, :, first : first + size, first : first + size]
    elif size < side:
        crop(out, stored, chosen, draws)
    else:
        margin = side // 10
        padded = np.pad(stored[chosen], ((0, 0), (0, 0), (margin, margin), (margin, margin)), "edge")
        crop(out, padded, np.arange(len(chosen)), draws)


def crop(out: Any, stored: Any, chosen: Any, draws: Any) -> None:
    """Write a random window of each image, every other one mirrored."""
    size = out.shape[-1]
    offsets = stored.shape[-1] - size + 1
    tops, lefts = np.minimum((draws[:, :2] * offsets).astype(np.int64), offsets - 1).T.tolist()
    mirrored = (draws[:, 2] < 0.5).tolist()
    for target, index, top, left, mirror in zip(out, np.asarray(chosen).tolist(), tops, lefts, mirrored):
        window = stored[index, :, top : top + size, left : left + size]
        target[...] = window[:, :, ::-1] if mirror else window


class SharedArrays:
    """Arrays in a file without a name, which other processes open by its descriptor and ``layout``."""

    def __init__(self, descriptor: int, layout: Mapping[str, Any]) -> None:
        self.descriptor, self.layout = descriptor, dict(layout)
        self._memory = mmap.mmap(descriptor, os.fstat(descriptor).st_size)

    def __getitem__(self, name: str) -> Any:
        dtype, shape, offset = self.layout[name]
        count = int(np.prod(shape, dtype=np.int64))
        return np.frombuffer(self._memory, np.dtype(dtype), count, offset).reshape(shape)

    def close(self) -> None:
        """Close the file. Arrays that were read from it stay valid."""
        os.close(self.descriptor)

    @classmethod
    def allocate(cls, shapes: Mapping[str, tuple[str, tuple[int, ...]]]) -> SharedArrays:
        layout, end = {}, 0
        for name, (dtype, shape) in shapes.items():
            layout[name] = (dtype, list(shape), end)
            end += int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            end += -end % _ALIGNMENT
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("trainscale")
        else:  # on disk: containers often have only 64 MB of /dev/shm
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        try:
            # Reserve the memory now. A page that is missing later would be a bus error.
            os.posix_fallocate(descriptor, 0, max(1, end))
        except OSError as error:
            os.close(descriptor)
            size = f"{end / 2**20:,.0f} MiB of shared memory"
            raise MemoryError(f"cannot allocate {size}: {error.strerror}") from None
        return cls(descriptor, layout)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> SharedArrays:
        shared = cls.allocate({name: (array.dtype.str, array.shape) for name, array in arrays.items()})
        for name, array in arrays.items():
            shared[name][...] = array
        return shared
