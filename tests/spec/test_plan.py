"""A plan for an experiment and the available devices: configs, ladders, the order of trials, or one clear refusal."""

import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from small_sets import write_mnist
from this_machine import GIB, cpus, gpus, plan, refusal

from trainscale.cli.parser import Parser, add_experiment, read_experiment
from trainscale.errors import InputError
from trainscale.measure.context import make_spec
from trainscale.spec.choices import CPU, GPUS, split_model
from trainscale.spec.config import AUTO
from trainscale.spec.devices import AvailableDevices
from trainscale.spec.groups import SETTINGS
from trainscale.spec.plan import make_plan
from trainscale.worker import models
from trainscale.worker.frameworks.catalog import FRAMEWORKS

# ---- models and batches


@dataclass
class PlanLine:
    devices: AvailableDevices
    flags: list[str]
    expected: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


def read_plans() -> list[PlanLine]:
    lines = []
    for line in Path(__file__).with_name("plans.txt").read_text().splitlines():
        mark, text = line[:1], line[2:]
        if mark == "@":
            count, kind = text.split()
            devices = (cpus if kind == "cpus" else gpus)(int(count))
        elif mark == "$":
            flags = shlex.split(text)
            lines.append(PlanLine(devices, flags if "--models" in flags else ["--models=mnist", *flags]))
        elif mark == "!":
            lines[-1].messages.append(text)
        elif mark == " ":
            lines[-1].expected.append(text)
    return lines


@pytest.mark.parametrize("line", read_plans(), ids=lambda line: shlex.join(line.flags))
def test_flags_become_configs_with_their_ladders_or_are_refused(line: PlanLine) -> None:
    parser = Parser("plan")
    add_experiment(parser)
    experiment = read_experiment(parser.read(line.flags))
    if line.messages:
        with pytest.raises(InputError) as caught:
            make_plan(experiment, line.devices)
        assert [text for text in line.messages if text not in str(caught.value)] == []
        return
    made = make_plan(experiment, line.devices)
    for text in line.expected:
        names, _, values = text.partition(": ")
        rows = tuple(made.ladders.values())
        if names != "ladder":
            rows = tuple(tuple(getattr(config, name) for name in names.split()) for config in made.configs)
        assert ", ".join(" ".join(map(str, row)) for row in rows) == values


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
