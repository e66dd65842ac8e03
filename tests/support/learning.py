"""Training to an accuracy on a small data set, for the tests of every framework: checks of a run that learns, and the
numbers of one PyTorch device, which every synchronous training of the same images must match.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import predictions
import pytest
from small_sets import write_cifar10
from trials import TrialOutcome, largest_difference, run_trial

from trainscale.record.trial import Epoch

TRAINED, VALID, CLASSES = 500, 103, 10  # 103 images are no multiple of any batch, nor of two ranks
GLOBAL_BATCH = 16
# Of weights and losses after two epochs in float32. A sum in another order changes a hundredth of this; a rate that
# falls one update late changes 300 times as much.
TOLERANCE = 2e-5


def learn(folder: Path, framework: str, strategy: str, devices: int = 1, **settings: object) -> TrialOutcome:
    """Train a network without batch norm, dropout and augmentation for two epochs.

    All devices together take the same images in every step. The rate falls in the first epoch, when momentum is large.
    """
    images = write_cifar10(folder / "images", TRAINED, VALID)
    settings = {
        "models": (f"plain-graph:{GLOBAL_BATCH // devices}",),
        "epochs": 2,
        "learning_rate": 0.01,
        "schedule": "step:0.5:0.3",
        "augment": False,
        **settings,
    }
    outcome = run_trial(
        folder,
        framework=framework,
        devices=devices,
        strategies=(strategy,),
        data=f"cifar10:{images}",
        **{"forks": True, **settings},  # type: ignore[arg-type]
    )
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.notes == ()
    return outcome


def learn_everything(folder: Path, framework: str, strategy: str, devices: int = 1, **settings: object) -> TrialOutcome:
    """Train a network with batch norm, dropout and two heads on augmented images, until it is three times as good as
    chance.
    """
    settings = {
        "models": (f"every-kind:{GLOBAL_BATCH // devices}",),
        "image_size": 32,
        "epochs": 20,
        "until_accuracy": 3 / CLASSES,
        "schedule": "cosine",
        "augment": True,
        "deterministic": True,
        **settings,
    }
    return learn(folder, framework, strategy, devices, **settings)


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


def check_same_training(outcome: TrialOutcome, tolerance: float = TOLERANCE) -> None:
    """Check rates, momentum, images and their order, counts and predictions: all must match one device."""
    alone = one_device()
    for weights in outcome.weights:
        assert largest_difference(weights, alone.weights[0]) < tolerance
    for epoch, expected in zip(outcome.record.epochs, alone.record.epochs, strict=True):
        assert epoch.train_loss == pytest.approx(expected.train_loss, abs=tolerance)
        assert epoch.valid_loss == pytest.approx(expected.valid_loss, abs=tolerance)
        assert epoch.train_accuracy == pytest.approx(expected.train_accuracy, abs=1.5 / TRAINED)  # one image
        assert epoch.valid_accuracy == pytest.approx(expected.valid_accuracy, abs=1.5 / VALID)
        assert epoch.valid_samples == expected.valid_samples


def check_rate_falls_on_servers(folder: Path, framework: str, strategy: str) -> None:
    """Train with two workers, whose gradients are separate updates: two epochs at the full rate, then two at nearly 0.

    If the schedule counted each gradient as an update, the rate would fall after the first epoch. A rate that suits
    synchronous training is too high here: there are twice as many updates, each of an old gradient, with momentum.
    """
    outcome = learn(folder, framework, strategy, devices=2, epochs=4, schedule="step:2:1e-9", learning_rate=0.003)
    check_learned(outcome, epochs=4)
    losses = [epoch.valid_loss or 0.0 for epoch in outcome.record.epochs]
    assert losses[1] < 0.5 * losses[0]
    # Each rank predicts with the weights that it received last. After the third epoch no update is pending.
    assert losses[3] == pytest.approx(losses[2], rel=1e-4)


def check_stopped_early(outcome: TrialOutcome, target: float = 3 / CLASSES) -> None:
    """Check that training ended after the first epoch that reached the target, with equally many steps on all ranks."""
    accuracies = [epoch.valid_accuracy for epoch in outcome.record.epochs]
    assert accuracies[-1] >= target
    assert all(accuracy < target for accuracy in accuracies[:-1])
    assert len(accuracies) < 20
    assert {len(rank.step_seconds) for rank in outcome.record.ranks} == {
        len(accuracies) * (TRAINED // GLOBAL_BATCH) - 1  # the very first is not measured
    }


def check_same_numbers(first: TrialOutcome, second: TrialOutcome) -> None:
    """Check that everything except the clock is the same to the last bit."""
    assert [_numbers(epoch) for epoch in first.record.epochs] == [_numbers(epoch) for epoch in second.record.epochs]
    digests = [[rank.weights_digest for rank in outcome.record.ranks] for outcome in (first, second)]
    assert digests[0] == digests[1]


def _numbers(epoch: Epoch) -> tuple[object, ...]:
    return (
        epoch.samples,
        epoch.train_loss,
        epoch.train_accuracy,
        epoch.valid_loss,
        epoch.valid_accuracy,
        epoch.valid_samples,
    )


def check_predictions(framework: str, layout: str) -> None:
    """Check that predictions use running statistics and no dropout, whatever else is in the batch."""
    differences = predictions.run(framework, layout)
    assert differences["with other images in the batch"] < 1e-6
    assert differences["with other images in the batch, training"] > 1e-3  # so the way of predicting does matter
    assert differences["a second time, with dropout"] == 0.0
    # On the images of the statistics they match training, except for n against n - 1 images.
    assert differences["from training, on the images of the statistics"] < 0.01
    assert differences["between new and old statistics"] > 0.1
