"""What a rank reports about its first steps, and when it has nothing to report."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from jobs import make_config, make_job

from trainscale.worker import models
from trainscale.worker.sample import RankSample, Report
from trainscale.worker.witness.witness import Witness


class Peers:
    """A rendezvous that notes the names of all exchanges."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def exchange(self, name: str, value: Any = None) -> list[Any]:
        self.names.append(name)
        return [value]


def make_adapter(model: str = "alexnet", can_switch: bool = True, skipped: int = 0, **job: Any) -> Any:
    config = make_config(model=model, strategy=job.pop("strategy", "local"))
    return SimpleNamespace(
        job=make_job(config=config, witness=True, **job),
        config=config,
        catalogue_graph=models.build(model) if models.resolve(model) else None,
        can_switch_dropout=can_switch,
        set_dropout=lambda active: None,
        skipped_updates=lambda: skipped,
        weights=lambda: {"w": np.zeros(3)},
    )


def observe_two_steps(adapter: Any) -> Report:
    report = Report(RankSample(0, "here", 0, 0.0, ()))
    witness = Witness(adapter, Peers(), report)  # type: ignore[arg-type]
    for loss in (2.3, 2.2):
        witness.observe(loss)
    return report


@pytest.mark.parametrize("workers", [1, 2])
def test_losses_and_changes_are_reported_and_single_tensors_by_the_last_worker(workers: int) -> None:
    adapter = make_adapter()
    adapter.job = replace(adapter.job, workers=workers)
    report = observe_two_steps(adapter)
    assert (report.witness.losses, report.witness.obstacle) == ((2.3, 2.2), "")
    assert report.witness.total == (0.0,) * 64
    assert report.sketches == ({"w": (0.0,) * 64} if workers == 1 else {})


@pytest.mark.parametrize(
    ("changes", "obstacle"),
    [
        # Random numbers of dropout would make every difference look like a mistake.
        ({"can_switch": False}, "torch cannot switch off the dropout of this network"),
        ({"skipped": 1}, "the loss scale was too large for 1 of its first steps"),
        ({"model": "torchvision:resnet18"}, ""),  # a network that nobody else can compute
    ],
)
def test_first_steps_that_cannot_be_compared_have_no_losses(changes: dict[str, Any], obstacle: str) -> None:
    report = observe_two_steps(make_adapter(**changes))
    assert (report.witness.losses, report.witness.obstacle, report.sketches) == ((), obstacle, {})


@pytest.mark.parametrize("rank", [0, 2])
def test_a_rank_that_waits_for_its_turn_shows_progress(rank: int) -> None:
    """Otherwise a rank behind many others would look as if it hung."""
    adapter = make_adapter(strategy="ps-async", rank=rank)
    adapter.job = replace(adapter.job, workers=4)
    peers, steps = Peers(), []
    witness = Witness(adapter, peers, Report(RankSample(rank, "here", 0, 0.0, ())))  # type: ignore[arg-type]

    class Heartbeat:
        def __setattr__(self, name: str, value: Any) -> None:
            steps.append(value)

    with witness.take_turn(Heartbeat()):  # type: ignore[arg-type]
        assert peers.names == ["initial weights", *(f"turn {number}" for number in range(rank))]
    assert peers.names == ["initial weights", "turn 0", "turn 1", "turn 2", "turn 3"]
    witness.observe(2.3)
    assert peers.names[-1] == "changed weights"  # no rank takes its next step before all have read the weights
    assert steps == [1, 2, 3, 4]
