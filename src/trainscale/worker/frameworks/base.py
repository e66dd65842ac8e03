"""Contract 3, the framework adapter: what a framework must do so that the loop can measure it.

``Adapter`` is for training: it joins the cluster, builds the network natively and takes steps. It measures nothing and
sends no events: training/loop.py does that, alike for every framework.

``Proof`` is for everything else, by which the witness of a trial (witness/witness.py), a parity check
(inspection/parity.py) and --explain find out what the steps computed. None of it is called inside a window. The
adapters of this package derive from both.

If a trial trains to an accuracy (``config.trains_epochs``), steps also count correct predictions, and the learning rate
follows ``learning_rate_schedule(job)``. Otherwise a step must not pay for either, and the rate is constant.

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

# A user's network may return several outputs: the main head and two auxiliary ones, weighted as in torchvision.
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
    """Return the versions that every framework reports after its own."""
    return {"python": platform.python_version(), "numpy": metadata.version("numpy")}


def call_user_function(config: Config, **extra: Any) -> Any:
    """Call the function that the model names with the arguments it accepts of classes, image_size and ``extra``."""
    module, _, name = config.model.partition(":")
    function = getattr(importlib.import_module(module), name)
    accepted = inspect.signature(function).parameters
    known = {"classes": config.classes, "image_size": config.image_size, **extra}
    return function(**{argument: value for argument, value in known.items() if argument in accepted})


def list_heads(outputs: Any) -> list[Any]:
    """Return the outputs of a network, one for each head, as a list."""
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
    """Return how many places of each window, by row and column, are in the image and not in its padding."""
    import numpy as np

    counts = []
    for axis, size in enumerate(sides):
        kernel, stride, padding = (layer.options[name][axis] for name in ("kernel", "stride", "padding"))
        starts: Any = np.arange((size + 2 * padding - kernel) // stride + 1) * stride - padding
        counts.append(np.minimum(starts + kernel, size) - np.maximum(starts, 0))
    return np.outer(*counts)


class Proof(ABC):
    """What proves the work of one process. The defaults are right, but may be slow or leave a trial unproven."""

    job: Job
    config: Config
    # Whether an update starts from the weights that ``restore`` has set. Servers may have weights of their own, which
    # overwrite the worker's copy.
    updates_restored_weights = True
    takes_any_batch = False  # whether steps with another batch need no other compiled program
    has_biased_variance = False  # whether batch norm's running variance is a mean over n values and not over n - 1

    @abstractmethod
    def weights(self) -> NamedArrays:
        """Return the trainable parameters as numpy arrays by canonical name, gathered where they are sharded.

        All ranks call it together.
        """

    @property
    def catalogue_graph(self) -> Graph | None:
        """The network as a graph; None if it is a user's own network."""
        return find_graph(self.config)

    def has_layer(self, kind: str) -> bool:
        """Whether the network has a layer of this kind. Unknown layers of a user's own network do not count."""
        return self.catalogue_graph is not None and any(layer.kind == kind for layer in self.catalogue_graph.layers)

    @property
    def can_switch_dropout(self) -> bool:
        """Whether ``set_dropout`` has its effect. It has none in users' own networks, whose layers are unknown."""
        is_implemented = type(self).set_dropout is not Proof.set_dropout
        return self.catalogue_graph is not None and (is_implemented or not self.has_layer("dropout"))

    @property
    def restores_weights(self) -> bool:
        """Whether ``restore`` is implemented."""
        return type(self).restore is not Proof.restore

    def set_dropout(self, active: bool) -> None:  # noqa: B027  (a network without dropout has nothing to switch)
        """Set whether the following steps drop anything. At first they do, unless ``job.dropout`` is False.

        The compiled program stays the same, and so does the time of a step: only a number on the device changes. While
        dropout is off, the framework still draws its random numbers, but every value passes unchanged.
        """

    def restore(self, weights: Mapping[str, Any]) -> None:
        """Set all parameters of a network of the catalogue for the next step. The state of the optimizer stays.

        The arrays are those of ``models.weights.initial_weights``: float32, by canonical name, in canonical layout. All
        ranks call it together.
        """
        raise NotImplementedError(f"{type(self).__name__} does not restore weights")

    def skipped_updates(self) -> int:
        """Return how many steps so far have left the weights unchanged because a loss scale was too large."""
        return 0

    def counted_updates(self) -> int | None:
        """Return how many updates the framework, its compiled program or the servers have counted; None if none does.

        All ranks have ended their steps.
        """
        return None

    def drain(self) -> None:
        """Return when the device has done all steps so far.

        It verifies ``wait``, so it does not use it: it copies weights to the host, of which a few values are enough.
        Ranks do not call it together, except by this default where weights are sharded.
        """
        self.weights()

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        """Return a function that exchanges a gradient of ``size`` bytes as the strategy does, and waits for it.

        None if the strategy exchanges nothing, cannot exchange that size, or the adapter does not offer it. All ranks
        call both together, after the window; weights may change.
        """
        return None

    def statistics(self) -> NamedArrays:
        """Return the running statistics of every batch norm of this rank as numpy arrays.

        The names are ``LAYER.mean`` and ``LAYER.variance``. ``has_biased_variance`` says which variance it is.
        """
        if not self.has_layer("batch_norm"):
            return {}
        raise NotImplementedError(f"{type(self).__name__} does not give its running statistics")

    def drop(self, layer: str, values: Any) -> Any:
        """Return what a dropout layer, by its name in the graph, makes of values in a training step.

        Both are numpy arrays (samples, features). ``set_dropout`` applies. A parity check calls it, on one device.
        """
        raise NotImplementedError(f"{type(self).__name__} does not show what its dropout drops")

    def read_batch(self, batch: Any) -> tuple[Any, ...]:
        """Return the images and labels of a placed batch as numpy arrays, in the layout that they have there."""
        import numpy as np

        return tuple(np.asarray(part) for part in batch)

    def macs(self) -> int:
        """Return the multiply-adds of one sample's forward pass through convolutions and dense layers, all heads.

        They are counted on the operations and shapes of the network as this framework built it, never on the graph.
        """
        raise NotImplementedError(f"{type(self).__name__} does not count its operations")

    def logits(self, batch: Any) -> list[Any]:
        """Return the logits of every head, the main one first, as numpy arrays (samples, classes).

        It is the forward pass of a training step, with the batch's own statistics, and changes no weight.
        """
        raise NotImplementedError(f"{type(self).__name__} does not give its logits")


class Adapter(ABC):
    """One process of a trial. ``lag`` is how many steps may be in flight; 0 if ``step`` returns when it is done."""

    lag = 0
    losses: tuple[str, ...] = (CROSS_ENTROPY,)  # that the framework's adapter computes
    ends_at_once = False  # whether a process may end without tearing down the framework, after ``leave``

    def __init__(self, job: Job) -> None:
        self.job = job
        self.config = job.config
        self.samples = find_samples(job.config.model)
        if self.samples.loss not in self.losses:
            valid = ", ".join(self.losses)
            raise ValueError(f"{job.config.framework} has no loss {self.samples.loss!r}; it has {valid}")

    @property
    def proof(self) -> Proof:
        """What proves this process's work: the adapter itself, if it derives from ``Proof``."""
        assert isinstance(self, Proof)
        return self

    @classmethod
    @abstractmethod
    def versions(cls) -> dict[str, str]:
        """Return the versions of the framework, which comes first, and of what it stands on."""

    @classmethod
    @abstractmethod
    def gpus(cls) -> list[str]:
        """Return the names of the GPUs that the framework sees. Called without a job."""

    @classmethod
    @abstractmethod
    def try_model(cls, config: Config) -> int:
        """Build a user's own network and return its number of parameters; raise what is wrong with it."""

    def join(self) -> None:  # noqa: B027  (a rank alone has nobody to join)
        """Join the cluster. After this, collective operations of the strategy work."""

    @abstractmethod
    def build(self) -> int:
        """Build the network and the optimizer on the device; return the number of trainable parameters."""

    def serve(self) -> ServerResult:
        """Be a parameter server, or a scheduler, until the workers are done."""
        raise NotImplementedError(f"{self.config.framework} has no parameter servers")

    @abstractmethod
    def place(self, images: Any, labels: Any) -> Any:
        """Return a batch (numpy, NCHW float32 and int64) as this framework wants it, on the device."""

    def place_pixels(self, pixels: Any, labels: Any, normalization: Any) -> Any:
        """Do the same for 8-bit images (numpy, NCHW uint8).

        ``normalization`` turns them into what ``place`` takes, on the host. Where that is faster, an adapter uses its
        ``factors`` and ``offsets`` of each channel on the device. The arrays are overwritten when three more batches
        have been placed.
        """
        return self.place(normalization(pixels), labels)

    @abstractmethod
    def step(self, batch: Any) -> Any:
        """Enqueue one training step; return a ticket for it."""

    def mark(self) -> Any:
        """Return a ticket for now, the beginning of the first step. ``seconds_between`` uses it."""
        return None

    @abstractmethod
    def wait(self, ticket: Any) -> None:
        """Return when that step is done on the device."""

    def seconds_between(self, tickets: Sequence[Any]) -> list[float] | None:
        """Return the times between consecutive tickets by the device's own clock, or None if it has none.

        All tickets are done.
        """
        return None

    @abstractmethod
    def loss(self) -> float:
        """Return the loss of the last step, on this rank's own samples."""

    def tally(self) -> tuple[float, int]:
        """Return the sum of the losses and the number of correct predictions of all steps since the last call.

        Predictions are those of the first head, before the update, on this rank's own samples.
        """
        raise NotImplementedError(f"{type(self).__name__} does not count correct predictions")

    def predict(self, batch: Any) -> Any:
        """Return the first head's logits as a numpy array (samples, classes), outside of training.

        Batch norm uses its running statistics, and nothing is dropped. All ranks call it together.
        """
        raise NotImplementedError(f"{type(self).__name__} does not predict")

    def compilation(self) -> str:
        """Return ``cold`` if the rank has compiled a program, ``warm`` if a cache had all programs that it needed so
        far, and ``none`` if it needed none. The cache's own counters or files show it.
        """
        return NONE

    def device_peak_bytes(self) -> int | None:
        """Return the most device memory that the framework's allocator held; None if it is not counted."""
        return None

    def leave(self) -> None:  # noqa: B027  (most strategies have nothing to leave)
        """Leave the cluster. Parameter servers end by this."""
