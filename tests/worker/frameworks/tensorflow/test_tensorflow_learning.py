"""TensorFlow trains to an accuracy under every strategy: it learns, it is tried on all images, and several ranks learn
what one device with the whole batch learns.
"""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest
import small_sets
import trials
from environments import python_for
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
    usual = {"models": (f"plain-graph:{20 // devices}",), "epochs": 2, "augment": False, "learning_rate": 0.005}
    outcome = trials.run_trial(
        folder,
        framework="tensorflow",
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
        *(
            pytest.param(strategy, devices, settings, marks=pytest.mark.slow)
            for strategy, devices, settings in (
                ("local", 1, {"layout": "nchw", "precision": "bf16"}),
                ("local", 1, {"compile": True}),
                ("independent", 1, {}),
                ("ps:1", 1, {"compile": True}),
                ("ps:2", 2, {"layout": "nchw", "precision": "bf16"}),
                ("ps-async:1", 1, {}),
                ("ps-async:2", 2, {}),
            )
        ),
    ],
)
def test_every_strategy_learns(
    tmp_path: Path, images: Path, strategy: str, devices: int, settings: dict[str, object]
) -> None:
    assert has_learnt(learn(tmp_path, images, strategy, devices, **settings))


@pytest.mark.parametrize(
    ("strategy", "devices"),
    [
        ("allreduce", 2),
        ("ps:1", 2),
        pytest.param("ps:2", 2, marks=pytest.mark.slow),
        pytest.param("allreduce", 1, marks=pytest.mark.slow),
        pytest.param("ps:1", 1, marks=pytest.mark.slow),
        pytest.param("ps-async:1", 1, marks=pytest.mark.slow),
    ],
)
def test_ranks_in_step_learn_what_one_device_with_the_whole_batch_learns(
    tmp_path: Path, images: Path, whole_batch: Outcome, strategy: str, devices: int
) -> None:
    """Rates that change are the same ones, wherever the update is made."""
    outcome = learn(tmp_path, images, strategy, devices, schedule="step:1")
    assert has_learnt(outcome)
    assert without_times(outcome.record.epochs) == nearly(without_times(whole_batch.record.epochs))
    for weights in outcome.weights:
        assert largest_difference(weights, whole_batch.weights[0]) < TOLERANCE


def test_a_schedule_lowers_the_rate_and_until_then_the_same_seed_gives_the_same_numbers(
    tmp_path: Path, images: Path, whole_batch: Outcome
) -> None:
    constant = learn(tmp_path, images, "local", deterministic=True)
    assert has_learnt(whole_batch)
    same, other = zip(*(without_times(outcome.record.epochs) for outcome in (constant, whole_batch)), strict=True)
    assert same[0] == same[1]
    assert other[0] != other[1]
    assert largest_difference(constant.weights[0], whole_batch.weights[0]) > 100 * TOLERANCE


def test_asynchronous_servers_take_the_rate_of_the_update_they_are_at(tmp_path: Path, images: Path) -> None:
    """An epoch has as many updates as all workers have batches: nothing moves any more after two such epochs, and not
    after one.
    """
    outcome = learn(tmp_path, images, "ps-async:1", 2, epochs=3, schedule="step:2:0.000001")
    assert has_learnt(outcome)
    first, second, third = (epoch.valid_loss for epoch in outcome.record.epochs)
    assert second != pytest.approx(first, rel=0.1)
    assert third == pytest.approx(second, rel=1e-3)


def test_predictions_go_by_running_statistics_and_drop_nothing() -> None:
    apart = ask("tensorflow")
    # Running variances are unbiased, those of a batch are not.
    assert apart["from training, on the images of the statistics"] < 2e-3
    assert apart["of new statistics from old"] > 0.1
    assert apart["in other company"] < 1e-6
    assert apart["in other company, training"] > 1e-2
    assert apart["a second time, with dropout"] == 0.0


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "devices"), [("local", 1), ("allreduce", 2), ("ps:2", 2)])
def test_the_same_seed_learns_the_same_twice_dropout_and_augmentation_included(
    tmp_path: Path, images: Path, strategy: str, devices: int
) -> None:
    settings = {"models": ("every-kind:10",), "augment": True, "deterministic": True, "schedule": "cosine"}
    runs = [learn(tmp_path / name, images, strategy, devices, **settings) for name in ("one", "two")]
    assert without_times(runs[0].record.epochs) == without_times(runs[1].record.epochs)
    assert runs[0].record.ranks[0].weights_digest == runs[1].record.ranks[0].weights_digest


@pytest.mark.slow
def test_with_servers_batch_norm_is_validated_as_without(tmp_path: Path, images: Path) -> None:
    settings = {"models": ("every-kind:20",), "deterministic": True, "schedule": "cosine", "warmup_epochs": 0.5}
    alone = learn(tmp_path / "alone", images, "local", **settings)
    served = learn(tmp_path / "served", images, "ps:1", **settings)
    assert without_times(served.record.epochs) == nearly(without_times(alone.record.epochs))


def test_pixels_become_the_same_numbers_on_the_device_as_on_the_host() -> None:
    program = """
import numpy as np
from trainscale.worker.data.source import Normal
from trainscale.worker.frameworks.tensorflow.pixels import numbers

normal = Normal((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 7)).astype(np.uint8)
for first in (True, False):
    found = numbers(normal, first, np.float32)(pixels).numpy()
    expected = normal(pixels) if first else normal(pixels).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)
"""
    source = str(Path(trials.SUPPORT).parents[1] / "src")
    command = [python_for("tensorflow"), "-c", f"import sys; sys.path.insert(0, {source!r})\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
