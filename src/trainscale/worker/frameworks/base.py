"""Contract 3, the framework adapter: what a framework must do so that the loop can measure it.

An adapter joins the cluster, builds the network natively, takes steps, and reports. It never times anything, never
decides how many steps are taken, and sends no events: loop.py does that, alike for every framework.

What a framework reads from the environment when it is imported (threads, its backend, roles) is given by a function
``environment(framework, job)`` that the catalogue names; it is called before the adapter's module is imported, with no
job when the framework is only looked at.

A parity check asks an adapter for more than a trial does: ``config["precision"]`` may be ``fp64``, ``job.dropout``
may be False, and ``macs`` and ``logits`` are called.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..job import Job

# The same training in every framework. Ten times this rate makes AlexNet on a batch of 8 overflow within seven steps.
LEARNING_RATE, MOMENTUM, WEIGHT_DECAY = 0.001, 0.9, 1e-4


class Adapter(ABC):
    """One process of a trial. ``lag`` is how many steps may be in flight: 0 when ``step`` returns only when it is
    done.
    """

    lag = 0

    def __init__(self, job: Job) -> None:
        self.job = job

    @classmethod
    @abstractmethod
    def look(cls) -> dict[str, Any]:
        """For the probe, without a job: version, versions, and the names of the GPUs that the framework sees."""

    @classmethod
    @abstractmethod
    def try_model(cls, config: dict[str, Any]) -> dict[str, int]:
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
