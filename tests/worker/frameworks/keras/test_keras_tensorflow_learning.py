"""Keras on TensorFlow trains to an accuracy: every strategy learns, and comes to the numbers of one device."""

from __future__ import annotations

from pathlib import Path

import learning
import pytest
from learning import learn, learn_everything
from trials import Outcome

pytestmark = pytest.mark.framework

FRAMEWORK = "keras-tensorflow"


@pytest.mark.parametrize(
    ("strategy", "devices", "settings"),
    [
        pytest.param("local", 1, {}, marks=pytest.mark.slow),
        ("allreduce", 2, {}),
        pytest.param("local", 1, {"compile": True}, marks=pytest.mark.slow),
        pytest.param("allreduce", 1, {"compile": True}, marks=pytest.mark.slow),
        pytest.param("independent", 1, {}, marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_one_device_in_pytorch(
    tmp_path: Path, strategy: str, devices: int, settings: dict[str, object]
) -> None:
    """Keras' own momentum would carry the old rate on when the rate falls."""
    outcome = learn(tmp_path, FRAMEWORK, strategy, devices, **settings)
    learning.check_learned(outcome)
    learning.check_same_training(outcome)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return learn_everything(tmp_path_factory.mktemp("stopped"), FRAMEWORK, "independent", devices=2)


@pytest.mark.slow
def test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy(stopped: Outcome) -> None:
    learning.check_stopped_early(stopped)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, stopped: Outcome) -> None:
    learning.check_same_numbers(stopped, learn_everything(tmp_path, FRAMEWORK, "independent", devices=2))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_together(tmp_path: Path) -> None:
    learning.check_same_numbers(
        *(learn_everything(tmp_path / run, FRAMEWORK, "allreduce", devices=2) for run in ("first", "second"))
    )


@pytest.mark.slow
def test_sixteen_bits_learn_too(tmp_path: Path) -> None:
    learning.check_learned(learn(tmp_path, FRAMEWORK, "local", precision="bf16"))


@pytest.mark.slow
def test_predictions_do_not_depend_on_the_other_images_of_the_batch() -> None:
    learning.check_predictions(FRAMEWORK, "nhwc")
