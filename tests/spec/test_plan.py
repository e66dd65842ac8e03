"""A plan for an experiment and the available devices: configs, ladders, the order of trials, or one clear refusal."""

import sys
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
from small_sets import write_mnist
from this_machine import GIB, cpus, gpus, plan, refusal

from trainscale.errors import InputError
from trainscale.measure.context import make_spec
from trainscale.spec.choices import CPU, GPUS, split_model
from trainscale.spec.config import AUTO
from trainscale.spec.devices import AvailableDevices
from trainscale.spec.groups import SETTINGS
from trainscale.worker import models
from trainscale.worker.frameworks.catalog import FRAMEWORKS

# ---- models and batches


@pytest.mark.parametrize(
    ("settings", "names", "expected"),
    [
        ({"models": ("Inceptionv3:16", "Alexnet:256")}, "model batch", [("inceptionv3", 16), ("alexnet", 256)]),
        *(
            ({"models": (spelling,)}, "model", ["inceptionv3"])
            for spelling in ("Inception-V3", "INCEPTION3", "inception_v3", "Inception v3")
        ),
        ({"models": ("mnist:3", "alexnet"), "batch": 7}, "batch", [3, 7]),
        ({"models": ("mnist",)}, "batch channels", [(64, 1)]),
        (
            {"models": ("My_package.Module:Build:4",)},
            "model batch image_size classes",
            [("My_package.Module:Build", 4, 224, 1000)],
        ),
        (
            {"models": ("resnet18",), "image_size": 64, "classes": 10},
            "image_size classes channels",
            [(64, 10, 3)],
        ),
        ({"frameworks": ("Torch",), "strategies": ("AllReduce",)}, "framework strategy", [("torch", "allreduce")]),
        ({"strategies": ("ps:3", "ps-async", "allreduce"), "servers": 2}, "servers", [3, 2, 0]),
        ({"strategies": ("ps",)}, "servers", [1]),
        ({"models": ("mnist", "alexnet:4"), "batch": AUTO}, "batch", [AUTO, 4]),
        ({"models": ("mnist:auto", "alexnet:4")}, "batch", [AUTO, 4]),
        ({"models": ("mnist:AUTO",), "batch": 16}, "batch", [AUTO]),
        (
            {"models": ("mnist", "alexnet"), "strategies": ("allreduce", "sharded")},
            "model strategy",
            [("mnist", "allreduce"), ("mnist", "sharded"), ("alexnet", "allreduce"), ("alexnet", "sharded")],
        ),
    ],
)
def test_settings_become_configs(settings: dict[str, Any], names: str, expected: list[Any]) -> None:
    assert [attrgetter(*names.split())(config) for config in plan(**settings).configs] == expected


@pytest.mark.parametrize(
    ("text", "name", "batch"),
    [
        ("timm:resnet18:8", "timm:resnet18", 8),
        ("timm:resnet18", "timm:resnet18", None),
        ("my.package:build:4", "my.package:build", 4),
        ("mnist:auto", "mnist", AUTO),
        ("timm:resnet18:auto", "timm:resnet18", AUTO),
        ("my.package:build:auto", "my.package:build", AUTO),
        ("my.package:auto", "my.package:auto", None),
    ],
)
def test_the_last_part_alone_can_be_a_batch(text: str, name: str, batch: int | None) -> None:
    assert split_model(text) == (name, batch)


@pytest.mark.parametrize(
    ("available", "inception", "alexnet"),
    [
        (gpus(name="Tesla K80", memory_gib=11), 32, 512),
        (gpus(name="GRID K520", memory_gib=4), 8, 128),
        (gpus(name="NVIDIA H200", memory_gib=139), 256, 1024),
        (gpus(name="NVIDIA A100-PCIE-40GB", memory_gib=40), 128, 1024),
        (gpus(name="Tesla T4", memory_gib=15), 64, 512),
        (gpus(name="Quadro P400", memory_gib=2), 8, 128),
        (gpus(name="NVIDIA GB10", memory_gib=0), 8, 128),  # nvidia-smi does not tell its memory
        (cpus(memory_bytes=512 * GIB), 2, 8),
    ],
    ids=["P2", "G2", "H200", "A100", "T4", "small", "unknown", "CPU"],
)
def test_the_default_batch_depends_on_the_device(available: AvailableDevices, inception: int, alexnet: int) -> None:
    made = plan(available, models=("inceptionv3", "alexnet"))
    assert [config.batch for config in made.configs] == [inception, alexnet]


def test_more_memory_never_means_a_smaller_batch_and_the_defaults_name_models_that_exist() -> None:
    by_memory = sorted((row for row in GPUS if not row.name_parts), key=lambda row: row.least_memory_bytes)
    for name in models.list_names():
        batches = [row.choose_batch(name) for row in by_memory]
        assert batches == sorted(batches), name
    assert {name for row in (*GPUS, CPU) for name in row.batches} <= set(models.list_names())


# ---- frameworks, strategies, combinations


def test_the_allocator_is_part_of_the_work_and_not_of_the_parity_check() -> None:
    with pytest.raises(InputError, match=r"--allocator: unknown value 'jemalloc'\n  valid: tuned, system"):
        SETTINGS["allocator"].read_text("jemalloc", "--allocator")
    (tuned,), (system,) = plan().configs, plan(allocator="system").configs
    assert (tuned.allocator, system.allocator) == ("tuned", "system")
    assert tuned.key != system.key
    assert system.reset_training() == tuned.reset_training()
    assert "allocator" not in make_spec(plan())["series"][0]  # so that older runs continue
    assert make_spec(plan(allocator="system"))["series"][0]["allocator"] == "system"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        *(
            ({"models": (text,)}, f"models: {text!r}: batch {text[6:]} is too small; valid: 1 or more")
            for text in ("mnist:0", "mnist:-4")
        ),
        *(
            ({"models": (text,)}, f"models: {text!r} ends with a colon; valid: NAME, NAME:BATCH or NAME:auto")
            for text in ("mnist:", "MNIST:", "timm:resnet18:", "my_package.module:", "torchvision:")
        ),
        *(({"models": (text,)}, f"unknown model {text!r}") for text in ("mnist:--1", "mnist:²", "mnist:8x")),
        ({"models": ("inceptionv3",), "image_size": 32}, "Give a larger --image-size. Inception v3 needs at least 75."),
        ({"models": ("alexnte",)}, "unknown model 'alexnte'; did you mean 'alexnet'"),
        ({"models": ("resnet5",)}, "unknown model 'resnet5'; did you mean 'resnet50'"),
        ({"models": ("Inceptionv4",)}, "unknown model 'Inceptionv4'; did you mean 'inceptionv3'"),
        ({"models": ("mnist:64", "MNIST")}, "the same model, framework and strategy is requested twice"),
        ({"strategies": ("ps", "ps:1")}, "the same model, framework and strategy is requested twice"),
        ({"frameworks": ("torhc",)}, "unknown framework 'torhc'; did you mean 'torch'?\n  valid: torch"),
        *(
            ({"strategies": (text,)}, f"strategy {text!r}: only ps and ps-async take a number of servers, 1 or more")
            for text in ("allreduce:2", "ps:0", "ps:-1", "ps:two", "ps:²")
        ),
        ({"strategies": ("ps:65537",)}, "strategy 'ps:65537': too many servers; valid: 1 … 65536"),
        ({"precision": "tf32"}, "'tf32' needs an NVIDIA GPU"),
        ({"batch": AUTO, "scaling": "strong"}, "batch auto: under strong scaling"),
        ({"max_batch": 64}, "max batch 64: no batch is searched; valid with --batch auto"),
        ({"servers": 2}, "servers 2: no strategy here has servers; valid with ps, ps-async"),
        ({"max_devices": 128}, "max devices 128: this machine has 4 CPU devices (4 cores, 1 each); valid: 1 … 4"),
        ({"devices": (1, 5)}, "devices 5: this machine has 4 CPU devices (4 cores, 1 each); valid: 1 … 4"),
        (
            {"strategies": ("ps:2",), "server_placement": "apart", "max_devices": 4},
            "max devices 4: this machine has 4 CPU devices (4 cores, 1 each), of which the servers of ps:2 take 2;"
            " valid: 1 … 2",
        ),
        (
            {"strategies": ("ps:4",), "server_placement": "apart"},
            "ps:4 with servers apart needs 5 devices; this machine has 4 CPU devices",
        ),
        (
            {"models": ("mnist:1",), "scaling": "strong"},
            "strong scaling: a global batch of 1 (mnist) cannot be split evenly over 2, 4 devices",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused(settings: dict[str, Any], message: str) -> None:
    assert message in refusal(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "fp16", "strategies": ("ps",)}, "strategy 'ps' has no precision 'fp16'"),
        ({"precision": "fp16", "strategies": ("ps-async",)}, "strategy 'ps-async' has no precision 'fp16'"),
        ({"batch": AUTO, "ranks_per_gpu": 2}, "batch auto: 2 workers share the memory of a GPU"),
    ],
)
def test_what_cannot_be_measured_on_gpus_is_refused(settings: dict[str, Any], message: str) -> None:
    assert message in refusal(gpus(), **settings)


@pytest.mark.parametrize("precision", ["tf32", "fp16"])
def test_gpus_have_further_precisions(precision: str) -> None:
    assert plan(gpus(), precision=precision).configs[0].precision == precision


def test_what_a_framework_lacks_is_refused_with_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = replace(FRAMEWORKS["torch"], name="other", engines={"local": "", "allreduce": ""}, compiles=False)
    monkeypatch.setitem(FRAMEWORKS, "other", lacking)
    assert refusal(frameworks=("other",), strategies=("ps",)) == "other has no strategy 'ps'; it has local, allreduce"
    assert refusal(frameworks=("other",), compile=True) == "other has no compiler; leave --compile out"


def test_an_unknown_name_is_answered_with_all() -> None:
    message = refusal(models=("alexnte",))
    assert "valid: alexnet, inceptionv3" in message
    assert "torchvision:NAME, timm:NAME, my_package.module:function" in message
    message = refusal(strategies=("all-reduce",))
    assert message.startswith("unknown strategy 'all-reduce'; did you mean 'allreduce'")
    assert message.endswith("valid: local, allreduce, ps, ps-async, sharded, independent")


# ---- the batch auto


def test_a_run_with_another_largest_batch_is_another_run() -> None:
    assert make_spec(plan(batch=AUTO)) != make_spec(plan(batch=AUTO, max_batch=64))
    assert "max_batch" not in make_spec(plan())


# ---- ladders


@pytest.mark.parametrize(
    ("available", "settings", "ladders"),
    [
        (cpus(1), {}, [(1,)]),
        (cpus(2), {}, [(1, 2)]),
        (cpus(3), {}, [(1, 2, 3)]),
        (cpus(8), {}, [(1, 2, 4, 8)]),
        (cpus(12), {}, [(1, 2, 4, 8, 12)]),
        (cpus(6), {"max_devices": 3}, [(1, 2, 3)]),
        (cpus(6), {"devices": (2, 5)}, [(2, 5)]),
        (cpus(4), {"models": ("mnist:7",)}, [(1, 2, 4)]),  # weak scaling takes any batch
        (cpus(4), {"strategies": ("local", "allreduce")}, [(1,), (1, 2, 4)]),
        (cpus(4), {"strategies": ("ps:2",)}, [(1, 2, 4)]),
        (
            cpus(4),
            {"strategies": ("ps:1", "allreduce"), "server_placement": "apart"},
            [(1, 2, 3), (1, 2, 4)],
        ),
        (gpus(4), {"strategies": ("ps:2",), "server_placement": "apart"}, [(1, 2, 4)]),
    ],
)
def test_ladders(available: AvailableDevices, settings: dict[str, Any], ladders: list[tuple[int, ...]]) -> None:
    assert list(plan(available, **settings).ladders.values()) == ladders


def test_strong_scaling_needs_a_batch_that_every_count_divides() -> None:
    made = plan(models=("mnist:64",), scaling="strong")
    assert [made.configs[0].batch_per_device(n) for n in made.ladders[made.configs[0]]] == [64, 32, 16]
    message = refusal(models=("mnist:6",), scaling="strong")
    assert "a global batch of 6 (mnist) cannot be split evenly over 4 devices" in message


# ---- order


def test_trials_are_interleaved_over_the_ladder_and_every_other_round_goes_backwards() -> None:
    made = plan(cpus(2), models=("mnist:1", "mnist:2"), repeats=3)
    order = [(trial.config.batch, trial.devices, trial.repeat) for trial in made.list_trials()]
    forwards = [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert [(batch, devices) for batch, devices, _ in order] == [*forwards, *reversed(forwards), *forwards]
    assert [repeat for *_, repeat in order] == [0] * 4 + [1] * 4 + [2] * 4
    trials = plan(models=("mnist", "alexnet"), strategies=("allreduce", "ps:1", "ps:2"), repeats=3).list_trials()
    assert len({trial.key for trial in trials}) == len(trials) == 2 * 3 * 3 * 3


# ---- estimates


def test_an_estimate_grows_with_the_steps_and_shrinks_with_a_split_batch(tmp_path: Path) -> None:
    few, many = plan(steps=10), plan(steps=1000)
    assert many.estimate_seconds(many.configs[0], 1) > few.estimate_seconds(few.configs[0], 1)
    strong = plan(models=("alexnet:64",), scaling="strong")
    assert strong.estimate_seconds(strong.configs[0], 4) < strong.estimate_seconds(strong.configs[0], 1)
    assert plan(budget=120.0).seconds == 120.0
    assert plan(models=("my.module:build:4",)).seconds > 0
    assert plan(batch=AUTO).seconds > plan().seconds
    write_mnist(tmp_path)
    assert plan(batch=AUTO, data=f"mnist:{tmp_path}", epochs=2).seconds > 0


def test_planning_imports_no_users_network() -> None:
    plan(models=("antigravity:build",))
    assert "antigravity" not in sys.modules
