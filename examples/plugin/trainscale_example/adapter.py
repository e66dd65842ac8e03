"""The adapter: one process of a trial, as worker/frameworks/base.py asks for it. Networks are in network.py.

numpy works as it is called: a step is done when ``step`` returns, so there is nothing to wait for.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from trainscale.worker import models
from trainscale.worker.config import Config
from trainscale.worker.frameworks.base import Adapter, rates

from .network import Network, cross_entropy


class NumpyAdapter(Adapter):
    @classmethod
    def look(cls) -> dict[str, Any]:
        return {"version": np.__version__, "versions": _versions(), "gpus": []}

    @classmethod
    def try_model(cls, config: Config) -> dict[str, int]:
        raise NotImplementedError("numpy trains the networks of trainscale and of plug-ins only")

    def versions(self) -> dict[str, str]:
        return _versions()

    def join(self) -> None:
        """Neither ``local`` nor ``independent`` has anybody to meet."""

    def build(self) -> int:
        job, config = self.job, self.job.config
        # A parity check asks for fp64, without dropout.
        self._type = np.float64 if config.precision == "fp64" else np.float32
        self._graph = models.build(config.model, config.image_size, config.classes)
        start = models.initial_weights(self._graph, job.seed)
        self._weights = {name: values.astype(self._type) for name, values in start.items()}
        self._rate, self._updates, self._seen = rates(job), 0, [0.0, 0]
        self._velocity = {name: np.zeros_like(values) for name, values in self._weights.items()}
        # Dropout differs between ranks, weights do not.
        self._network = Network(self._graph, self._weights, job.dropout, np.random.default_rng(job.seed + job.rank))
        return sum(values.size for values in self._weights.values())

    def serve(self) -> dict[str, Any]:
        raise NotImplementedError("numpy has no parameter servers")  # nor does its entry in the catalogue claim any

    def place(self, images: Any, labels: Any) -> Any:
        return images.astype(self._type), labels

    def step(self, batch: Any) -> None:
        images, labels = batch
        heads = self._network.forward(images)
        results = [cross_entropy(head, labels) for head in heads]
        weights = [head.loss_weight for head in self._graph.heads]
        self._loss = sum(weight * loss for weight, (loss, _) in zip(weights, results))
        gradients = self._network.backward([weight * slope for weight, (_, slope) in zip(weights, results)])
        rate = self._rate(self._updates)
        for name, values in self._weights.items():
            velocity = self._velocity[name]
            velocity *= self.config.momentum
            velocity += gradients[name] + self.config.weight_decay * values
            values -= rate * velocity
        self._updates += 1
        if self.config.trains_epochs:
            self._seen[0] += float(self._loss)
            self._seen[1] += int((heads[0].argmax(1) == labels).sum())

    def tally(self) -> tuple[float, int]:
        losses, right = self._seen
        self._seen = [0.0, 0]
        return losses, right

    def predict(self, batch: Any) -> Any:
        return self._network.forward(batch[0], training=False)[0]

    def wait(self, ticket: None) -> None:
        pass

    def mark(self) -> None:
        pass

    def loss(self) -> float:
        return float(self._loss)

    def device_peak_bytes(self) -> None:
        pass  # the device is the host

    def weights(self) -> dict[str, Any]:
        return {name: values.copy() for name, values in self._weights.items()}

    def macs(self) -> int:
        size = self.job.config.image_size
        self._network.forward(np.zeros((1, self.job.config.channels, size, size), self._type))
        return self._network.multiply_adds

    def logits(self, batch: Any) -> list[Any]:
        return self._network.forward(batch[0])

    def leave(self) -> None:
        pass


def _versions() -> dict[str, str]:
    return {"numpy": np.__version__, "python": platform.python_version()}
