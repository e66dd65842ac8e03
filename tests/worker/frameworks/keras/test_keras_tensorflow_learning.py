"""Keras on TensorFlow trains to an accuracy: it learns, it is tried on all images, and several ranks learn what one
device with the whole batch learns.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import small_sets
import trials
from predictions import ask
from trials import Outcome, largest_difference

from trainscale.record.trial import Epoch

# Fifty steps in float32: what a sum in another order changes stays far below this.
TOLERANCE = 2e-5
VALID = 103  # an odd number: two ranks have uneven shards of it, and the last batch is not full
# Of what a run says of an epoch, what is no time.
LEARNT = ("images", "train_loss", "train_accuracy", "valid_loss", "valid_accuracy", "valid_images")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_sets.write_cifar10(tmp_path_factory.mktemp("cifar10"), valid=VALID)


def learn(folder: Path, images: Path, strategy: str, devices: int = 1, **settings: object) -> Outcome:
    """Two epochs; twenty images in all a step."""
    usual = {
        "framework": "keras-tensorflow",
        "models": (f"plain-graph:{20 // devices}",),
        "epochs": 2,
        "augment": False,
        "learning_rate": 0.005,
    }
    outcome = trials.run_trial(
        folder,
        devices=devices,
        strategies=(strategy,),
        data=f"cifar10:{images}",
        image_size=28,
        **{**usual, **settings},  # type: ignore[arg-type]
    )
    assert outcome.record.ok, outcome.record.failure
    return outcome


def has_learnt(outcome: Outcome) -> bool:
    epochs = outcome.record.epochs
    assert {epoch.valid_images for epoch in epochs} == {VALID}
    assert (epochs[0].train_loss or 9) > (epochs[-1].train_loss or 9)
    return epochs[-1].valid_accuracy > 0.8  # one class in ten is right by chance


def without_times(epochs: tuple[Epoch, ...] | list[Epoch]) -> list[list[float]]:
    return [[dataclasses.asdict(epoch)[name] for name in LEARNT] for epoch in epochs]


def nearly(epochs: list[list[float]]) -> list[object]:
    return [pytest.approx(epoch, rel=1e-3) for epoch in epochs]


@pytest.fixture(scope="module")
def whole_batch(images: Path, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """One device with the batch of two, at a tenth of the rate in its second epoch."""
    return learn(tmp_path_factory.mktemp("whole"), images, "local", schedule="step:1", deterministic=True)


@pytest.mark.parametrize(
    ("strategy", "devices", "settings"),
    [
        ("independent", 2, {}),
        pytest.param("independent", 1, {"precision": "bf16"}, marks=pytest.mark.slow),
        pytest.param("local", 1, {"compile": True}, marks=pytest.mark.slow),
        pytest.param("allreduce", 1, {"compile": True}, marks=pytest.mark.slow),
    ],
)
def test_every_strategy_learns(
    tmp_path: Path, images: Path, strategy: str, devices: int, settings: dict[str, object]
) -> None:
    assert has_learnt(learn(tmp_path, images, strategy, devices, **settings))


@pytest.mark.parametrize("devices", [2, pytest.param(1, marks=pytest.mark.slow)])
def test_ranks_in_step_learn_what_one_device_with_the_whole_batch_learns(
    tmp_path: Path, images: Path, whole_batch: Outcome, devices: int
) -> None:
    outcome = learn(tmp_path, images, "allreduce", devices, schedule="step:1")
    assert has_learnt(outcome)
    assert without_times(outcome.record.epochs) == nearly(without_times(whole_batch.record.epochs))
    for weights in outcome.weights:
        assert largest_difference(weights, whole_batch.weights[0]) < TOLERANCE


def test_momentum_and_rate_are_those_of_pytorch_when_the_rate_changes(
    tmp_path: Path, images: Path, whole_batch: Outcome
) -> None:
    """Keras' own momentum would carry the old rate on."""
    torch = learn(tmp_path, images, "local", framework="torch", schedule="step:1")
    assert without_times(whole_batch.record.epochs) == nearly(without_times(torch.record.epochs))
    assert largest_difference(whole_batch.weights[0], torch.weights[0]) < TOLERANCE


@pytest.mark.slow
def test_a_schedule_lowers_the_rate_and_until_then_the_same_seed_gives_the_same_numbers(
    tmp_path: Path, images: Path, whole_batch: Outcome
) -> None:
    constant = learn(tmp_path, images, "local", deterministic=True)
    assert has_learnt(whole_batch)
    same, other = zip(*(without_times(outcome.record.epochs) for outcome in (constant, whole_batch)), strict=True)
    assert same[0] == same[1]
    assert other[0] != other[1]
    assert largest_difference(constant.weights[0], whole_batch.weights[0]) > 100 * TOLERANCE


def test_predictions_go_by_running_statistics_and_drop_nothing() -> None:
    apart = ask("keras-tensorflow")
    assert apart["from training, on the images of the statistics"] < 2e-3
    assert apart["of new statistics from old"] > 0.1
    assert apart["in other company"] < 1e-6
    assert apart["in other company, training"] > 1e-2
    assert apart["a second time, with dropout"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "devices"), [("local", 1), ("allreduce", 2)])
def test_the_same_seed_learns_the_same_twice_dropout_and_augmentation_included(
    tmp_path: Path, images: Path, strategy: str, devices: int
) -> None:
    settings = {"models": ("every-kind:10",), "augment": True, "deterministic": True, "schedule": "cosine"}
    runs = [learn(tmp_path / name, images, strategy, devices, **settings) for name in ("one", "two")]
    assert without_times(runs[0].record.epochs) == without_times(runs[1].record.epochs)
    assert runs[0].record.ranks[0].weights_digest == runs[1].record.ranks[0].weights_digest
