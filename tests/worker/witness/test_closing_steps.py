"""The closing steps give the gradient of the first step, whatever the optimizer's velocity is, and no other one."""

import copy
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jobs import make_config, make_job

from trainscale.worker.sample import RankSample, RankWitness, Report
from trainscale.worker.witness.sketch import sketch, sketch_weights
from trainscale.worker.witness.witness import Witness

CONFIG = make_config(momentum=0.9, weight_decay=0.01)
START = {"w": np.linspace(-1.0, 1.0, 500), "b": np.linspace(0.0, 1.0, 7)}
TARGET = {"w": np.cos(np.arange(500.0)), "b": np.sin(np.arange(7.0))}
RATES = (0.1, 0.1, 0.05)
NAMES = list(START)


ALONE: Any = SimpleNamespace(exchange=lambda name, value=None: [value])  # one worker: everybody has arrived


class QuadraticAdapter:
    """SGD on half the squared distance from a target. Servers may keep the weights that are updated."""

    catalogue_graph = SimpleNamespace(head_weight="w")
    can_switch_dropout = True

    def set_dropout(self, active: bool) -> None: ...

    def __init__(self, has_servers: bool = False) -> None:
        self.updates_restored_weights = not has_servers
        self.weights_used = copy.deepcopy(START)
        self.weights_updated = copy.deepcopy(START) if has_servers else self.weights_used
        self.velocity = {name: np.zeros_like(values) for name, values in START.items()}
        self.rate, self.taken = 0.1, 0

    def gradients(self) -> dict[str, Any]:
        return {name: self.weights_used[name] - TARGET[name] for name in START}

    def step(self, batch: Any) -> None:
        gradients = self.gradients()
        self._loss = sum(float(np.sum(values**2)) / 2 for values in gradients.values())
        self.taken += 1
        self.update(gradients)

    def update(self, gradients: dict[str, Any]) -> None:
        for name, gradient in gradients.items():
            decayed = gradient + CONFIG.weight_decay * self.weights_updated[name]
            self.velocity[name] = CONFIG.momentum * self.velocity[name] + decayed
            self.weights_updated[name] -= self.rate * self.velocity[name]
            self.weights_used[name] = self.weights_updated[name].copy()

    def wait(self, ticket: Any) -> None:
        self.rate = RATES[min(len(RATES) - 1, max(0, self.taken - 10))]  # of the next step

    def loss(self) -> float:
        return self._loss

    def weights(self) -> dict[str, Any]:
        return self.weights_used

    def restore(self, weights: dict[str, Any]) -> None:
        self.weights_used = copy.deepcopy(weights)
        if self.updates_restored_weights:
            self.weights_updated = self.weights_used


EXPECTED = {name: START[name] - TARGET[name] + CONFIG.weight_decay * START[name] for name in START}  # gradient
EXPECTED_SUM = sketch_weights(EXPECTED, NAMES).sum(axis=0)
LENGTH = np.linalg.norm(EXPECTED_SUM)


def close(adapter: Any, strategy: str = "local") -> RankWitness:
    adapter.job = make_job(config=replace(CONFIG, strategy=strategy), witness=True)
    report = Report(RankSample(0, "here", 0, 0.0, ()))
    witness = Witness(adapter, ALONE, report)
    for _ in range(10):
        adapter.step(None)
        adapter.wait(None)
    witness.measure_gradients(START, None, RATES)
    assert np.sum([*report.closing_sketches.values()], axis=0) == pytest.approx(report.witness.gradients[-1])
    assert list(report.closing_sketches) == NAMES
    return report.witness


def first_loss() -> float:
    first = QuadraticAdapter()
    first.step(None)
    return first.loss()


@pytest.mark.parametrize("has_servers", [False, True])
def test_the_gradient_and_the_losses_are_those_of_the_first_step(has_servers: bool) -> None:
    witness = close(QuadraticAdapter(has_servers))
    assert witness.closing_losses == (pytest.approx(first_loss()),) * 3
    assert witness.gradients == (pytest.approx(EXPECTED_SUM, rel=1e-9, abs=1e-9),) * 2
    head = sketch("w", EXPECTED["w"])
    assert witness.head_gradients == (pytest.approx(head, rel=1e-9, abs=1e-9),) * 2


def test_behind_asynchronous_servers_what_other_ranks_pushed_before_the_turn_does_not_matter() -> None:
    class Disturbed(QuadraticAdapter):
        def restore(self, weights: dict[str, Any]) -> None:
            if self.taken == 10:  # the others have pushed since this rank's last pull
                self.weights_updated = {name: values + 1.0 for name, values in self.weights_updated.items()}
            super().restore(weights)

    (gradient,) = close(Disturbed(has_servers=True), "ps-async").gradients
    assert gradient == pytest.approx(EXPECTED_SUM, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("skipped", [(11,), (12,), (13,), (11, 13), (11, 12, 13)])
def test_an_update_that_is_left_out_shows(skipped: tuple[int, ...]) -> None:
    class Skipping(QuadraticAdapter):
        def update(self, gradients: dict[str, Any]) -> None:
            if self.taken not in skipped:
                super().update(gradients)

    gradients = close(Skipping()).gradients
    assert max(np.linalg.norm(gradient - EXPECTED_SUM) for gradient in gradients) > 0.1 * LENGTH


def test_a_gradient_of_half_the_size_shows() -> None:
    class Halving(QuadraticAdapter):
        def gradients(self) -> dict[str, Any]:
            factor = 0.5 if self.taken >= 10 else 1.0
            return {name: factor * values for name, values in super().gradients().items()}

    witness = close(Halving())
    assert witness.closing_losses[0] == pytest.approx(first_loss() / 4)
    assert np.linalg.norm(witness.gradients[0] - EXPECTED_SUM) > 0.4 * LENGTH


def test_the_longest_update_is_known() -> None:
    alike = QuadraticAdapter()
    for _ in range(10):
        alike.step(None)
        alike.wait(None)
    kept = {name: CONFIG.momentum * values for name, values in alike.velocity.items()}
    first = sketch_weights(kept, NAMES).sum(axis=0) + EXPECTED_SUM
    assert close(QuadraticAdapter()).closing_change >= np.linalg.norm(first) * (1 - 1e-9)
