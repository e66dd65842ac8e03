"""A step as one compiled JAX program, on one device. mesh_engines.py has those of several processes.

Weights, momentum and what else a step changes are donated to the program, which writes the new values in their place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ...job import Job
from ..base import learning_rate_schedule
from .network import JaxNetwork, choose_storage_dtype


class JaxLocalEngine:
    """One device without communication. ``independent`` is this on every worker.

    ``state`` is what belongs to this rank alone: running statistics, the number of the step for dropout, whether
    dropout is on and, where it trains epochs, the sum of losses and the number of correct predictions.
    """

    def __init__(self, job: Job, network: JaxNetwork) -> None:
        self.job = job
        self.network = network
        self._wide = choose_storage_dtype(job.config.precision)
        self._config, self._rates, self._steps = job.config, learning_rate_schedule(job), 0
        state = {"statistics": network.statistics, "step": np.zeros((), np.int32)}
        if network.random:
            state["dropping"] = np.ones((), np.float32)
        if self._config.trains_epochs:
            state["tally"] = np.zeros(2, np.float32)
        self._parameters, self._momentum, self._state = self._start(state)
        self._rate, self._device_rate = -1.0, None
        self._program = jax.jit(self._make_step(), donate_argnums=(0, 1, 2))
        self._inference = jax.jit(lambda *inputs: self.network.apply(*inputs, None, training=False)[0][0])
        self._gathered: tuple[int, Any] | None = None

    def _start(self, state: Any) -> tuple[Any, Any, Any]:
        """Return parameters, momentum and state on the device."""
        parameters = self._place_parameters(self.network.parameters)
        return parameters, jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(copy_to_device, state)

    def _place_parameters(self, parameters: Any) -> Any:
        """Return copies on the device."""
        return jax.tree.map(copy_to_device, parameters)

    def restore(self, parameters: Any) -> None:
        self._parameters = self._place_parameters(parameters)

    def _make_step(self) -> Any:
        """Return the function that is compiled: a whole step, from the images to the new weights."""

        def step(parameters: Any, momentum: Any, state: Any, images: Any, labels: Any, rate: Any) -> Any:
            loss, state, gradients = self._compute_gradients(parameters, state, images, labels, self.job.rank)
            return *self._sgd(parameters, momentum, gradients, rate), state, loss

        return step

    def _compute_gradients(self, parameters: Any, state: Any, images: jax.Array, labels: jax.Array, rank: Any) -> Any:
        """Return this rank's loss, its new state, and the gradients of its own images."""
        key = None
        if self.network.random:  # the key differs between ranks and steps
            key = jax.random.fold_in(jax.random.key(self.job.seed + rank), state["step"])

        def losses(parameters: Any) -> tuple[jax.Array, Any]:
            dropping = state.get("dropping", 1.0)
            outputs, statistics = self.network.apply(parameters, state["statistics"], images, key, dropping=dropping)
            heads = (self._cross_entropy(logits, labels) for logits in outputs)
            loss = sum(weight * head_loss for weight, head_loss in zip(self.network.loss_weights, heads))
            return loss, (statistics, outputs[0])

        (loss, (statistics, logits)), gradients = jax.value_and_grad(losses, has_aux=True)(parameters)
        after = {**state, "statistics": statistics, "step": state["step"] + 1}
        if "tally" in state:
            correct = (logits.argmax(1) == labels).sum()
            after["tally"] = state["tally"] + jnp.stack([loss.astype(np.float32), correct.astype(np.float32)])
        return loss, after, gradients

    def _cross_entropy(self, logits: jax.Array, labels: jax.Array) -> jax.Array:
        logarithms = jax.nn.log_softmax(logits.astype(self._wide))
        return -jnp.take_along_axis(logarithms, labels[:, None], axis=1).mean()

    def _sgd(self, parameters: Any, momentum: Any, gradients: Any, rate: Any) -> tuple[Any, Any]:
        """Update as PyTorch does, with weight decay on every parameter."""
        keep, decay = self._config.momentum, self._config.weight_decay
        momentum = jax.tree.map(lambda v, g, w: keep * v + (g + decay * w), momentum, gradients, parameters)
        return jax.tree.map(lambda w, v: w - rate * v, parameters, momentum), momentum

    def place(self, array: np.ndarray) -> jax.Array:
        """Put this rank's part of a batch on its device."""
        return jax.device_put(array)

    def adopt(self, array: jax.Array) -> jax.Array:
        """Return this rank's part of a batch, which is on its device already, as ``step`` takes it."""
        return array

    def step(self, images: jax.Array, labels: jax.Array) -> jax.Array:
        """Enqueue a step. Its loss is ready when the whole program is done."""
        rate = self._rates(self._steps)
        if rate != self._rate:
            self._rate, self._device_rate = rate, self._replicate(np.asarray(rate, self._wide))
        self._parameters, self._momentum, self._state, loss = self._program(
            self._parameters, self._momentum, self._state, images, labels, self._device_rate
        )
        self._steps += 1
        return loss

    def tally(self) -> tuple[float, int]:
        losses, correct = copy_local_part(self._state["tally"]).ravel()
        self._state["tally"] = self._place_state(np.zeros(2, np.float32))
        return float(losses), int(correct)

    @property
    def dropping(self) -> float:
        """1, or 0 while dropout is switched off."""
        return (
            float(self._take_own_state(copy_local_part(self._state["dropping"]))) if "dropping" in self._state else 1.0
        )

    def set_dropout(self, active: bool) -> None:
        if "dropping" in self._state:
            self._state["dropping"] = self._place_state(np.asarray(active, np.float32))

    def counted_updates(self) -> int:
        """Return the number that the compiled program has counted."""
        return int(self._take_own_state(copy_local_part(self._state["step"])))

    def drain(self) -> None:
        """Copy the smallest parameter to the host. All outputs of a program are ready together."""
        copy_local_part(min(jax.tree.leaves(self._parameters), key=lambda leaf: leaf.size))

    def statistics(self) -> dict[str, np.ndarray]:
        values = {}
        for name, pair in self._state["statistics"].items():
            for kind, array in zip(("mean", "variance"), pair):
                values[f"{name}.{kind}"] = self._take_own_state(copy_local_part(array))
        return values

    def _replicate(self, array: np.ndarray) -> jax.Array:
        """Put an array, which is the same on every rank, on the devices."""
        return jax.device_put(array)

    def _place_state(self, array: np.ndarray) -> jax.Array:
        """Put an array of this rank alone on its device, as the state holds it."""
        return copy_to_device(array)

    def predict(self, images: jax.Array) -> np.ndarray:
        """Return the first head's logits of this rank's images, with the running statistics.

        Sharded weights are gathered once for all predictions between two steps.
        """
        if self._gathered is None or self._gathered[0] != self._steps:
            statistics = jax.tree.map(
                lambda array: self._take_own_state(copy_local_part(array)), self._state["statistics"]
            )
            self._gathered = self._steps, (jax.tree.map(jax.device_put, self.gather_parameters()), statistics)
        return np.asarray(self._inference(*self._gathered[1], images.addressable_data(0)), np.float32)

    def _take_own_state(self, array: np.ndarray) -> np.ndarray:
        """Remove the axis of ranks from this rank's part of a state array."""
        return array

    def make_exchange(self, size: int) -> Callable[[], None] | None:
        return None

    def gather_parameters(self) -> Any:
        """Return the gathered parameters as numpy arrays, which the next step does not overwrite."""
        on_host = jax.device_get(self._parameters)  # copies all of them at the same time
        return on_host if _copies_to_device() else jax.tree.map(np.array, on_host)


def copy_local_part(array: jax.Array) -> np.ndarray:
    """Return the part of an array that is on this rank's device."""
    return np.array(array.addressable_data(0))


def copy_to_device(array: np.ndarray) -> jax.Array:
    """Copy an array to the device. JAX could not donate what only borrows numpy's memory."""
    return jax.device_put(array) if _copies_to_device() else jnp.array(array, copy=True)


def _copies_to_device() -> bool:
    """Return whether the device has memory of its own. A CPU's arrays may share memory with numpy's."""
    return jax.default_backend() != "cpu"


def engine_for(job: Job, network: JaxNetwork) -> JaxLocalEngine:
    from .mesh_engines import JaxAllreduceEngine, JaxShardedEngine

    engines = {
        "local": JaxLocalEngine,
        "independent": JaxLocalEngine,
        "allreduce": JaxAllreduceEngine,
        "sharded": JaxShardedEngine,
    }
    return engines[job.config.strategy](job, network)
