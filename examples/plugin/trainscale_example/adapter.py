"""The adapter: one process of a trial, as worker/frameworks/base.py describes it. Networks are in network.py.

A step of numpy is done when ``step`` returns, so there is nothing to wait for.
"""

from __future__ import annotations

import platform
from typing import Any

import numpy as np

from trainscale.worker import models
from trainscale.worker.config import Config
from trainscale.worker.frameworks.base import Adapter, learning_rate_schedule

from .network import Network, cross_entropy


class NumpyAdapter(Adapter):
    @classmethod
    def versions(cls) -> dict[str, str]:
        return {"numpy": np.__version__, "python": platform.python_version()}

    @classmethod
    def gpus(cls) -> list[str]:
        return []

    @classmethod
    def try_model(cls, config: Config) -> int:
        raise NotImplementedError("numpy trains the networks of trainscale and of plug-ins only")

    def build(self) -> int:
        job, config = self.job, self.job.config
        # A parity check asks for fp64, without dropout.
        self._type = np.float64 if config.precision == "fp64" else np.float32
        self._graph = models.build(config.model, config.image_size, config.classes)
        start = models.initial_weights(self._graph, job.seed)
        self._weights = {name: values.astype(self._type) for name, values in start.items()}
        self._rate, self._updates, self._tally = learning_rate_schedule(job), 0, [0.0, 0]
        self._velocity = {name: np.zeros_like(values) for name, values in self._weights.items()}
        # Dropout differs between ranks, weights do not.
        self._network = Network(self._graph, self._weights, job.dropout, np.random.default_rng(job.seed + job.rank))
        return sum(values.size for values in self._weights.values())

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
            self._tally[0] += float(self._loss)
            self._tally[1] += int((heads[0].argmax(1) == labels).sum())

    def tally(self) -> tuple[float, int]:
        losses, correct = self._tally
        self._tally = [0.0, 0]
        return losses, correct

    def predict(self, batch: Any) -> Any:
        return self._network.forward(batch[0], training=False)[0]

    def wait(self, ticket: None) -> None:
        pass

    def loss(self) -> float:
        return float(self._loss)

    def weights(self) -> dict[str, Any]:
        return {name: values.copy() for name, values in self._weights.items()}

    def set_dropout(self, active: bool) -> None:
        self._network.is_dropping = active

    def statistics(self) -> dict[str, Any]:
        return self._network.statistics()

    def drop(self, layer: str, values: Any) -> Any:
        return self._network.drop(self._graph.layer(layer), values)

    def macs(self) -> int:
        self._network.forward(np.zeros((1, *self.samples.shape(self.config)), self._type))
        return self._network.multiply_adds

    def logits(self, batch: Any) -> list[Any]:
        return self._network.forward(batch[0])
