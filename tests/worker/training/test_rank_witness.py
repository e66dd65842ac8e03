"""What a rank reports about its first steps, and when it has nothing to report."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jobs import make_config, make_job

from trainscale.worker import models
from trainscale.worker.events import Event, FirstSteps
from trainscale.worker.training.witness import Witness


class Peers:
    """A rendezvous that notes the names of all exchanges."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def exchange(self, name: str, value: Any = None) -> list[Any]:
        self.names.append(name)
        return [value]


def make_adapter(model: str = "alexnet", can_switch: bool = True, skipped: int = 0, **job: Any) -> Any:
    config = make_config(model=model, strategy=job.pop("strategy", "local"))
    graph = models.build(model) if models.resolve(model) else None
    proof = SimpleNamespace(
        catalogue_graph=graph,
        can_switch_dropout=can_switch,
        set_dropout=lambda active: None,
        skipped_updates=lambda: skipped,
        weights=lambda: {"w": np.zeros(3)},
    )
    return SimpleNamespace(job=make_job(config=config, witness=True, **job), config=config, proof=proof)


def observe_two_steps(adapter: Any) -> list[Event]:
    events: list[Event] = []
    witness = Witness(adapter, Peers(), events.append)  # type: ignore[arg-type]
    for loss in (2.3, 2.2):
        witness.observe(loss)
    return events


def test_losses_and_changes_of_the_first_steps_are_reported() -> None:
    first_steps = observe_two_steps(make_adapter())[0]
    assert isinstance(first_steps, FirstSteps)
    assert (first_steps.losses, first_steps.obstacle) == ([2.3, 2.2], "")


def test_an_adapter_that_cannot_switch_dropout_off_says_so() -> None:
    """Its random numbers would make every difference look like a mistake."""
    (first_steps,) = observe_two_steps(make_adapter(can_switch=False))
    assert isinstance(first_steps, FirstSteps)
    assert first_steps.losses == []
    assert first_steps.obstacle == "torch cannot switch off the dropout of this network"


def test_steps_that_a_loss_scaler_skipped_are_not_compared() -> None:
    (first_steps,) = observe_two_steps(make_adapter(skipped=1))
    assert isinstance(first_steps, FirstSteps)
    assert first_steps.losses == []
    assert first_steps.obstacle == "the loss scale was too large for 1 of its first steps"


def test_nothing_is_reported_about_a_network_that_nobody_else_can_compute() -> None:
    assert observe_two_steps(make_adapter("torchvision:resnet18")) == []


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_waits_for_its_turn_shows_progress(rank: int) -> None:
    """Otherwise a rank behind many others would look as if it hung."""
    adapter = make_adapter(strategy="ps-async", rank=rank)
    adapter.job = replace(adapter.job, workers=4)
    peers, steps, events = Peers(), [], []
    witness = Witness(adapter, peers, events.append)  # type: ignore[arg-type]

    class Heartbeat:
        def __setattr__(self, name: str, value: Any) -> None:
            steps.append(value)

    with witness.take_turn(Heartbeat()):  # type: ignore[arg-type]
        assert peers.names == ["initial weights", *(f"turn {number}" for number in range(rank))]
    assert peers.names == ["initial weights", "turn 0", "turn 1", "turn 2", "turn 3"]
    witness.observe(2.3)
    assert peers.names[-1] == "changed weights"  # no rank takes its next step before all have read the weights
    assert steps == [1, 2, 3, 4]
