"""Contract 3, the framework adapter: what a framework must do so that the loop can measure it.

An adapter joins the cluster, builds the network natively, takes steps, and reports. It never times anything, never
decides how many steps are taken, and sends no events: loop.py does that, alike for every framework.

What a framework reads from the environment when it is imported (threads, its backend, roles) is given by a function
``environment(framework, job)`` that the catalogue names; it is called before the adapter's module is imported, with no
job when the framework is only looked at.

Where a trial trains to an accuracy (``config.trains_epochs``), steps also count what they got right, the rate of every
update is what ``rates(job)`` says, and ``tally`` and ``predict`` are called. Where it does not, a step costs nothing
for them, and the rate is constant.

A parity check asks an adapter for more than a trial does: ``config.precision`` may be ``fp64``, ``job.dropout``
may be False, and ``macs`` and ``logits`` are called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..config import Config
from ..job import Job
from ..models import CROSS_ENTROPY, samples_of
from ..training.learning_rate import learning_rate


def rates(job: Job) -> Callable[[int], float]:
    """The learning rate by the number of updates so far: this rank's own, or a server's share of them (where servers
    apply every gradient as it comes, a worker's update is one of as many as there are workers).
    """
    config = job.config
    if not config.trains_epochs:
        return lambda _: config.learning_rate
    from ..data.source import updates_per_epoch  # here, because that module imports this one

    # A partial and not a lambda: MXNet pickles it and sends it to its servers.
    return partial(learning_rate, config, updates_per_epoch=updates_per_epoch(job))


class Adapter(ABC):
    """One process of a trial. ``lag`` is how many steps may be in flight: 0 when ``step`` returns only when it is
    done.
    """

    lag = 0
    losses: tuple[str, ...] = (CROSS_ENTROPY,)

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.samples = samples_of(job.config.model)
        if self.samples.loss not in self.losses:
            raise ValueError(
                f"{job.config.framework} has no loss {self.samples.loss!r}; it has {', '.join(self.losses)}"
            )

    @classmethod
    @abstractmethod
    def look(cls) -> dict[str, Any]:
        """For the probe, without a job: version, versions, and the names of the GPUs that the framework sees."""

    @classmethod
    @abstractmethod
    def try_model(cls, config: Config) -> dict[str, int]:
        """For the probe: {"parameters": n} of a user's own network; raises what is wrong with it."""

    @abstractmethod
    def versions(self) -> dict[str, str]:
        """The framework and what it stands on, by name. The first entry is the framework itself."""

    @abstractmethod
    def join(self) -> None:
        """Join the cluster: after this, collective operations of the strategy work."""

    @abstractmethod
    def build(self) -> int:
        """Build the network and the optimizer on the device; returns the number of trainable parameters."""

    @abstractmethod
    def serve(self) -> dict[str, Any]:
        """Be a parameter server until the workers are done; returns what was seen (updates, bytes, staleness)."""

    @abstractmethod
    def place(self, images: Any, labels: Any) -> Any:
        """A batch (numpy, NCHW float32 and int64) as this framework wants it, on the device."""

    def place_pixels(self, pixels: Any, labels: Any, normal: Callable[[Any], Any]) -> Any:
        """The same for 8-bit images (numpy, NCHW uint8), which ``normal`` turns into what ``place`` takes: on the
        host, or by its ``factors`` and ``offsets`` of each channel on the device, where that is faster. The arrays are
        overwritten when three more batches have been placed.
        """
        return self.place(normal(pixels), labels)

    @abstractmethod
    def step(self, batch: Any) -> Any:
        """Enqueue one training step; returns a ticket for it."""

    @abstractmethod
    def wait(self, ticket: Any) -> None:
        """Return when that step is done on the device."""

    @abstractmethod
    def mark(self) -> Any:
        """A ticket for now: the beginning of the first step, for ``seconds_between``."""

    def seconds_between(self, tickets: Sequence[Any]) -> list[float] | None:
        """Times between consecutive tickets by the device's own clock, where it has one. All tickets are done."""
        return None

    @abstractmethod
    def loss(self) -> float:
        """Of the last step, on this rank's own images."""

    def tally(self) -> tuple[float, int]:
        """The sum of the losses, and how many images were labelled right (by the first head, before the update), of
        all steps on this rank since the last call.
        """
        raise NotImplementedError(f"{type(self).__name__} does not count what it gets right")

    def predict(self, batch: Any) -> Any:
        """The first head's logits as a numpy array (images, classes), of the network as it is used: batch norm by its
        running statistics, no dropout. All ranks call it together.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict")

    @abstractmethod
    def device_peak_bytes(self) -> int | None:
        """The most device memory the framework's allocator held; None where the device is the host."""

    @abstractmethod
    def weights(self) -> dict[str, Any]:
        """Trainable parameters as numpy arrays by canonical name, whole even where they are sharded. Collective."""

    def macs(self) -> int:
        """Multiply-adds of one image's forward pass through convolutions and dense layers, all heads included, counted
        on the network as this framework built it: its own operations and shapes, never the graph's own count.
        """
        raise NotImplementedError(f"{type(self).__name__} does not count its operations")

    def logits(self, batch: Any) -> list[Any]:
        """Of every head, the main one first, as numpy arrays (images, classes): the forward pass of a training step
        (batch norm by the batch's own statistics) that changes no weight.
        """
        raise NotImplementedError(f"{type(self).__name__} does not give its logits")

    @abstractmethod
    def leave(self) -> None:
        """Leave the cluster. Parameter servers end by this."""
