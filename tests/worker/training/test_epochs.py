"""Training to an accuracy, on a made-up network and a clock that moves only when it trains."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from jobs import make_config
from test_loop import ENQUEUE, Clock, FakeDevice, FakeHeartbeat, FakeWitness, make_report

from trainscale.worker.config import Config
from trainscale.worker.events import Epoch
from trainscale.worker.sample import RankSample
from trainscale.worker.training import loop

STEPS, BATCH, VALID = 3, 4, 10


class LearningDevice(FakeDevice):
    """Gets ``right`` images of every step right; in use, all images of the classes that it has learned so far: one
    more with every epoch. A step takes a second.
    """

    def __init__(self, clock: Clock, config: Config, right: int = 2) -> None:
        super().__init__(clock, itertools.repeat(1.0 - ENQUEUE))
        self.job = replace(self.job, config=config)
        self.predictions = 0
        self._right = right
        self._counted_steps = 0

    def tally(self) -> tuple[float, int]:
        steps, self._counted_steps = self.steps - self._counted_steps, self.steps
        return 0.5 * steps, self._right * steps

    def predict(self, batch: Any) -> Any:
        self.predictions += 1
        self._clock.now += 100.0
        known = np.asarray(batch) < self.steps // STEPS
        return np.eye(5)[np.where(known, batch, 4)]


class SmallSource:
    """Three steps an epoch; ten validation images of classes 0, 1, 2, 3, of which the last batch has only two."""

    def __init__(self) -> None:
        self.waited_seconds = 0.0

    def load_epoch(self, number: int) -> Iterator[str]:
        for step in range(STEPS):
            self.waited_seconds += 0.25
            yield f"{number}.{step}"

    def load_validation_set(self) -> Iterator[tuple[Any, Any, int]]:
        labels = np.arange(12) % 4
        for first in range(0, 12, BATCH):
            part = labels[first : first + BATCH]
            yield part, part, min(BATCH, VALID - first)


class RankPair:
    """The rendezvous of two ranks; the other one says what it says."""

    def __init__(self, other: Any = None) -> None:
        self.calls: list[str] = []
        self._other = other

    def exchange(self, name: str, value: Any = None) -> list[Any]:
        self.calls.append(name)
        return [value] if self._other is None or not name.startswith("validated") else [value, self._other]


class EventList(list[Epoch]):
    def __call__(self, event: Epoch) -> None:
        self.append(event)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(loop, "clock", clock)
    return clock


def learn(
    clock: Clock, epochs: int, until: float | None = None, other: Any = None
) -> tuple[LearningDevice, RankPair, EventList, RankSample]:
    device = LearningDevice(clock, make_config(epochs=epochs, until_accuracy=until))
    rendezvous, events = RankPair(other), EventList()
    report, source = make_report(), SmallSource()
    steps = loop.learn(device, source, rendezvous, FakeHeartbeat(), FakeWitness(), report, events)  # type: ignore[arg-type]
    assert steps == device.steps
    return device, rendezvous, events, report.sample


def test_every_epoch_takes_every_step_and_is_timed_without_the_very_first_step_and_validation(clock: Clock) -> None:
    device, rendezvous, events, window = learn(clock, 2)
    assert [line for line in device.log if line != "mark"] == [
        f"step {epoch}.{step}" for epoch in range(2) for step in range(STEPS)
    ]
    assert [event.epoch for event in events] == [1, 2]
    assert window.first_step_seconds == 1.0
    assert [event.seconds for event in events] == [2.0, 3.0]
    assert [event.samples for event in events] == [2 * BATCH, 3 * BATCH]
    assert (window.window_seconds, len(window.step_seconds)) == (5.0, 5)
    assert [event.evaluation_seconds for event in events] == [300.0, 300.0]
    assert [event.waited_seconds for event in events] == [0.5, 0.75]
    assert window.waited_seconds == 1.25
    # No rank is tried while another trains.
    assert rendezvous.calls == ["epoch 0", "trained 0", "validated 0", "epoch 1", "trained 1", "validated 1"]


def test_accuracies_and_losses_are_of_all_steps_and_of_the_images_that_count(clock: Clock) -> None:
    """Of the ten validation images, three are of class 0 and three of class 1."""
    _, _, events, _ = learn(clock, 2)
    assert [event.train_accuracy for event in events] == [0.5, 0.5]
    assert [event.train_loss for event in events] == [0.5, 0.5]
    assert [event.valid_samples for event in events] == [VALID, VALID]
    assert [event.valid_accuracy for event in events] == [0.3, 0.6]
    right, wrong = np.log(np.e + 4) - 1, np.log(np.e + 4)  # cross-entropy of the logits
    assert events[0].valid_loss == pytest.approx((3 * right + 7 * wrong) / VALID)


def test_ranks_of_uneven_shares_count_by_their_images(clock: Clock) -> None:
    other = [7.0, 2, 3, 3.0, 12, 1.5, 0.0, 5, 5]  # all correct, and half as many to predict
    _, _, events, _ = learn(clock, 1, other=other)
    (event,) = events
    assert (event.seconds, event.waited_seconds) == (7.0, 1.5)
    assert (event.samples, event.train_accuracy) == (4 * BATCH, (6 + 12) / (6 * BATCH))
    assert (event.valid_samples, event.valid_accuracy) == (15, (3 + 5) / 15)


def test_training_ends_with_the_accuracy_and_epochs_are_logged_as_mxnet_logs_them(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    device, _, events, _ = learn(clock, 50, until=0.6)
    assert (len(events), device.steps) == (2, 2 * STEPS)
    capsys.readouterr()
    learn(clock, 1)
    assert capsys.readouterr().err.splitlines() == [
        "Epoch[0] Train-accuracy=0.500000",
        "Epoch[0] Time cost=2.000",
        "Epoch[0] Validation-accuracy=0.300000",
    ]


def test_a_loss_that_is_no_number_is_none(clock: Clock) -> None:
    other = [1.0, 1, 1, float("nan"), 0, 0.0, float("inf"), 0, 4]
    _, _, (event,), _ = learn(clock, 1, other=other)
    assert event.train_loss is None
    assert event.valid_loss is None
