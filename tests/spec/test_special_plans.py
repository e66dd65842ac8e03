"""Plans of sweeps, searches, studies, explanations and training to an accuracy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_sets import write_cifar10, write_folder
from this_machine import cpus, gpus, plan, refusal

from trainscale.errors import InputError
from trainscale.measure.context import make_spec
from trainscale.measure.submission import select_directory_settings
from trainscale.spec.config import AUTO
from trainscale.spec.experiment import Experiment, format_experiment, make_experiment
from trainscale.spec.groups import MOST_EPOCHS
from trainscale.spec.plan import MOST_TIME, Plan, make_plan
from trainscale.worker.config import Config


def combinations(made: Plan) -> list[tuple[Any, ...]]:
    return [(c.strategy_label, c.batch, c.precision, c.layout, c.compile) for c in made.configs]


def test_every_combination_of_lists_is_a_config() -> None:
    made = plan(strategies=("allreduce", "ps:2"), batch=(4, 8), precision=("fp32", "bf16"), layout=("nchw", "nhwc"))
    assert len(set(made.configs)) == 16
    assert combinations(made)[:3] == [
        ("allreduce", 4, "fp32", "nchw", False),
        ("allreduce", 4, "fp32", "nhwc", False),
        ("allreduce", 4, "bf16", "nchw", False),
    ]


def test_compile_can_be_both() -> None:
    assert [config.compile for config in plan(compile=(False, True)).configs] == [False, True]


def test_placements_can_be_lists_and_strategies_without_servers_have_no_server_placement() -> None:
    made = plan(
        cpus(8),
        strategies=("allreduce", "ps:1"),
        server_placement=("beside", "apart"),
        placement=("fill", "round-robin"),
        max_devices=2,
    )
    assert [(config.strategy, config.server_placement, config.placement) for config in made.configs] == [
        ("allreduce", "beside", "fill"),
        ("allreduce", "beside", "round-robin"),
        ("ps", "beside", "fill"),
        ("ps", "beside", "round-robin"),
        ("ps", "apart", "fill"),
        ("ps", "apart", "round-robin"),
    ]


def test_one_value_may_be_given_without_a_list() -> None:
    assert combinations(plan(batch=4, precision="bf16", layout="nchw", compile=True)) == [
        ("allreduce", 4, "bf16", "nchw", True)
    ]


def test_the_batch_of_a_model_is_not_multiplied() -> None:
    made = plan(models=("mnist:3", "alexnet"), batch=(4, AUTO))
    assert [(config.model, config.batch) for config in made.configs] == [
        ("mnist", 3),
        ("alexnet", 4),
        ("alexnet", AUTO),
    ]


def test_a_sweep_refuses_what_a_framework_does_not_have_and_a_search_leaves_it_out() -> None:
    settings: dict[str, Any] = {"frameworks": ("torch", "mxnet"), "strategies": ("allreduce", "ps:1")}
    assert "mxnet has no strategy 'allreduce'" in refusal(**settings)
    made = plan(search="lists", **settings)
    assert [(c.framework, c.strategy) for c in made.configs] == [
        ("torch", "allreduce"),
        ("torch", "ps"),
        ("mxnet", "ps"),
    ]


def test_a_search_refuses_a_framework_for_which_nothing_remains() -> None:
    assert "mxnet has no precision 'bf16'" in refusal(frameworks=("torch", "mxnet"), strategies=("ps:1",),
                                                      precision=("bf16",), search="lists")  # fmt: skip


def test_independent_workers_are_no_candidate_of_a_search() -> None:
    assert "'independent': nothing is exchanged" in refusal(strategies=("allreduce", "independent"), search="lists")


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


def test_in_the_default_space_settings_that_are_given_stay() -> None:
    made = plan(search="default", models=("mnist:8",), strategies=("allreduce",), precision=("fp32",), layout=("nchw",))
    assert combinations(made) == [("allreduce", 8, "fp32", "nchw", False)]
    assert {config.batch for config in plan(search="default", batch=(5,)).configs} == {5}


def test_under_strong_scaling_the_default_space_has_one_batch() -> None:
    assert {config.batch for config in plan(search="default", scaling="strong").configs} == {64}


def test_a_study_has_a_weak_and_a_strong_ladder_of_each_network() -> None:
    made = plan(models=("mnist:64", "alexnet:8"), study=True)
    assert [(c.model, c.scaling, c.batch) for c in made.configs] == [
        ("mnist", "weak", 64),
        ("alexnet", "weak", 8),
        ("mnist", "strong", 64),
        ("alexnet", "strong", 8),
    ]
    assert set(made.ladders) == {(1, 2, 4)}
    assert len(made.list_trials()) == 5 * 12


def test_without_study_nothing_is_added() -> None:
    assert [config.scaling for config in plan().configs] == ["weak"]


@pytest.mark.parametrize(
    ("batch", "ladder", "expected"),
    [(64, (1, 2, 4), 64), (65, (1, 2, 4), 64), (3, (1, 2, 4), 4), (32, (1, 2, 4, 6), 24)],
)
def test_the_strong_batch_can_be_split_evenly(batch: int, ladder: tuple[int, ...], expected: int) -> None:
    made = plan(cpus(6), models=(f"mnist:{batch}",), devices=ladder, study=True)
    assert [config.batch for config in made.configs] == [batch, expected]


def test_the_strong_batch_may_be_given() -> None:
    made = plan(models=("mnist:64",), study=True, strong_batch=256)
    assert [(config.scaling, config.batch) for config in made.configs] == [("weak", 64), ("strong", 256)]


def test_batches_that_lead_to_the_same_strong_ladder_have_it_once() -> None:
    made = plan(batch=(16, 32), study=True, strong_batch=64)
    assert [(config.scaling, config.batch) for config in made.configs] == [("weak", 16), ("weak", 32), ("strong", 64)]


def test_one_device_strategies_have_no_strong_ladder() -> None:
    made = plan(strategies=("local", "allreduce"), study=True)
    assert [(c.strategy, c.scaling) for c in made.configs] == [
        ("local", "weak"),
        ("allreduce", "weak"),
        ("allreduce", "strong"),
    ]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"repeats": 4}, "repeats 4: a study repeats every point at least 5 times; valid: 5 or more"),
        ({"batch": (0,)}, "batch auto: a study has a weak and a strong ladder; valid with --study: a number"),
        ({"max_devices": 1}, "study: only one device would be used"),
        ({"strategies": ("local",)}, "study: only one device would be used"),
        ({"strong_batch": 6}, "strong scaling: a global batch of 6"),
    ],
)
def test_what_a_study_refuses(settings: dict[str, Any], message: str) -> None:
    assert refusal(study=True, **settings).startswith(message)


def test_a_strong_batch_needs_a_study() -> None:
    assert refusal(strong_batch=64) == "strong batch 64: valid with --study"


def test_a_study_is_another_run_than_its_weak_ladder() -> None:
    assert make_spec(plan(study=True)) != make_spec(plan())


def test_a_study_is_written_to_a_file_and_read_back(tmp_path: Any) -> None:
    path = tmp_path / "study.toml"
    path.write_text(format_experiment(Experiment.of(study=True)))
    assert make_experiment({}, path).measurement.study


def test_a_batch_job_without_a_study_keeps_its_directory() -> None:
    assert not {"study", "strong_batch"} & select_directory_settings(Experiment.of()).keys()
    assert select_directory_settings(Experiment.of(study=True))["study"] is True


def a_plan(devices: int = 8, ladder: tuple[int, ...] = (), **settings: Any) -> Plan:
    settings |= {"devices": ladder} if ladder else {}
    return plan(cpus(devices), **{"models": ("alexnet:8",), "explain": True, **settings})


def points(made: Plan) -> list[tuple[str, int]]:
    return [(further.config.strategy, further.devices) for further in made.further_points]


def test_without_the_setting_nothing_is_added() -> None:
    made = a_plan(explain=False)
    assert made.further_points == ()
    assert len(made.list_trials()) == 4 * 5


def test_ranks_that_exchange_nothing_are_measured_on_the_same_ladder() -> None:
    assert points(a_plan()) == [("independent", n) for n in (8, 1, 4, 2)]


def test_it_takes_at_most_40_percent_of_the_ladder() -> None:
    for settings in ({}, {"steps": 20}, {"models": ("mnist:8",)}, {"budget": 300.0}, {"repeats": 3}):
        made = a_plan(**settings)
        assert 0 < made.further_seconds <= MOST_TIME * made.ladder_seconds * (1 + 1e-9), settings
        assert made.seconds == made.ladder_seconds + made.further_seconds


def test_what_does_not_fit_is_left_out_but_never_the_most_devices() -> None:
    made = a_plan(models=("mnist:1",), repeats=3, steps=20)
    assert points(made)[0] == ("independent", 8)
    assert len(points(made)) < 4


@pytest.mark.parametrize("settings", [{}, {"steps": 20}, {"models": ("mnist:1",), "steps": 5}])
@pytest.mark.parametrize("repeats", [5, 4, 3, 2])
def test_a_ladder_of_two_points_keeps_the_limit(repeats: int, settings: dict[str, Any]) -> None:
    made = a_plan(devices=2, repeats=repeats, **settings)
    assert points(made)[0] == ("independent", 2)
    assert made.further_seconds <= MOST_TIME * made.ladder_seconds


@pytest.mark.parametrize(("repeats", "further"), [(5, 3), (3, 2), (2, 1), (1, 1)])
def test_short_trials_beside_a_ladder_of_two_points_have_fewer_repeats(repeats: int, further: int) -> None:
    (point,) = a_plan(devices=2, models=("mnist:1",), steps=5, repeats=repeats).further_points
    assert (point.devices, point.repeats) == (2, further)


def test_servers_need_one_device_without_them_and_have_fewer_repeats_for_it() -> None:
    """One worker with its server exchanges gradients too, so its step is not the work alone."""
    made = a_plan(devices=2, models=("mnist:1",), steps=5, repeats=3, strategies=("ps:1",))
    assert [(further.devices, further.repeats) for further in made.further_points] == [(2, 1), (1, 1)]
    assert made.further_seconds <= MOST_TIME * made.ladder_seconds


def test_a_ladder_without_one_device_needs_it() -> None:
    made = a_plan(devices=2, models=("mnist:1",), steps=5, repeats=6, ladder=(2,))
    assert [further.devices for further in made.further_points] == [2, 1]


def test_repeats_are_three_where_the_ladder_has_as_many() -> None:
    assert {further.repeats for further in a_plan().further_points} == {3}
    assert {further.repeats for further in a_plan(repeats=2).further_points} == {2}


def test_strategies_of_the_same_work_share_their_points() -> None:
    made = a_plan(strategies=("allreduce", "ps:1", "ps:2"))
    assert len(set(points(made))) == len(points(made))


def test_what_the_ladder_has_already_is_not_added() -> None:
    assert a_plan(strategies=("allreduce", "independent")).further_points == ()


def test_asynchronous_series_need_nothing() -> None:
    assert a_plan(strategies=("ps-async", "independent")).further_points == ()


def test_further_trials_come_in_between() -> None:
    trials = a_plan(devices=2).list_trials()
    strategies = [trial.config.strategy for trial in trials]
    assert strategies[:4] == ["allreduce", "allreduce", "independent", "independent"]
    assert strategies.count("independent") == 6
    assert strategies[-2:] == ["allreduce", "allreduce"]


def test_epochs_and_explanations_exclude_each_other() -> None:
    with pytest.raises(InputError, match="explain: an explanation is about steps; valid without --epochs"):
        a_plan(models=("mnist:8",), data="mnist", epochs=2)


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
