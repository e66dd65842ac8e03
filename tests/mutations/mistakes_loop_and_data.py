"""Mistakes in the loop, in the clock and in the images that ranks get."""

from __future__ import annotations

from mutation import Mutation, single
from runs import SLOW, local, real_images, two

_BASE = "worker/frameworks/base.py"
_LOOP = "worker/training/loop.py"
_RANK = "worker/training/rank.py"
_SAMPLING = "worker/data/sampling.py"
_SOURCE = "worker/data/source.py"
_SYNTHETIC = "worker/data/synthetic.py"

_EPOCH = ("--epochs", "1")

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "ranks-get-the-same-images",
        "Rank 1 gets rank 0's images",
        two("torch", "allreduce"),
        _SYNTHETIC,
        ("job.rank * job.batch,", "0 * job.batch,"),
    ),
    single(
        "ranks-overlap",
        "The images of neighbouring ranks overlap by one",
        two("jax", "allreduce"),
        _SYNTHETIC,
        ("job.rank * job.batch,", "job.rank * (job.batch - 1),"),
    ),
    single(
        "window-skips-steps",
        "The loop takes every second step of the window only",
        local("torch"),
        _LOOP,
        (
            "        ticket = adapter.step(batch)\n        tickets",
            "        ticket = adapter.step(batch) if len(tickets) % 2 else tickets[-1]\n        tickets",
        ),
    ),
    single(
        "window-takes-one-step-less",
        "The loop takes one step less than it counts",
        local("torch"),
        _LOOP,
        (
            "        ticket = adapter.step(batch)\n        tickets",
            "        ticket = adapter.step(batch) if len(tickets) > 1 else None\n        tickets",
        ),
    ),
    single(
        "clock-stops-early",
        "The clock stops before the last steps are done",
        local("jax", SLOW),
        _LOOP,
        (
            "    for ticket in pending:\n        adapter.wait(ticket)\n        stamps",
            "    for ticket in pending:\n        stamps",
        ),
    ),
    single(
        "images-counted-twice",
        "A rank reports twice the images that it trained on",
        local("torch"),
        _RANK,
        ("samples=job.batch * len(window.step_seconds)", "samples=2 * job.batch * len(window.step_seconds)"),
    ),
    single(
        "pixels-not-normalized",
        "Real images are not normalized on their way to the device",
        real_images("torch"),
        _BASE,
        (
            "return self.place(normalization(pixels), labels)",
            'return self.place(pixels.astype("float32") / 255, labels)',
        ),
    ),
    single(
        "data-shuffled-alike",
        "All ranks get the same images of the data set",
        real_images("torch", "allreduce", 2),
        _SAMPLING,
        ("first = (step * workers + rank) * batch", "first = step * workers * batch"),
    ),
    single(
        "one-batch-again-and-again",
        "The loader makes the first batch of the data set again and again",
        real_images("torch", "allreduce", 2),
        _SOURCE,
        ("(BatchRequest(step, epoch) for step in", "(BatchRequest(0 * step, epoch) for step in"),
    ),
    single(
        "last-batch-dropped-on-one-rank",
        "Rank 1 leaves out the last batch of an epoch",
        real_images("torch", "independent", 2, *_EPOCH),
        _SOURCE,
        ("for step in range(self.steps))", "for step in range(self.steps - self._job.rank))"),
    ),
    single(
        "epoch-ends-early",
        "Every rank trains on the first half of an epoch",
        real_images("torch", "allreduce", 2, *_EPOCH),
        _SOURCE,
        ("for step in range(self.steps))", "for step in range(self.steps // 2))"),
    ),
)
