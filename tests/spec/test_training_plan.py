"""Plans for training to an accuracy: the defaults, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from photographs import write_folder
from small_sets import write_cifar10
from this_machine import cpus, plan, refusal

from trainscale.errors import InputError
from trainscale.spec.experiment import make_experiment
from trainscale.spec.groups import MOST_EPOCHS
from trainscale.spec.plan import make_plan
from trainscale.worker.config import Config

LEARN: dict[str, Any] = {"data": "cifar10", "epochs": 3}


def test_classes_are_those_of_the_images_and_sizes_those_of_the_network() -> None:
    (config,) = plan(models=("inceptionv3",), **LEARN).configs
    assert (config.classes, config.image_size, config.data) == (10, 299, "cifar10")


def test_a_network_that_is_trained_to_an_accuracy_has_its_own_defaults() -> None:
    (config,) = plan(models=("inception-bn-28-small",), **LEARN).configs
    assert (config.learning_rate, config.weight_decay, config.schedule) == (0.1, 5e-4, "cosine")


def test_settings_win_over_the_networks_defaults() -> None:
    settings = {"learning_rate": 0.3, "weight_decay": 0.0, "schedule": "constant", "momentum": 0.5}
    (config,) = plan(models=("inception-bn-28-small",), **settings, **LEARN).configs
    assert {name: getattr(config, name) for name in settings} == settings


def test_where_speed_is_measured_training_is_always_the_same() -> None:
    (config,) = plan(models=("inception-bn-28-small",), data="cifar10").configs
    usual = Config(config.framework, config.model, config.batch, config.strategy, config.image_size, config.classes)
    names = ("learning_rate", "momentum", "weight_decay", "schedule", "warmup_epochs", "epochs", "until_accuracy")
    assert [getattr(config, name) for name in names] == [getattr(usual, name) for name in names]


def test_a_parity_check_ignores_images_and_training_defaults() -> None:
    (trained,) = plan(models=("inception-bn-28-small",), batch=8, **LEARN).configs
    (measured,) = plan(models=("inception-bn-28-small",), batch=8).configs
    assert trained.reset_training() == measured


def test_an_accuracy_without_epochs_has_a_limit() -> None:
    assert make_experiment({"until_accuracy": 0.9}).training.epochs == MOST_EPOCHS
    assert make_experiment({"until_accuracy": 0.9, "epochs": 7}).training.epochs == 7


def test_training_to_an_accuracy_is_not_repeated_by_default() -> None:
    assert make_experiment({"epochs": 3}).measurement.repeats == 1
    assert make_experiment({"epochs": 3, "repeats": 4}).measurement.repeats == 4
    assert make_experiment({}).measurement.repeats == 5


@pytest.mark.parametrize("other", [{"epochs": 3}, {"until_accuracy": 0.9}])
def test_a_budget_does_not_cut_an_epoch(other: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="an epoch is not cut"):
        make_experiment({"budget": 60.0, **other})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": 2}, "epochs: random images teach nothing; valid with --data mnist, cifar10 or imagefolder:DIR"),
        ({"data": "mnist", "warmup_epochs": 1.0}, "warmup epochs 1: valid with --epochs"),
        ({"loaders": 2}, "loaders 2: synthetic images need none"),
        ({"data": "cifar10"}, "model 'mnist' takes images of 1 channels, cifar10 has 3"),
        ({"models": ("resnet18",), "classes": 5, **LEARN}, "classes 5: cifar10 has 10; valid: 10 or more"),
        ({"models": ("resnet18:60000",), **LEARN}, "is more than the 50000 training images of cifar10"),
        ({"models": ("resnet18:30000",), "max_devices": 1, "data": "cifar10", "epochs": 1}, "is one step"),
    ],
)
def test_training_that_cannot_work_is_refused_with_what_is_valid(settings: dict[str, Any], message: str) -> None:
    assert message in refusal(**settings)


def test_more_classes_than_the_images_have_are_allowed() -> None:
    (config,) = plan(models=("resnet18",), classes=1000, **LEARN).configs
    assert config.classes == 1000


def test_photographs_are_counted(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "photographs")
    dataset = make_plan(
        make_experiment({"models": ("resnet18:1",), "data": f"imagefolder:{folder}", "epochs": 2}), cpus()
    )
    (config,) = dataset.configs
    assert config.data == "imagefolder:photographs"
    assert config.classes == dataset.dataset.facts.classes
    assert dataset.dataset.directory == str(folder)


def test_the_time_of_a_plan_grows_with_its_epochs(tmp_path: Path) -> None:
    folder = write_cifar10(tmp_path / "images")
    short, long = (plan(models=("resnet50-cifar:10",), data=f"cifar10:{folder}", epochs=n) for n in (2, 20))
    assert long.seconds > short.seconds


def test_a_missing_folder_of_photographs_is_named(tmp_path: Path) -> None:
    message = refusal(models=("resnet18",), data=f"imagefolder:{tmp_path / 'none'}")
    assert message.startswith("data: ")
    assert str(tmp_path / "none" / "train") in message
