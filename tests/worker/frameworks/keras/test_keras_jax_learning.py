"""Keras on JAX trains to an accuracy: every strategy learns, and comes to the numbers of one device."""

from __future__ import annotations

from pathlib import Path

import learning
import pytest
from learning import learn, learn_everything
from trials import Outcome

pytestmark = pytest.mark.framework


@pytest.mark.parametrize(
    ("strategy", "devices"),
    [
        ("local", 1),
        ("allreduce", 2),
        pytest.param("allreduce", 1, marks=pytest.mark.slow),
        pytest.param("independent", 1, marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_one_device_in_pytorch(tmp_path: Path, strategy: str, devices: int) -> None:
    outcome = learn(tmp_path, "keras-jax", strategy, devices)
    learning.check_learned(outcome)
    learning.check_same_training(outcome)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return learn_everything(tmp_path_factory.mktemp("stopped"), "keras-jax", "independent", devices=2)


@pytest.mark.slow
def test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy(stopped: Outcome) -> None:
    learning.check_stopped_early(stopped)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, stopped: Outcome) -> None:
    learning.check_same_numbers(stopped, learn_everything(tmp_path, "keras-jax", "independent", devices=2))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["allreduce"])
def test_the_same_seed_gives_the_same_numbers_together(tmp_path: Path, strategy: str) -> None:
    learning.check_same_numbers(
        *(learn_everything(tmp_path / run, "keras-jax", strategy, devices=2) for run in ("first", "second"))
    )


def test_predictions_do_not_depend_on_the_other_images_of_the_batch() -> None:
    learning.check_predictions("keras-jax", "nhwc")
