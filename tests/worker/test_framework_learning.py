"""Every framework trains to an accuracy: every strategy learns, and matches the numbers of one PyTorch device."""

import functools
import json
import os
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trials
from environments import python_for
from small_sets import write_cifar10
from trials import TrialOutcome, largest_difference, run_trial

pytestmark = pytest.mark.framework

TRAINED, VALID, CLASSES = 500, 103, 10  # 103 images are no multiple of any batch, nor of two ranks
GLOBAL_BATCH = 16
TARGET = 3 / CLASSES
# Of weights and losses after two epochs in float32. A sum in another order changes a hundredth of this; a rate that
# falls one update late changes 300 times as much. MXNet's softmax approximates differently: 1e-6 of a loss.
TOLERANCE, MXNET_TOLERANCE = 2e-5, 1e-4
KERAS = ("keras-jax", "keras-torch", "keras-tensorflow")


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def learn(folder: Path, framework: str, strategy: str, devices: int = 1, **settings: Any) -> TrialOutcome:
    """Train a network without batch norm, dropout and augmentation for two epochs on a small data set.

    All devices together take the same images in every step. The rate falls in the first epoch, when momentum is large.
    """
    defaults = {
        "models": (f"plain-graph:{GLOBAL_BATCH // devices}",),
        "epochs": 2,
        "learning_rate": 0.01,
        "schedule": "step:0.5:0.3",
        "augment": False,
        "forks": True,
        "data": f"cifar10:{write_cifar10(folder / 'images', TRAINED, VALID)}",
    }
    outcome = run_trial(
        folder, framework=framework, devices=devices, strategies=(strategy,), **{**defaults, **settings}
    )
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.notes == ()
    return outcome


def learn_everything(folder: Path, framework: str, strategy: str, devices: int = 1, **settings: Any) -> TrialOutcome:
    """Train a network with batch norm, dropout and two heads on augmented images, until it is three times as good as
    chance.
    """
    defaults = {
        "models": (f"every-kind:{GLOBAL_BATCH // devices}",),
        "image_size": 32,
        "epochs": 20,
        "until_accuracy": TARGET,
        "schedule": "cosine",
        "augment": True,
        "deterministic": True,
    }
    return learn(folder, framework, strategy, devices, **{**defaults, **settings})


@functools.cache
def one_device() -> TrialOutcome:
    """Return the outcome of ``learn`` on one PyTorch device."""
    with tempfile.TemporaryDirectory() as folder:
        return learn(Path(folder), "torch", "local")


def check_learned(outcome: TrialOutcome, epochs: int = 2) -> None:
    """Check accuracies, where chance is one in ten, and that every validation image was predicted once."""
    recorded = outcome.record.epochs
    assert [epoch.epoch for epoch in recorded] == [*range(1, epochs + 1)]
    assert {epoch.valid_samples for epoch in recorded} == {VALID}
    assert recorded[-1].train_loss < recorded[0].train_loss / 2  # type: ignore[operator]
    assert recorded[-1].train_accuracy > 0.8
    assert recorded[-1].valid_accuracy > 0.8


def check_same_numbers(first: TrialOutcome, second: TrialOutcome) -> None:
    """Check that everything except the clock is the same to the last bit."""
    clock = {"seconds": 0.0, "waited_seconds": 0.0, "evaluation_seconds": 0.0}
    epochs = [[replace(epoch, **clock) for epoch in outcome.record.epochs] for outcome in (first, second)]
    assert epochs[0] == epochs[1]
    digests = [[rank.weights_digest for rank in outcome.record.ranks] for outcome in (first, second)]
    assert digests[0] == digests[1]


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
    """Rates, momentum, images and their order, counts and predictions are the same, wherever the update is made."""
    outcome, alone = learn(tmp_path, framework, strategy, devices, **settings), one_device()
    check_learned(outcome)
    tolerance = MXNET_TOLERANCE if framework == "mxnet" else TOLERANCE
    assert all(largest_difference(weights, alone.weights[0]) < tolerance for weights in outcome.weights)
    for epoch, expected in zip(outcome.record.epochs, alone.record.epochs, strict=True):
        assert epoch.train_loss == pytest.approx(expected.train_loss, abs=tolerance)
        assert epoch.valid_loss == pytest.approx(expected.valid_loss, abs=tolerance)
        assert epoch.train_accuracy == pytest.approx(expected.train_accuracy, abs=1.5 / TRAINED)  # one image
        assert epoch.valid_accuracy == pytest.approx(expected.valid_accuracy, abs=1.5 / VALID)


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
    """Train with two workers, whose gradients are separate updates: two epochs at the full rate, then two at nearly 0.

    If the schedule counted each gradient as an update, the rate would fall after the first epoch. A rate that suits
    synchronous training is too high here: there are twice as many updates, each of an old gradient, with momentum.
    """
    outcome = learn(tmp_path, framework, strategy, 2, epochs=4, schedule="step:2:1e-9", learning_rate=0.003)
    check_learned(outcome, epochs=4)
    losses = [epoch.valid_loss or 0.0 for epoch in outcome.record.epochs]
    assert losses[1] < 0.5 * losses[0]
    # Each rank predicts with the weights that it received last. After the third epoch no update is pending.
    assert losses[3] == pytest.approx(losses[2], rel=1e-4)


@pytest.fixture(scope="module")
def stopped(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TrialOutcome:
    return learn_everything(tmp_path_factory.mktemp("stopped"), request.param, "independent", devices=2)


@pytest.mark.parametrize(
    "stopped",
    ["torch", "tensorflow", "jax", "mxnet", slow("keras-jax"), "keras-torch", slow("keras-tensorflow")],
    indirect=True,
)
def test_all_ranks_stop_after_the_epoch_that_reaches_the_accuracy(stopped: TrialOutcome) -> None:
    accuracies = [epoch.valid_accuracy for epoch in stopped.record.epochs]
    assert max(accuracies[:-1], default=0.0) < TARGET <= accuracies[-1]
    assert len(accuracies) < 20
    steps = len(accuracies) * (TRAINED // GLOBAL_BATCH) - 1  # the very first is not measured
    assert {len(rank.step_seconds) for rank in stopped.record.ranks} == {steps}


@pytest.mark.parametrize(
    "stopped",
    ["torch", "tensorflow", slow("jax"), "mxnet", slow("keras-jax"), slow("keras-torch"), slow("keras-tensorflow")],
    indirect=True,
)
def test_the_same_seed_gives_the_same_numbers(tmp_path: Path, stopped: TrialOutcome) -> None:
    """Interpreters of their own have other random numbers and another order of sets than forked ones."""
    framework = stopped.record.trial.config.framework
    fresh = learn_everything(tmp_path, framework, "independent", devices=2, forks=False)
    check_same_numbers(stopped, fresh)


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
    check_same_numbers(*outcomes)


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
    check_learned(learn(tmp_path, framework, strategy, precision="bf16", **settings))


@pytest.mark.slow
def test_mxnets_servers_without_momentum_report_their_updates(tmp_path: Path) -> None:
    """What they held is known by its momentum alone."""
    (server,) = learn(tmp_path, "mxnet", "ps:1", devices=2, momentum=0.0).record.servers
    assert server.updates is not None
    assert server.updates > 2 * (TRAINED // GLOBAL_BATCH)
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
    assert second.valid_samples == VALID
    assert second.valid_accuracy > 2 / CLASSES


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
    """They use running statistics and no dropout."""
    support = Path(trials.SUPPORT)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(support.parents[1] / "src"), str(support)])}
    command = [python_for(framework), str(support / "predictions.py"), framework, layout]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout.splitlines()[-1])
    assert differences["with other images in the batch"] < 1e-6
    assert differences["with other images in the batch, training"] > 1e-3  # so the way of predicting does matter
    assert differences["a second time, with dropout"] == 0.0
    # On the images of the statistics they match training, except for n against n - 1 images.
    assert differences["from training, on the images of the statistics"] < 0.01
    assert differences["between new and old statistics"] > 0.1


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
