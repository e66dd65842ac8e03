"""Settings that are lists: every combination is planned; the default space of a search."""

from __future__ import annotations

from typing import Any

import pytest
from this_machine import cpus, gpus, plan, refusal

from trainscale.errors import InputError
from trainscale.spec.config import AUTO
from trainscale.spec.experiment import make_experiment
from trainscale.spec.plan import Plan


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


@pytest.mark.parametrize("other", [{"budget": 60.0}, {"epochs": 1}, {"until_accuracy": 0.9}])
def test_a_search_excludes_a_budget_and_epochs(other: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="exclude each other: a search"):
        make_experiment({"search": "lists", **other})
