"""Training to an accuracy on a small set, for the tests of every framework: what must be seen of a run that learns, and
what one device of PyTorch comes to, to which every synchronous training of the same images must come too.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import predictions
import pytest
from small_sets import write_cifar10
from trials import Outcome, largest_difference, run_trial

from trainscale.record.trial import Epoch

TRAINED, VALID, CLASSES = 500, 103, 10  # 103 images are no multiple of any batch, nor of two ranks
GLOBAL_BATCH = 16
# Of weights and losses after two epochs in float32. What a sum in another order changes is a hundredth of this; a rate
# that falls one update late changes 300 times as much.
TOLERANCE = 2e-5


def learn(folder: Path, framework: str, strategy: str, devices: int = 1, **settings: object) -> Outcome:
    """Two epochs by a network without batch norm, dropout and augmentation; all devices together take the same images
    in every step. The rate falls in the midst of the first epoch, when momentum is large.
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
        **settings,  # type: ignore[arg-type]
    )
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.notes == ()
    return outcome


def learn_everything(folder: Path, framework: str, strategy: str, devices: int = 1, **settings: object) -> Outcome:
    """A network with batch norm, dropout and two heads, on augmented images, until it is three times better than
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
def one_device() -> Outcome:
    """What ``learn`` comes to in PyTorch."""
    with tempfile.TemporaryDirectory() as folder:
        return learn(Path(folder), "torch", "local")


def check_learned(outcome: Outcome, epochs: int = 2) -> None:
    """Chance is one in ten; and every image of the validation set was looked at once."""
    found = outcome.record.epochs
    assert [epoch.epoch for epoch in found] == [*range(1, epochs + 1)]
    assert {epoch.valid_samples for epoch in found} == {VALID}
    assert found[-1].train_loss < found[0].train_loss / 2  # type: ignore[operator]
    assert found[-1].train_accuracy > 0.8
    assert found[-1].valid_accuracy > 0.8


def check_same_training(outcome: Outcome, tolerance: float = TOLERANCE) -> None:
    """Rates, momentum, images and their order, what was counted and what was tried: all must be one device's."""
    alone = one_device()
    for weights in outcome.weights:
        assert largest_difference(weights, alone.weights[0]) < tolerance
    for found, expected in zip(outcome.record.epochs, alone.record.epochs, strict=True):
        assert found.train_loss == pytest.approx(expected.train_loss, abs=tolerance)
        assert found.valid_loss == pytest.approx(expected.valid_loss, abs=tolerance)
        assert found.train_accuracy == pytest.approx(expected.train_accuracy, abs=1.5 / TRAINED)  # one image
        assert found.valid_accuracy == pytest.approx(expected.valid_accuracy, abs=1.5 / VALID)
        assert found.valid_samples == expected.valid_samples


def check_rate_falls_on_servers(folder: Path, framework: str, strategy: str) -> None:
    """Two workers, whose gradients are updates of their own: two epochs at the full rate, then two at none.

    Were each gradient counted as a whole update, the rate would fall after the first epoch. A rate that suits
    synchronous training is too much here: two updates for one, each of an old gradient, under momentum.
    """
    outcome = learn(folder, framework, strategy, devices=2, epochs=4, schedule="step:2:1e-9", learning_rate=0.003)
    check_learned(outcome, epochs=4)
    losses = [epoch.valid_loss or 0.0 for epoch in outcome.record.epochs]
    assert losses[1] < 0.5 * losses[0]
    # Each rank tries the weights that it got last; by the end of the third epoch nothing is on its way any more.
    assert losses[3] == pytest.approx(losses[2], rel=1e-4)


def check_stopped_early(outcome: Outcome, target: float = 3 / CLASSES) -> None:
    """After the first epoch that reached it, and after the same number of steps on every rank."""
    accuracies = [epoch.valid_accuracy for epoch in outcome.record.epochs]
    assert accuracies[-1] >= target
    assert all(accuracy < target for accuracy in accuracies[:-1])
    assert len(accuracies) < 20
    assert {len(rank.step_seconds) for rank in outcome.record.ranks} == {
        len(accuracies) * (TRAINED // GLOBAL_BATCH) - 1  # the very first is not measured
    }


def check_same_numbers(one: Outcome, other: Outcome) -> None:
    """To the last bit, but for the clock."""
    assert [_numbers(epoch) for epoch in one.record.epochs] == [_numbers(epoch) for epoch in other.record.epochs]
    digests = [[rank.weights_digest for rank in outcome.record.ranks] for outcome in (one, other)]
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
    """By running statistics and without dropout: whatever else is in the batch."""
    apart = predictions.ask(framework, layout)
    assert apart["in other company"] < 1e-6
    assert apart["in other company, training"] > 1e-3  # so it does matter how they are made
    assert apart["a second time, with dropout"] == 0.0
    # On the very images of the statistics it is what training computes: of few images, but for n against n - 1.
    assert apart["from training, on the images of the statistics"] < 0.01
    assert apart["of new statistics from old"] > 0.1
