"""Every framework trains to an accuracy: every strategy learns, and matches the numbers of one PyTorch device."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import learning
import pytest
import trials
from environments import python_for
from learning import learn, learn_everything
from trials import TrialOutcome

pytestmark = pytest.mark.framework

# MXNet's softmax approximates differently in 32 bits: 1e-6 of a loss.
TOLERANCES = {"mxnet": 5 * learning.TOLERANCE}
KERAS = ("keras-jax", "keras-torch", "keras-tensorflow")


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.mark.parametrize(
    ("framework", "strategy", "devices", "settings"),
    [
        *((name, "local", 1, {}) for name in ("torch", "tensorflow", "jax", "mxnet", "keras-jax", "keras-torch")),
        *((name, "allreduce", 2, {}) for name in ("torch", "tensorflow", "jax", *KERAS)),
        *((name, "sharded", 2, {}) for name in ("torch", "jax")),
        *((name, "ps:1", 2, {}) for name in ("torch", "tensorflow", "mxnet")),
        *(slow(name, "allreduce", 1, {}) for name in ("torch", "jax", "keras-jax", "keras-torch")),
        *(slow(name, "sharded", 1, {}) for name in ("torch", "jax")),
        *(slow(name, "ps-async:1", 1, {}) for name in ("torch", "tensorflow", "mxnet")),
        *(slow(name, "independent", 1, {}) for name in ("torch", "tensorflow", "jax", "mxnet", *KERAS)),
        *(slow("tensorflow", strategy, 1, {"compile": True}) for strategy in ("local", "allreduce", "ps:1")),
        *(slow("keras-tensorflow", strategy, 1, {"compile": True}) for strategy in ("local", "allreduce")),
        slow("keras-tensorflow", "local", 1, {}),
        slow("tensorflow", "local", 1, {"layout": "nchw"}),
        slow("tensorflow", "ps:2", 2, {"layout": "nchw"}),
        slow("torch", "ps:2", 1, {}),
        slow("mxnet", "ps:1", 1, {}),
        slow("mxnet", "ps:2", 2, {}),
    ],
)
def test_training_matches_one_device_of_pytorch(
    tmp_path: Path, framework: str, strategy: str, devices: int, settings: dict[str, object]
) -> None:
    """The rate falls on the way, wherever the update is made, and momentum is kept."""
    outcome = learn(tmp_path, framework, strategy, devices, **settings)
    learning.check_learned(outcome)
    learning.check_same_training(outcome, TOLERANCES.get(framework, learning.TOLERANCE))


def test_a_rate_of_zero_leaves_the_weights_unchanged(tmp_path: Path) -> None:
    """It does so at once, whatever the momentum. All other frameworks are compared with this one."""
    first, second = learn(tmp_path, "torch", "local", schedule="step:1:1e-9").record.epochs
    assert second.train_loss != first.train_loss
    assert second.valid_loss == pytest.approx(first.valid_loss, rel=1e-5)


@pytest.mark.parametrize(
    ("framework", "strategy"), [("torch", "ps-async:2"), ("tensorflow", "ps-async:1"), ("mxnet", "ps-async:2")]
)
def test_asynchronous_servers_lower_the_rate_by_epochs_of_all_workers(
    tmp_path: Path, framework: str, strategy: str
) -> None:
    learning.check_rate_falls_on_servers(tmp_path, framework, strategy)


@pytest.fixture(scope="module")
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TrialOutcome:
    return learn_everything(tmp_path_factory.mktemp("stopped"), request.param, "independent", devices=2)


@pytest.mark.parametrize(
    "stopped",
    ["torch", "tensorflow", "jax", "mxnet", slow("keras-jax"), "keras-torch", slow("keras-tensorflow")],
    indirect=True,
)
def test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy(stopped: TrialOutcome) -> None:
    learning.check_stopped_early(stopped)


@pytest.mark.parametrize(
    "stopped",
    ["torch", "tensorflow", slow("jax"), "mxnet", slow("keras-jax"), slow("keras-torch"), slow("keras-tensorflow")],
    indirect=True,
)
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, stopped: TrialOutcome) -> None:
    """Interpreters of their own have other random numbers and another order of sets than forked ones."""
    framework = stopped.record.trial.config.framework
    fresh = learn_everything(tmp_path, framework, "independent", devices=2, forks=False)
    learning.check_same_numbers(stopped, fresh)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "strategy"),
    [
        *((name, "allreduce") for name in ("torch", "tensorflow", "jax", *KERAS)),
        *((name, "sharded") for name in ("torch", "jax")),
        *((name, "ps:2") for name in ("torch", "tensorflow", "mxnet")),
    ],
)
def test_the_same_seed_gives_the_same_numbers_on_ranks_that_train_together(
    tmp_path: Path, framework: str, strategy: str
) -> None:
    outcomes = (
        learn_everything(tmp_path / str(forks), framework, strategy, devices=2, forks=forks) for forks in (True, False)
    )
    learning.check_same_numbers(*outcomes)


@pytest.mark.slow
def test_with_servers_batch_norm_and_dropout_are_as_without(tmp_path: Path) -> None:
    local, with_server = (
        learn_everything(tmp_path / strategy, "tensorflow", strategy, warmup_epochs=0.5)
        for strategy in ("local", "ps:1")
    )
    losses, expected = ([epoch.valid_loss for epoch in outcome.record.epochs] for outcome in (with_server, local))
    assert losses == pytest.approx(expected, rel=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "strategy", "settings"),
    [
        ("tensorflow", "local", {"layout": "nhwc"}),
        ("tensorflow", "ps:2", {"layout": "nchw"}),
        ("keras-tensorflow", "local", {}),
    ],
)
def test_networks_learn_in_sixteen_bits(
    tmp_path: Path, framework: str, strategy: str, settings: dict[str, object]
) -> None:
    learning.check_learned(learn(tmp_path, framework, strategy, precision="bf16", **settings))


@pytest.mark.slow
def test_mxnets_servers_without_momentum_report_their_updates(tmp_path: Path) -> None:
    """What they held is known by its momentum alone."""
    (server,) = learn(tmp_path, "mxnet", "ps:1", devices=2, momentum=0.0).record.servers
    assert server.updates is not None
    assert server.updates > 2 * (learning.TRAINED // learning.GLOBAL_BATCH)
    assert server.bytes is None


@pytest.mark.slow
@pytest.mark.parametrize(("strategy", "devices"), [("allreduce", 2), ("ps:2", 2)])
def test_a_users_own_network_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str, devices: int
) -> None:
    monkeypatch.setattr(trials, "SUPPORT", str(Path(__file__).parent / "frameworks" / "tensorflow"))
    outcome = learn(tmp_path, "tensorflow", strategy, devices, models=("tensorflow_nets:plain:8",), learning_rate=0.1)
    first, second = outcome.record.epochs
    assert second.train_loss < first.train_loss  # type: ignore[operator]
    assert second.valid_samples == learning.VALID
    assert second.valid_accuracy > 2 / learning.CLASSES


@pytest.mark.parametrize(
    ("framework", "layout"),
    [
        *((name, "nchw") for name in ("torch", "mxnet")),
        *((name, "nhwc") for name in ("tensorflow", "jax", "keras-jax")),
        slow("keras-torch", "nchw"),
        slow("keras-tensorflow", "nhwc"),
    ],
)
def test_predictions_do_not_depend_on_the_other_images_of_the_batch(framework: str, layout: str) -> None:
    learning.check_predictions(framework, layout)


def test_pixels_become_the_same_numbers_on_tensorflows_device_as_on_the_host() -> None:
    program = """
import numpy as np
from trainscale.worker.data.source import Normalization
from trainscale.worker.frameworks.tensorflow.adapter import make_pixel_converter

normalization = Normalization((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))
pixels = np.random.default_rng(0).integers(0, 256, (2, 3, 5, 7)).astype(np.uint8)
for channels_first in (True, False):
    converted = make_pixel_converter(normalization, channels_first, np.float32)(pixels).numpy()
    expected = normalization(pixels) if channels_first else normalization(pixels).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(converted, expected, rtol=1e-5, atol=1e-6)
"""
    source = str(Path(trials.SUPPORT).parents[1] / "src")
    command = [python_for("tensorflow"), "-c", f"import sys; sys.path.insert(0, {source!r})\n{program}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
