"""Plans of sweeps, searches, studies, explanations and training to an accuracy."""

from pathlib import Path
from typing import Any

import pytest
from small_sets import write_cifar10, write_folder
from this_machine import cpus, gpus, plan, refusal

from trainscale.measure.context import make_spec
from trainscale.measure.submission import select_directory_settings
from trainscale.spec.experiment import Experiment, format_experiment, make_experiment
from trainscale.spec.groups import MOST_EPOCHS
from trainscale.spec.plan import MOST_TIME, Plan, make_plan
from trainscale.worker.config import Config

LEARN: dict[str, Any] = {"data": "cifar10", "epochs": 3}


@pytest.mark.parametrize(
    "settings", [{"batch": (5,)}, {"models": ("mnist:5",), "scaling": "strong", "devices": (1, 5)}]
)
def test_the_default_space_has_one_batch_where_it_is_given_or_that_of_all_devices(settings: dict[str, Any]) -> None:
    assert {config.batch for config in plan(cpus(8), search="default", **settings).configs} == {5}


def test_the_default_space_is_what_the_framework_offers_on_this_device() -> None:
    on_cpu = plan(cpus(), search="default").configs
    assert {config.strategy_label for config in on_cpu} == {"local", "allreduce", "ps:1", "ps:2", "sharded"}
    assert {config.batch for config in on_cpu} == {32, 64, 128}
    assert {config.precision for config in on_cpu} == {"fp32", "bf16"}
    assert {config.layout for config in on_cpu} == {"nchw", "nhwc"}
    assert {config.compile for config in on_cpu} == {False}
    on_gpu = plan(gpus(), search="default").configs
    assert {config.precision for config in on_gpu} == {"fp32", "tf32", "bf16"}
    assert {config.compile for config in on_gpu} == {False, True}
    mxnet = plan(frameworks=("mxnet",), search="default").configs
    assert {(c.strategy_label, c.precision, c.layout) for c in mxnet} == {
        ("local", "fp32", "nchw"),
        ("ps:1", "fp32", "nchw"),
        ("ps:2", "fp32", "nchw"),
    }


def test_a_study_is_another_run_with_its_own_file_and_directory(tmp_path: Path) -> None:
    made = plan(models=("mnist:64",), study=True)
    assert (set(made.ladders.values()), len(made.list_trials())) == ({(1, 2, 4)}, 5 * 6)
    assert make_spec(made) != make_spec(plan(models=("mnist:64",)))
    path = tmp_path / "study.toml"
    path.write_text(format_experiment(Experiment.of(study=True)))
    assert make_experiment({}, path).measurement.study
    assert not {"study", "strong_batch"} & select_directory_settings(Experiment.of()).keys()
    assert select_directory_settings(Experiment.of(study=True))["study"] is True


def a_plan(devices: int = 8, ladder: tuple[int, ...] = (), **settings: Any) -> Plan:
    settings |= {"devices": ladder} if ladder else {}
    return plan(cpus(devices), **{"models": ("alexnet:8",), "explain": True, **settings})


def points(made: Plan) -> list[tuple[str, int]]:
    return [(further.config.strategy, further.devices) for further in made.further_points]


TINY = {"devices": 2, "models": ("mnist:1",), "steps": 5}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"explain": False}, []),
        ({}, [(8, 3), (1, 3), (4, 3), (2, 3)]),
        ({"repeats": 2}, [(8, 2), (1, 2), (4, 2), (2, 2)]),
        ({"strategies": ("allreduce", "independent")}, []),  # the ladder has them already
        ({"strategies": ("ps-async", "independent")}, []),
        # Short trials beside a ladder of two points have fewer repeats
        ({**TINY, "repeats": 5}, [(2, 3)]),
        ({**TINY, "repeats": 3}, [(2, 2)]),
        ({**TINY, "repeats": 2}, [(2, 1)]),
        ({**TINY, "repeats": 1}, [(2, 1)]),
        # One worker with its server exchanges gradients too, so its step is not the work alone
        ({**TINY, "repeats": 3, "strategies": ("ps:1",)}, [(2, 1), (1, 1)]),
        ({**TINY, "repeats": 6, "ladder": (2,)}, [(2, 1), (1, 1)]),
    ],
)
def test_independent_ranks_are_measured_too(settings: dict[str, Any], expected: list[tuple[int, int]]) -> None:
    made = a_plan(**settings)
    assert [(further.devices, further.repeats) for further in made.further_points] == expected
    assert {further.config.strategy for further in made.further_points} <= {"independent"}
    assert made.further_seconds <= MOST_TIME * made.ladder_seconds or expected == [(2, 1)]


def test_further_points_take_at_most_40_percent_and_come_in_between() -> None:
    made = a_plan(strategies=("allreduce", "ps:1", "ps:2"))
    assert len(set(points(made))) == len(points(made))
    for settings in ({}, {"steps": 20}, {"models": ("mnist:8",)}, {"budget": 300.0}, {"repeats": 3}):
        made = a_plan(**settings)
        assert 0 < made.further_seconds <= MOST_TIME * made.ladder_seconds * (1 + 1e-9), settings
        assert made.seconds == made.ladder_seconds + made.further_seconds
    made = a_plan(models=("mnist:1",), repeats=3, steps=20)
    assert points(made)[0] == ("independent", 8)
    assert len(points(made)) < 4
    trials = a_plan(devices=2).list_trials()
    strategies = [trial.config.strategy for trial in trials]
    assert strategies[:4] == ["allreduce", "allreduce", "independent", "independent"]
    assert strategies.count("independent") == 6
    assert strategies[-2:] == ["allreduce", "allreduce"]


@pytest.mark.parametrize("settings", [{}, {"steps": 20}, {"models": ("mnist:1",), "steps": 5}])
@pytest.mark.parametrize("repeats", [5, 4, 3, 2])
def test_a_ladder_of_two_points_keeps_the_limit(repeats: int, settings: dict[str, Any]) -> None:
    made = a_plan(devices=2, repeats=repeats, **settings)
    assert points(made)[0] == ("independent", 2)
    assert made.further_seconds <= MOST_TIME * made.ladder_seconds


def test_training_defaults_are_no_part_of_speed_or_parity() -> None:
    (config,) = plan(models=("inception-bn-28-small",), data="cifar10").configs
    usual = Config(config.framework, config.model, config.batch, config.strategy, config.image_size, config.classes)
    names = ("learning_rate", "momentum", "weight_decay", "schedule", "warmup_epochs", "epochs", "until_accuracy")
    assert [getattr(config, name) for name in names] == [getattr(usual, name) for name in names]
    (trained,) = plan(models=("inception-bn-28-small",), batch=8, **LEARN).configs
    (measured,) = plan(models=("inception-bn-28-small",), batch=8).configs
    assert trained.reset_training() == measured


def test_training_to_an_accuracy_has_a_limit_and_is_not_repeated() -> None:
    assert make_experiment({"until_accuracy": 0.9}).training.epochs == MOST_EPOCHS
    assert make_experiment({"until_accuracy": 0.9, "epochs": 7}).training.epochs == 7
    assert make_experiment({"epochs": 3}).measurement.repeats == 1
    assert make_experiment({"epochs": 3, "repeats": 4}).measurement.repeats == 4
    assert make_experiment({}).measurement.repeats == 5


def test_a_plan_counts_its_images(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "photographs")
    dataset = make_plan(
        make_experiment({"models": ("resnet18:1",), "data": f"imagefolder:{folder}", "epochs": 2}), cpus()
    )
    (config,) = dataset.configs
    assert config.data == "imagefolder:photographs"
    assert config.classes == dataset.dataset.facts.classes
    assert dataset.dataset.directory == str(folder)
    folder = write_cifar10(tmp_path / "images")
    short, long = (plan(models=("resnet50-cifar:10",), data=f"cifar10:{folder}", epochs=n) for n in (2, 20))
    assert long.seconds > short.seconds
    message = refusal(models=("resnet18",), data=f"imagefolder:{tmp_path / 'none'}")
    assert message.startswith("data: ")
    assert str(tmp_path / "none" / "train") in message
