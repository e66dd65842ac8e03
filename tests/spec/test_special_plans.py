"""Plans of sweeps, searches, studies, explanations and training to an accuracy."""

from itertools import product
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from small_sets import write_cifar10, write_folder
from this_machine import cpus, gpus, plan, refusal

from trainscale.measure.context import make_spec
from trainscale.measure.submission import select_directory_settings
from trainscale.spec.config import AUTO
from trainscale.spec.experiment import Experiment, format_experiment, make_experiment
from trainscale.spec.groups import MOST_EPOCHS
from trainscale.spec.plan import MOST_TIME, Plan, make_plan
from trainscale.worker.config import Config

LEARN: dict[str, Any] = {"data": "cifar10", "epochs": 3}
OWN_TRAINING = {"learning_rate": 0.3, "weight_decay": 0.0, "schedule": "constant", "momentum": 0.5}
SERVERS = {"strategies": ("allreduce", "ps:1"), "server_placement": ("beside", "apart")}


@pytest.mark.parametrize(
    ("settings", "names", "expected"),
    [
        (
            {"batch": (4, 8), "precision": ("fp32", "bf16"), "layout": ("nchw", "nhwc")},
            "batch precision layout",
            list(product((4, 8), ("fp32", "bf16"), ("nchw", "nhwc"))),
        ),
        (
            {"strategies": ("allreduce", "ps:2"), "batch": (4, 8)},
            "strategy_label batch",
            [("allreduce", 4), ("allreduce", 8), ("ps:2", 4), ("ps:2", 8)],
        ),
        ({"compile": (False, True)}, "compile", [False, True]),
        (
            {**SERVERS, "placement": ("fill", "round-robin"), "max_devices": 2},
            "strategy server_placement placement",
            [
                *product(("allreduce",), ("beside",), ("fill", "round-robin")),
                *product(("ps",), ("beside", "apart"), ("fill", "round-robin")),
            ],
        ),
        # One value may be given without a list
        (
            {"batch": 4, "precision": "bf16", "layout": "nchw", "compile": True},
            "batch precision layout compile",
            [(4, "bf16", "nchw", True)],
        ),
        # The batch of a model is not multiplied
        (
            {"models": ("mnist:3", "alexnet"), "batch": (4, AUTO)},
            "model batch",
            [("mnist", 3), ("alexnet", 4), ("alexnet", AUTO)],
        ),
        # A search leaves out what a framework does not have
        (
            {"frameworks": ("torch", "mxnet"), "strategies": ("allreduce", "ps:1"), "search": "lists"},
            "framework strategy",
            [("torch", "allreduce"), ("torch", "ps"), ("mxnet", "ps")],
        ),
        # In the default space of a search, settings that are given stay
        (
            {"search": "default", "batch": 8, "strategies": ("allreduce",), "precision": "fp32", "layout": "nchw"},
            "strategy batch precision layout compile",
            [("allreduce", 8, "fp32", "nchw", False)],
        ),
        # A study has a weak and a strong ladder of each network
        ({}, "scaling", ["weak"]),
        (
            {"models": ("mnist:64", "alexnet:8"), "study": True},
            "model scaling batch",
            [("mnist", "weak", 64), ("alexnet", "weak", 8), ("mnist", "strong", 64), ("alexnet", "strong", 8)],
        ),
        (
            {"models": ("mnist:64",), "study": True, "strong_batch": 256},
            "scaling batch",
            [("weak", 64), ("strong", 256)],
        ),
        (
            {"batch": (16, 32), "study": True, "strong_batch": 64},
            "scaling batch",
            [("weak", 16), ("weak", 32), ("strong", 64)],
        ),
        (
            {"strategies": ("local", "allreduce"), "study": True},
            "strategy scaling",
            [("local", "weak"), ("allreduce", "weak"), ("allreduce", "strong")],
        ),
        *(
            ({"models": (f"mnist:{batch}",), "devices": ladder, "study": True}, "batch", [batch, strong])
            for batch, ladder, strong in ((65, (1, 2, 4), 64), (3, (1, 2, 4), 4), (32, (1, 2, 4, 6), 24))
        ),
        # Training to an accuracy
        ({"models": ("inceptionv3",), **LEARN}, "classes image_size data", [(10, 299, "cifar10")]),
        (
            {"models": ("inception-bn-28-small",), **LEARN},
            "learning_rate weight_decay schedule",
            [(0.1, 5e-4, "cosine")],
        ),
        (
            {"models": ("inception-bn-28-small",), **OWN_TRAINING, **LEARN},
            " ".join(OWN_TRAINING),
            [tuple(OWN_TRAINING.values())],
        ),
        ({"models": ("resnet18",), "classes": 1000, **LEARN}, "classes", [1000]),
    ],
)
def test_settings_become_configs(settings: dict[str, Any], names: str, expected: list[Any]) -> None:
    assert [attrgetter(*names.split())(config) for config in plan(cpus(8), **settings).configs] == expected


@pytest.mark.parametrize(
    "settings", [{"batch": (5,)}, {"models": ("mnist:5",), "scaling": "strong", "devices": (1, 5)}]
)
def test_the_default_space_has_one_batch_where_it_is_given_or_that_of_all_devices(settings: dict[str, Any]) -> None:
    assert {config.batch for config in plan(cpus(8), search="default", **settings).configs} == {5}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"frameworks": ("torch", "mxnet"), "strategies": ("allreduce", "ps:1")},
            "mxnet has no strategy 'allreduce'",
        ),
        # Nothing of it remains for a search
        (
            {"frameworks": ("torch", "mxnet"), "strategies": ("ps:1",), "precision": ("bf16",), "search": "lists"},
            "mxnet has no precision 'bf16'",
        ),
        ({"strategies": ("allreduce", "independent"), "search": "lists"}, "'independent': nothing is exchanged"),
        ({"strong_batch": 64}, "strong batch 64: valid with --study"),
        *(
            ({"study": True, **settings}, message)
            for settings, message in (
                ({"repeats": 4}, "repeats 4: a study repeats every point at least 5 times; valid: 5 or more"),
                ({"batch": (0,)}, "batch auto: a study has a weak and a strong ladder; valid with --study: a number"),
                ({"max_devices": 1}, "study: only one device would be used"),
                ({"strategies": ("local",)}, "study: only one device would be used"),
                ({"strong_batch": 6}, "strong scaling: a global batch of 6"),
            )
        ),
        (
            {"explain": True, "data": "mnist", "epochs": 2},
            "explain: an explanation is about steps; valid without --epochs",
        ),
        ({"epochs": 2}, "epochs: random images teach nothing; valid with --data mnist, cifar10 or imagefolder:DIR"),
        ({"data": "mnist", "warmup_epochs": 1.0}, "warmup epochs 1: valid with --epochs"),
        ({"loaders": 2}, "loaders 2: synthetic images need none"),
        ({"data": "cifar10"}, "model 'mnist' takes images of 1 channels, cifar10 has 3"),
        ({"models": ("resnet18",), "classes": 5, **LEARN}, "classes 5: cifar10 has 10; valid: 10 or more"),
        ({"models": ("resnet18:60000",), **LEARN}, "is more than the 50000 training images of cifar10"),
        ({"models": ("resnet18:30000",), "max_devices": 1, "data": "cifar10", "epochs": 1}, "is one step"),
    ],
)
def test_what_cannot_be_measured_is_refused(settings: dict[str, Any], message: str) -> None:
    assert message in refusal(**settings)


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
