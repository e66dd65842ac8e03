"""Mistakes that only a close look finds are found, and the check that finds each is known."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import graph_nets
import mistaken_frameworks
import pytest

from trainscale.cluster.hosts import find_local_devices
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure import parity
from trainscale.measure.context import RunContext
from trainscale.record.parity import FAILED, PROVEN, Verdict
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.events import FrameworkFacts
from trainscale.worker.inspection.host import read_machine

pytestmark = [pytest.mark.framework, pytest.mark.slow]


@pytest.fixture(autouse=True, scope="module")
def _shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The right framework computes its numbers once for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def prove(mistake: str, model: str, mistaken_is_reference: bool = False) -> list[Verdict]:
    graph_nets.register()
    frameworks = ["torch", mistaken_frameworks.register(mistake)]
    if mistaken_is_reference:
        frameworks.reverse()
    experiment = Experiment.of(
        models=(f"{model}:4",), frameworks=tuple(frameworks), strategies=("local",), layout="nchw"
    )
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    facts = {name: FrameworkFacts(True, versions={"torch": "1"}) for name in frameworks}
    context = RunContext(plan, LocalLauncher(), dict.fromkeys(frameworks, sys.executable), facts)
    return parity.prove(context, plan.configs, lambda _: None)


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
def test_a_mistake_is_found_by(mistake: str, model: str, check: str) -> None:
    right, mistaken = prove(mistake, model)
    assert right.state == PROVEN
    assert mistaken.state == FAILED
    assert mistaken.reason.startswith(f"{check}: ")


@pytest.mark.parametrize("mistake", ["hidden_bf16", "other_dropout", "wrong_pixels"])
def test_a_mistake_of_the_reference_is_noticed_too(mistake: str) -> None:
    verdicts = prove(mistake, "with-biases", mistaken_is_reference=True)
    assert FAILED in [verdict.state for verdict in verdicts]
