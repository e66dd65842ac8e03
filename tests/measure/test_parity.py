"""Parity is proven between builds of the same network, and every known way to be wrong is found."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import graph_nets
import mistaken_frameworks
import pytest
from forked_frameworks import launcher_for

from trainscale.cluster.hosts import find_local_devices
from trainscale.launch.launchers.base import Launcher
from trainscale.measure import parity
from trainscale.measure.context import RunContext
from trainscale.record.parity import FAILED, PROVEN, UNPROVEN, Check, Verdict, read_parity, write_parity
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.events import FrameworkFacts
from trainscale.worker.inspection.host import read_machine


@pytest.fixture(autouse=True, scope="module")
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The right framework computes its numbers once for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def plan_for(*frameworks: str, model: str = "every-kind", **settings: object) -> Plan:
    graph_nets.register()
    settings = {"layout": "nchw", **settings}
    experiment = Experiment.of(models=(f"{model}:4",), frameworks=frameworks, strategies=("local",), **settings)  # type: ignore[arg-type]
    return make_plan(experiment, find_local_devices(read_machine(), experiment))


def torch_launcher() -> Launcher:
    """The processes are forked from one with PyTorch, of which all mistaken frameworks are made."""
    return launcher_for(sys.executable, "torch", "fp64")


def prove(plan: Plan, lines: list[str] | None = None, fresh: bool = False, version: str = "1") -> list[Verdict]:
    names = {config.framework for config in plan.configs}
    facts = {name: FrameworkFacts(True, versions={"torch": version}) for name in names}
    context = RunContext(plan, torch_launcher(), dict.fromkeys(names, sys.executable), facts)
    return parity.prove(context, plan.configs, (lines if lines is not None else []).append, fresh)


@pytest.mark.framework
@pytest.mark.parametrize(
    ("mistake", "found_in"),
    [
        pytest.param("wider", "parameters: 16,516 against 16,506", marks=pytest.mark.slow),
        pytest.param("other_init", "initial weights: differ by 1.0e-12", marks=pytest.mark.slow),
        pytest.param("transposed", "logits, float64: differ by", marks=pytest.mark.slow),
        ("other_eps", "logits, float64: differ by"),
        ("no_decay", "weights after 3 steps, float64: differ by"),
    ],
)
def test_a_mistake_is_found_and_named(mistake: str, found_in: str) -> None:
    name = mistaken_frameworks.register(mistake)
    right, mistaken = prove(plan_for("torch", name))
    assert right.state == PROVEN
    assert mistaken.state == FAILED
    assert mistaken.reason.startswith(found_in)
    assert mistaken.warning.startswith("not the same work as torch nchw: ")


@pytest.mark.framework
@pytest.mark.slow
@pytest.mark.parametrize(
    ("mistake", "model", "check"),
    [
        ("nearly_the_eps", "with-biases", "logits, float64"),
        ("other_momentum", "with-biases", "running statistics, float64"),
        ("other_momentum_in_fp32", "with-biases", "first running statistics, float32"),
        ("other_dropout", "with-biases", "dropout rates"),
        ("unscaled_dropout", "with-biases", "scale of what is kept"),
        ("frozen_biases", "with-biases", "weights after 3 steps, float64"),
        ("missing_biases", "with-biases", "running statistics, float64"),
        ("relu6", "with-biases", "logits, float64"),
        ("relu6", "mnist", "logits, float64"),
        ("wrong_pixels", "with-biases", "8-bit images"),
        ("hidden_bf16", "mnist", "first loss, float32"),
        ("hidden_bf16", "with-biases", "first running statistics, float32"),
        ("hidden_tf32", "mnist", "logits, float32"),
        ("hidden_tf32", "with-biases", "logits, float32"),
        ("no_update_in_fp32", "mnist", "closest tensor after the first step, float32"),
        ("frozen_scale_in_fp32", "with-biases", "each tensor after the first step, float32"),
    ],
)
def test_a_mistake_that_only_a_close_look_finds_is_found_by(mistake: str, model: str, check: str) -> None:
    right, mistaken = prove(plan_for("torch", mistaken_frameworks.register(mistake), model=model))
    assert (right.state, mistaken.state) == (PROVEN, FAILED)
    assert mistaken.reason.startswith(f"{check}: ")


@pytest.mark.framework
@pytest.mark.slow
@pytest.mark.parametrize("mistake", ["hidden_bf16", "other_dropout", "wrong_pixels"])
def test_a_mistake_of_the_reference_is_noticed_too(mistake: str) -> None:
    verdicts = prove(plan_for(mistaken_frameworks.register(mistake), "torch", model="with-biases"))
    assert FAILED in [verdict.state for verdict in verdicts]


@pytest.mark.framework
@pytest.mark.slow
def test_what_was_computed_once_is_remembered_until_a_version_changes(own_cache: Path) -> None:
    name = mistaken_frameworks.register("no_decay")
    plan = plan_for("torch", name)
    first, second, newer, anew = ([] for _ in range(4))
    verdicts = prove(plan, first)
    assert prove(plan, second) == verdicts
    prove(plan, newer, version="2")
    prove(plan, anew, fresh=True)
    assert first
    assert second == []
    assert len(newer) == len(anew) == len(first)


@pytest.mark.framework
@pytest.mark.slow
def test_remembered_numbers_that_are_damaged_are_not_believed(own_cache: Path) -> None:
    name = mistaken_frameworks.register("other_eps")
    plan = plan_for("torch", name)
    prove(plan)
    first, second, *_ = (own_cache / "trainscale" / "parity").iterdir()
    first.write_text("{")
    second.write_bytes(second.read_bytes()[:-8])
    lines: list[str] = []
    assert [verdict.state for verdict in prove(plan, lines)] == [PROVEN, FAILED]
    assert lines


@pytest.mark.framework
def test_a_framework_that_dies_leaves_the_others_proven(tmp_path: Path) -> None:
    name = mistaken_frameworks.register("dies")
    lines: list[str] = []
    verdicts = prove(plan_for(name, "torch"), lines)
    assert [verdict.state for verdict in verdicts] == [UNPROVEN, PROVEN]
    assert "exit code 7" in verdicts[0].reason
    assert any("exit code 7" in line for line in lines)
    write_parity(tmp_path, verdicts)
    assert list(read_parity(tmp_path)) == verdicts


@pytest.mark.framework
@pytest.mark.slow
def test_two_layouts_of_one_framework_are_the_same_work() -> None:
    configs = [plan_for("torch", layout=layout).configs[0] for layout in ("nchw", "nhwc")]
    facts = {"torch": FrameworkFacts(True)}
    context = RunContext(plan_for("torch"), torch_launcher(), {"torch": sys.executable}, facts)
    verdicts = parity.prove(context, configs, lambda _: None)
    assert [(verdict.layout, verdict.state) for verdict in verdicts] == [("nchw", PROVEN), ("nhwc", PROVEN)]


def test_one_framework_alone_is_no_comparison() -> None:
    assert parity.group_comparisons(plan_for("torch").configs) == []
    assert prove(plan_for("torch")) == []


def test_verdicts_are_kept_beside_the_journal(tmp_path: Path) -> None:
    checks = (Check("parameters", 0.0, 0.0, "16,506"), Check("logits, float64", None, 1e-9, "no number"))
    build = ("every-kind", 32, 10, "nchw", "cpu", "torch nchw")
    verdicts = [
        Verdict("torch", *build, PROVEN, checks[:1]),
        Verdict("torch-wider", *build, FAILED, checks, "parameters: 16,516 against 16,506"),
        Verdict("torch-dies", *build, UNPROVEN, (), "exit code 7"),
    ]
    write_parity(tmp_path, verdicts)
    assert list(read_parity(tmp_path)) == verdicts
    assert json.loads((tmp_path / "parity.json").read_text())["schema"] == 1
    assert read_parity(tmp_path / "elsewhere") == ()
