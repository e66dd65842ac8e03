"""Contract 3, the framework adapter: what a framework must do so that the loop can measure it.

``Adapter`` joins the cluster, builds the network natively and takes steps. It measures nothing
and sends no events: training/loop.py does that, alike for every framework.

It derives from ``Proof``, by which the witness of a trial (witness/witness.py), a parity check
(inspection/parity.py) and --explain find out what the steps computed, never inside a window.

If a trial trains to an accuracy (``config.trains_epochs``), steps also count correct
predictions, and the learning rate follows ``learning_rate_schedule(job)``. Otherwise a step
must not pay for either, and the rate is constant.

In a parity check ``config.precision`` may be ``fp64``, and ``job.dropout`` may be False.
"""

from __future__ import annotations

import importlib
import inspect
import platform
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import metadata
from typing import Any

from ..config import Config, compute_learning_rate
from ..events import ServerResult
from ..job import Job
from ..models import CROSS_ENTROPY, Graph, Layer, build, find_samples, resolve
from ..sample import NONE
from ..type_aliases import NamedArrays

# Of the outputs of a user's network: the main head and two auxiliary ones, as in torchvision.
LOSS_WEIGHTS = (1.0, 0.4, 0.4)


def learning_rate_schedule(job: Job) -> Callable[[int], float]:
    """Return a function from the number of updates so far to the learning rate.

    Asynchronous servers count one update of every worker as one.
    """
    config = job.config
    if not config.trains_epochs:
        return lambda _: config.learning_rate
    from ..data.dataset import count_updates_per_epoch

    # Not a lambda, because MXNet pickles it for its servers.
    return partial(compute_learning_rate, config, updates_per_epoch=count_updates_per_epoch(job))


def list_common_versions() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": metadata.version("numpy")}


def call_user_function(config: Config, **extra: Any) -> Any:
    """Call the function that the model names with those of the arguments that it accepts."""
    module, _, name = config.model.partition(":")
    function = getattr(importlib.import_module(module), name)
    accepted = inspect.signature(function).parameters
    known = {"classes": config.classes, "image_size": config.image_size, **extra}
    return function(**{argument: value for argument, value in known.items() if argument in accepted})


def list_heads(outputs: Any) -> list[Any]:
    """Return the outputs of a network as a list."""
    return list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]


def find_graph(config: Config) -> Graph | None:
    """Return the network as a graph; None if it is a user's own network."""
    return None if resolve(config.model) is None else build(config.model, config.image_size, config.classes)


def transpose(values: Any) -> Any:
    """Return a canonical array, (out, in) or OIHW, as most frameworks hold it: (in, out) or HWIO."""
    return values.transpose((2, 3, 1, 0) if values.ndim == 4 else None)


def transpose_back(values: Any) -> Any:
    """Return an array, (in, out) or HWIO, in its canonical layout."""
    return values.transpose((3, 2, 0, 1) if values.ndim == 4 else None)


def count_inside(layer: Layer, sides: Sequence[int]) -> Any:
    """Return how many places of each window, by row and column, are not in the padding."""
    import numpy as np

    counts = []
    for axis, size in enumerate(sides):
        kernel, stride, padding = (layer.options[name][axis] for name in ("kernel", "stride", "padding"))
        starts: Any = np.arange((size + 2 * padding - kernel) // stride + 1) * stride - padding
        counts.append(np.minimum(starts + kernel, size) - np.maximum(starts, 0))
    return np.outer(*counts)


class Proof(ABC):
    """What proves the work of one process. A default may be slow, or leave a trial unproven."""

    job: Job
    config: Config
    # Servers may have weights of their own, which overwrite those that ``restore`` has set.
    updates_restored_weights = True
    takes_any_batch = False  # whether steps with another batch need no other compiled program
    has_biased_variance = False  # whether a running variance is a mean over n values, not n - 1

    @abstractmethod
    def weights(self) -> NamedArrays:
        """Return the whole trainable parameters as numpy arrays by canonical name.

        All ranks call it together.
        """

    @property
    def catalogue_graph(self) -> Graph | None:
        """The network as a graph; None if it is a user's own network."""
        return find_graph(self.config)

    def list_layers(self, kind: str) -> list[Layer]:
        """Return the layers of this kind; none of a user's own network, whose layers are unknown."""
        layers = self.catalogue_graph.layers if self.catalogue_graph else ()
        return [layer for layer in layers if layer.kind == kind]

    @property
    def can_switch_dropout(self) -> bool:
        is_implemented = type(self).set_dropout is not Proof.set_dropout
        return self.catalogue_graph is not None and (is_implemented or not self.list_layers("dropout"))

    @property
    def restores_weights(self) -> bool:
        return type(self).restore is not Proof.restore

    def set_dropout(self, active: bool) -> None:  # noqa: B027
        """Set whether the following steps drop anything. At first they do, unless ``job.dropout`` is False.

        Only a number on the device changes, so the compiled program and the time of a step stay
        the same. While dropout is off, random numbers are drawn, but every value passes unchanged.
        """

    def restore(self, weights: Mapping[str, Any]) -> None:
        """Set all parameters of a network of the catalogue for the next step, to arrays such as
        ``initial_weights`` gives. The state of the optimizer stays. All ranks call it together.
        """
        raise NotImplementedError(f"{type(self).__name__} does not restore weights")

    def skipped_updates(self) -> int:
        """Return how many steps have left the weights unchanged because a loss scale was too large."""
        return 0

    def counted_updates(self) -> int | None:
        """Return how many updates the framework, its compiled program or the servers have counted,
        after the last step of all ranks; None if none does.
        """
        return None

    def drain(self) -> None:
        """Return when the device has done all steps so far.

        It verifies ``wait``, so it copies weights to the host instead; a few values are enough.
        Ranks do not call it together.
        """
        self.weights()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        """Return a function that exchanges a gradient of ``size`` bytes as the strategy does, and
        waits for it; None if the strategy or the adapter cannot.

        All ranks call both together, after the window; weights may change.
        """
        return None

    def statistics(self) -> NamedArrays:
        """Return this rank's ``LAYER.mean`` and ``LAYER.variance`` of every batch norm."""
        if not self.list_layers("batch_norm"):
            return {}
        raise NotImplementedError(f"{type(self).__name__} does not give its running statistics")

    def drop(self, layer: str, values: Any) -> Any:
        """Return what a dropout layer, by its name in the graph, makes of values in a training step.

        Both are numpy arrays (samples, features). ``set_dropout`` applies.
        """
        raise NotImplementedError(f"{type(self).__name__} does not show what its dropout drops")

    def read_batch(self, batch: Any) -> tuple[Any, ...]:
        """Return the images and labels of a placed batch as numpy arrays, in its layout."""
        import numpy as np

        return tuple(np.asarray(part) for part in batch)

    def macs(self) -> int:
        """Return the multiply-adds of one sample's forward pass through convolutions and dense layers.

        They are counted on the network as this framework built it, never on the graph.
        """
        raise NotImplementedError(f"{type(self).__name__} does not count its operations")

    def logits(self, batch: Any) -> list[Any]:
        """Return the logits of every head, the main one first, as numpy arrays (samples, classes).

        It is the forward pass of a training step, and changes no weight.
        """
        raise NotImplementedError(f"{type(self).__name__} does not give its logits")


class Adapter(Proof):
    """One process of a trial."""

    lag = 0  # how many steps may be in flight; 0 if ``step`` returns when it is done
    losses: tuple[str, ...] = (CROSS_ENTROPY,)  # that the framework's adapter computes
    ends_at_once = False  # whether a process may end after ``leave`` without tearing down the framework

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.samples = find_samples(job.config.model)
        if self.samples.loss not in self.losses:
            valid = ", ".join(self.losses)
            raise ValueError(f"{job.config.framework} has no loss {self.samples.loss!r}; it has {valid}")

    @classmethod
    @abstractmethod
    def versions(cls) -> dict[str, str]:
        """Return the version of the framework, which comes first, and of what it stands on."""

    @classmethod
    @abstractmethod
    def gpus(cls) -> list[str]:
        """Return the names of the GPUs that the framework sees."""

    @classmethod
    @abstractmethod
    def try_model(cls, config: Config) -> int:
        """Build a user's own network and return its number of parameters."""

    def join(self) -> None:
        """Join the cluster. After this, collective operations of the strategy work."""

    @abstractmethod
    def build(self) -> int:
        """Build the network and the optimizer; return the number of trainable parameters."""

    def serve(self) -> ServerResult:
        """Be a parameter server, or a scheduler, until the workers are done."""
        raise NotImplementedError(f"{self.config.framework} has no parameter servers")

    @abstractmethod
    def place(self, images: Any, labels: Any) -> Any:
        """Return a batch (numpy, NCHW float32 and int64) as this framework wants it, on the device."""

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> Any:
        """Do the same for 8-bit images (numpy, NCHW uint8).

        ``normalization`` turns them into what ``place`` takes, on the host. An adapter may apply its
        ``factors`` and ``offsets`` of each channel on the device. The arrays are overwritten when
        three more batches have been placed.
        """
        return self.place(normalization(pixels), labels)

    @abstractmethod
    def step(self, batch: Any) -> Any:
        """Enqueue one training step; return a ticket for it."""

    def mark(self) -> Any:
        """Return a ticket for now, the beginning of the first step."""
        return None

    @abstractmethod
    def wait(self, ticket: Any) -> None:
        """Return when that step is done on the device."""

    def seconds_between(self, tickets: Sequence[Any]) -> list[float] | None:
        """Return the times between consecutive tickets, whose steps are done, by the device's own
        clock; None if it has none.
        """
        return None

    @abstractmethod
    def loss(self) -> float:
        """Return the loss of the last step, on this rank's own samples."""

    def tally(self) -> tuple[float, int]:
        """Return the sum of the losses of all steps since the last call, and their number of correct
        predictions: by the first head, before the update, on this rank's own samples.
        """
        raise NotImplementedError(f"{type(self).__name__} does not count correct predictions")

    def predict(self, batch: Any) -> Any:
        """Return the first head's logits as a numpy array (samples, classes), by the running
        statistics of batch norm and without dropout. All ranks call it together.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict")

    def compilation(self) -> str:
        """Return ``cold`` if the rank has compiled a program so far, ``warm`` if a cache had all that
        it needed, ``none`` if it needed none. The cache's own counters or files show it.
        """
        return NONE

    def device_peak_bytes(self) -> int | None:
        """Return the most device memory that the framework's allocator held, if it counts that."""
        return None

    def leave(self) -> None:
        """Leave the cluster. Parameter servers end by this."""
