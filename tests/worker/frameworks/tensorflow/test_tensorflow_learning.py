"""TensorFlow trains to an accuracy: every strategy learns, and comes to the numbers of one device."""

from __future__ import annotations

import subprocess
from pathlib import Path

import learning
import pytest
import trials
from environments import python_for
from learning import learn, learn_everything
from trials import Outcome

pytestmark = pytest.mark.framework


@pytest.mark.parametrize(
    ("strategy", "devices", "settings"),
    [
        ("local", 1, {}),
        ("allreduce", 2, {}),
        ("ps:1", 2, {}),
        *(
            pytest.param(strategy, devices, settings, marks=pytest.mark.slow)
            for strategy, devices, settings in (
                ("local", 1, {"layout": "nchw"}),
                ("local", 1, {"compile": True}),
                ("independent", 1, {}),
                ("allreduce", 1, {"compile": True}),
                ("ps:1", 1, {"compile": True}),
                ("ps:2", 2, {"layout": "nchw"}),
                ("ps-async:1", 1, {}),
            )
        ),
    ],
)
def test_training_is_that_of_one_device_in_pytorch(
    tmp_path: Path, strategy: str, devices: int, settings: dict[str, object]
) -> None:
    """Rates that change are the same ones, wherever the update is made."""
    outcome = learn(tmp_path, "tensorflow", strategy, devices, **settings)
    learning.check_learned(outcome)
    learning.check_same_training(outcome)


def test_asynchronous_servers_take_the_rate_of_the_update_they_are_at(tmp_path: Path) -> None:
    learning.check_rate_falls_on_servers(tmp_path, "tensorflow", "ps-async:1")


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return learn_everything(tmp_path_factory.mktemp("stopped"), "tensorflow", "independent", devices=2)


def test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy(stopped: Outcome) -> None:
    learning.check_stopped_early(stopped)


def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, stopped: Outcome) -> None:
    learning.check_same_numbers(stopped, learn_everything(tmp_path, "tensorflow", "independent", devices=2))


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["allreduce", "ps:2"])
def test_the_same_seed_gives_the_same_numbers_together(tmp_path: Path, strategy: str) -> None:
    learning.check_same_numbers(
        *(learn_everything(tmp_path / run, "tensorflow", strategy, devices=2) for run in ("first", "second"))
    )


@pytest.mark.slow
def test_with_servers_batch_norm_and_dropout_are_as_without(tmp_path: Path) -> None:
    alone, served = (
        learn_everything(tmp_path / strategy, "tensorflow", strategy, warmup_epochs=0.5)
        for strategy in ("local", "ps:1")
    )
    losses, expected = ([epoch.valid_loss for epoch in each.record.epochs] for each in (served, alone))
    assert losses == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "layout"), [("local", "nhwc"), ("ps:2", "nchw")])
def test_sixteen_bits_learn_too(tmp_path: Path, strategy: str, layout: str) -> None:
    learning.check_learned(learn(tmp_path, "tensorflow", strategy, precision="bf16", layout=layout))


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "devices"), [("allreduce", 2), ("ps:2", 2)])
def test_a_users_own_network_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, devices: int
) -> None:
    monkeypatch.setattr(trials, "SUPPORT", str(Path(__file__).parent))
    outcome = learn(tmp_path, "tensorflow", strategy, devices, models=("tensorflow_nets:plain:8",), learning_rate=0.1)
    first, second = outcome.record.epochs
    assert second.train_loss < first.train_loss  # type: ignore[operator]
    assert second.valid_samples == learning.VALID
    assert second.valid_accuracy > 2 / learning.CLASSES


def test_predictions_do_not_depend_on_the_other_images_of_the_batch() -> None:
    learning.check_predictions("tensorflow", "nhwc")


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
