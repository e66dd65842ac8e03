"""Mistakes in the loop, in the clock and in the images that ranks get."""

from __future__ import annotations

from mutation import Mutation, single
from runs import PLAIN, SLOW, local, real_images, two

_BASE = "worker/frameworks/base.py"
_LOOP = "worker/training/loop.py"
_RANK = "worker/training/rank.py"
_SAMPLING = "worker/data/batches.py"
_DATASET = "worker/data/dataset.py"
_SOURCE = "worker/data/source.py"

_EPOCH = ("--epochs", "1")

MUTATIONS: tuple[Mutation, ...] = (
    single(
        "ranks-get-the-same-images",
        "Rank 1 gets rank 0's images",
        two("torch", "allreduce"),
        _SOURCE,
        ("job.rank * job.batch,", "0 * job.batch,"),
    ),
    single(
        "ranks-overlap",
        "The images of neighbouring ranks overlap by one",
        two("jax", "allreduce"),
        _SOURCE,
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
        ("sample.samples = job.batch *", "sample.samples = 2 * job.batch *"),
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
        _DATASET,
        ("(BatchRequest(step, epoch) for step in", "(BatchRequest(0 * step, epoch) for step in"),
    ),
    single(
        "last-batch-dropped-on-one-rank",
        "Rank 1 leaves out the last batch of an epoch",
        real_images("torch", "independent", 2, *_EPOCH),
        _DATASET,
        ("for step in range(self.steps))", "for step in range(self.steps - self._job.rank))"),
    ),
    single(
        "epoch-ends-early",
        "Every rank trains on the first half of an epoch",
        real_images("torch", "allreduce", 2, *_EPOCH),
        _DATASET,
        ("for step in range(self.steps))", "for step in range(self.steps // 2))"),
    ),
    single(
        "clock-starts-late",
        "The clock starts when the first step of the window is done",
        local("torch", SLOW),
        _LOOP,
        ("window_seconds = stamps[-1] - stamps[0]", "window_seconds = stamps[-1] - stamps[1]"),
    ),
    single(
        "clock-leaves-out-the-first-step",
        "The clock and the step times leave out the first step of the window, whose images are counted",
        local("torch", "mnist:256"),
        _LOOP,
        (
            "    window_seconds = stamps[-1] - stamps[0]\n",
            "    window_seconds = stamps[-1] - stamps[1]\n"
            "    share = window_seconds / (stamps[-1] - stamps[0])\n"
            "    stamps = [share * stamp for stamp in stamps]\n",
        ),
    ),
    single(
        "clock-runs-slowly",
        "The clock of the loop counts half a second for every second",
        local("jax", SLOW),
        _LOOP,
        ("clock = time.perf_counter\n", "def clock() -> float:\n    return time.perf_counter() / 2\n"),
    ),
    single(
        "window-takes-every-second-step-in-bf16",
        "The loop takes every second step of the window only, in bf16",
        local("torch", PLAIN, "--precision", "bf16"),
        _LOOP,
        (
            "        ticket = adapter.step(batch)\n        tickets",
            "        ticket = adapter.step(batch) if len(tickets) % 2 else tickets[-1]\n        tickets",
        ),
    ),
    single(
        "images-are-zeros",
        "All random images are zeros",
        local("torch"),
        _SOURCE,
        ("        random.standard_normal(out=samples[row], dtype=samples.dtype)\n", "        samples[row] = 0\n"),
    ),
    single(
        "images-are-alike",
        "All random images are the same",
        two("jax", "allreduce"),
        _SOURCE,
        ("random = np.random.default_rng([seed, first + row])", "random = np.random.default_rng([seed, 0])"),
    ),
    single(
        "labels-are-zeros",
        "All random labels are zero",
        local("tensorflow", "plain-graph:16"),
        _SOURCE,
        ("        labels[row] = random.integers(classes)\n", "        labels[row] = 0 * random.integers(classes)\n"),
    ),
    single(
        "rank-1-counts-twice",
        "Rank 1 reports the images of both ranks",
        two("mxnet", "ps"),
        _RANK,
        (
            "sample.samples = job.batch *",
            "sample.samples = (1 + job.rank) * job.batch *",
        ),
    ),
    single(
        "labels-of-another-batch",
        "Rank 1 gets the labels of rank 0",
        two("keras-torch", "allreduce"),
        _SOURCE,
        (
            "    return place(*make_samples(",
            "    labels = make_samples(job.seed, 0, job.batch, shape, job.config.classes, samples.dtype)[1]\n"
            "    put, place = place, lambda images, _: put(images, labels)\n"
            "    return place(*make_samples(",
        ),
    ),
)
