"""The plan of a study: weak and strong ladders of the same work, with enough repeats."""

from __future__ import annotations

from typing import Any

import pytest
from this_machine import cpus, plan, refusal

from trainscale.errors import InputError
from trainscale.measure.context import make_spec
from trainscale.measure.submission import select_directory_settings
from trainscale.spec.experiment import Experiment, format_experiment, make_experiment


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


@pytest.mark.parametrize("key", ["scaling", "budget", "until_interval", "search", "epochs", "until_accuracy"])
def test_what_excludes_a_study(key: str) -> None:
    values = {"scaling": "strong", "budget": 60.0, "until_interval": 0.01, "search": "lists", "epochs": 3}
    with pytest.raises(InputError, match="exclude each other"):
        make_experiment({"study": True, key: values.get(key, 0.9)})


def test_a_study_that_is_switched_off_excludes_nothing() -> None:
    experiment = make_experiment({"study": False, "scaling": "strong"})
    assert (experiment.measurement.study, experiment.measurement.scaling) == (False, "strong")


def test_a_study_is_another_run_than_its_weak_ladder() -> None:
    assert make_spec(plan(study=True)) != make_spec(plan())


def test_a_study_is_written_to_a_file_and_read_back(tmp_path: Any) -> None:
    path = tmp_path / "study.toml"
    path.write_text(format_experiment(Experiment.of(study=True)))
    assert make_experiment({}, path).measurement.study


def test_a_batch_job_without_a_study_keeps_its_directory() -> None:
    assert not {"study", "strong_batch"} & select_directory_settings(Experiment.of()).keys()
    assert select_directory_settings(Experiment.of(study=True))["study"] is True
