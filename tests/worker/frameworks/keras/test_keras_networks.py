"""A user's own network in Keras, on each backend. And what is seen of networks that go wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trials
from environments import python_for
from forked_frameworks import forked_processes
from processes import MARK, marked
from trials import TrialOutcome, run_trial

from trainscale.worker.config import Config
from trainscale.worker.inspection.probe import ProbeRequest, run_probes
from trainscale.worker.job import Measure

pytestmark = pytest.mark.framework

HERE = str(Path(__file__).parent)
BACKENDS = ["keras-jax", "keras-tensorflow", "keras-torch"]
PLAIN_PARAMETERS = 3 * 3 * 3 * 8 + 8 + 2 * 8 + 8 * 10 + 10


def slow(framework: str) -> Any:
    return pytest.param(framework, marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(trials, "SUPPORT", HERE)  # where ranks find keras_nets
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    assert marked(str(tmp_path)) == []
    assert forked_processes() == []


def train(folder: Path, framework: str, network: str) -> TrialOutcome:
    return run_trial(
        folder,
        framework=framework,
        devices=2,
        forks=True,
        strategies=("allreduce",),
        models=(f"keras_nets:{network}:4",),
        measure=Measure(2, 2),
    )


def probe(framework: str, *models: str) -> dict[str, object]:
    configs = [Config(framework, model, 4, "local", image_size=32, classes=10, layout="nhwc") for model in models]
    request = ProbeRequest(framework, configs, [HERE])
    facts = run_probes({framework: python_for(framework)}, [request])[framework]
    assert facts.is_available, facts
    assert facts.version == facts.versions["keras"]
    return dict(facts.models)


@pytest.mark.parametrize("framework", ["keras-tensorflow", slow("keras-jax"), slow("keras-torch")])
def test_a_network_of_ones_own_trains_alike_on_all_ranks(tmp_path: Path, framework: str) -> None:
    outcome = train(tmp_path, framework, "plain")
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.parameters == PLAIN_PARAMETERS
    assert len(outcome.weights[0]) == 6
    assert len({rank.weights_digest for rank in outcome.record.ranks}) == 1


@pytest.mark.slow
@pytest.mark.parametrize("framework", BACKENDS)
def test_an_exception_in_one_rank_is_a_crash_of_that_rank(tmp_path: Path, framework: str) -> None:
    failure = train(tmp_path, framework, "raises").record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", 1)
    assert any("does not like this image" in line for line in (failure.message, *failure.tail))


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["keras-torch"])
def test_the_probe_counts_a_network_and_says_what_is_wrong_with_another(framework: str) -> None:
    models = probe(
        framework,
        "keras:MobileNetV2",
        *(f"keras_nets:{name}" for name in ("plain", "of_a_class", "not_a_model", "too_large", "missing")),
    )
    assert models["keras:MobileNetV2"] == {"parameters": 2_236_682}
    assert models["keras_nets:plain"] == {"parameters": PLAIN_PARAMETERS}
    assert models["keras_nets:of_a_class"] == {"parameters": 32 * 32 * 3 * 10}
    assert "returned str, not a keras.Model" in str(models["keras_nets:not_a_model"])
    assert "incompatible" in str(models["keras_nets:too_large"])
    assert "has no attribute 'missing'" in str(models["keras_nets:missing"])
