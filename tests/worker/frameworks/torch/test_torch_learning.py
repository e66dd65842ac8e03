"""PyTorch trains to an accuracy: every strategy learns, and comes to the numbers of one device."""

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
        ("sharded", 2),
        ("ps:1", 2),
        pytest.param("allreduce", 1, marks=pytest.mark.slow),
        pytest.param("sharded", 1, marks=pytest.mark.slow),
        pytest.param("ps:2", 1, marks=pytest.mark.slow),
        pytest.param("ps-async:1", 1, marks=pytest.mark.slow),
        pytest.param("independent", 1, marks=pytest.mark.slow),
    ],
)
def test_training_is_that_of_one_device(tmp_path: Path, strategy: str, devices: int) -> None:
    outcome = learn(tmp_path, "torch", strategy, devices)
    learning.check_learned(outcome)
    learning.check_same_training(outcome)


def test_a_rate_of_nothing_leaves_the_weights_as_they_are(tmp_path: Path) -> None:
    """At once, whatever momentum there was. All other frameworks are compared with this one."""
    first, second = learn(tmp_path, "torch", "local", schedule="step:1:1e-9").record.epochs
    assert second.train_loss != first.train_loss
    assert second.valid_loss == pytest.approx(first.valid_loss, rel=1e-5)


def test_asynchronous_servers_learn_and_lower_the_rate_by_epochs_of_all_workers(tmp_path: Path) -> None:
    learning.check_rate_falls_on_servers(tmp_path, "torch", "ps-async:2")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return learn_everything(tmp_path_factory.mktemp("stopped"), "torch", "independent", devices=2)


def test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy(stopped: Outcome) -> None:
    learning.check_stopped_early(stopped)


def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, stopped: Outcome) -> None:
    learning.check_same_numbers(stopped, learn_everything(tmp_path, "torch", "independent", devices=2))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["allreduce", "sharded", "ps:2"])
def test_the_same_seed_gives_the_same_numbers_together(tmp_path: Path, strategy: str) -> None:
    learning.check_same_numbers(
        *(learn_everything(tmp_path / run, "torch", strategy, devices=2) for run in ("first", "second"))
    )


def test_predictions_do_not_depend_on_the_other_images_of_the_batch() -> None:
    learning.check_predictions("torch", "nchw")
