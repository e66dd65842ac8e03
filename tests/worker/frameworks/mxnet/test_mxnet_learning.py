"""MXNet trains to an accuracy: every strategy learns, on the workers and on the servers."""

from __future__ import annotations

from pathlib import Path

import learning
import pytest
from learning import learn, learn_everything
from trials import Outcome

pytestmark = pytest.mark.framework

# Its softmax is another approximation in 32 bits than PyTorch's: 1e-6 of a loss.
TOLERANCE = 5 * learning.TOLERANCE


@pytest.mark.parametrize(
    ("strategy", "devices"),
    [
        ("local", 1),
        ("ps:1", 2),
        pytest.param("ps:2", 2, marks=pytest.mark.slow),
        pytest.param("ps:1", 1, marks=pytest.mark.slow),
        pytest.param("ps-async:1", 1, marks=pytest.mark.slow),  # one worker waits for its own gradient
        pytest.param("independent", 1, marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_one_device_in_pytorch(tmp_path: Path, strategy: str, devices: int) -> None:
    """The rate falls on the way: on the servers too, and without the loss of their momentum."""
    outcome = learn(tmp_path, "mxnet", strategy, devices)
    learning.check_learned(outcome)
    learning.check_same_training(outcome, TOLERANCE)


def test_asynchronous_servers_learn_and_lower_the_rate_by_epochs_of_all_workers(tmp_path: Path) -> None:
    learning.check_rate_falls_on_servers(tmp_path, "mxnet", "ps-async:2")


@pytest.mark.slow
def test_servers_without_momentum_say_how_often_they_updated(tmp_path: Path) -> None:
    """What they held is known by its momentum alone."""
    (server,) = learn(tmp_path, "mxnet", "ps:1", devices=2, momentum=0.0).record.servers
    assert server.updates > 2 * (learning.TRAINED // learning.GLOBAL_BATCH)
    assert server.bytes is None


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return learn_everything(tmp_path_factory.mktemp("stopped"), "mxnet", "independent", devices=2)


def test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy(stopped: Outcome) -> None:
    learning.check_stopped_early(stopped)


def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, stopped: Outcome) -> None:
    learning.check_same_numbers(stopped, learn_everything(tmp_path, "mxnet", "independent", devices=2))


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_with_servers(tmp_path: Path) -> None:
    learning.check_same_numbers(
        *(learn_everything(tmp_path / run, "mxnet", "ps:2", devices=2) for run in ("first", "second"))
    )


def test_predictions_do_not_depend_on_the_other_images_of_the_batch() -> None:
    learning.check_predictions("mxnet", "nchw")
