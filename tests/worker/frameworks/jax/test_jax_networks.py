"""A user's own network in JAX: a tree of arrays and a function. And what is seen of networks that go wrong."""

from __future__ import annotations

from pathlib import Path

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


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    monkeypatch.setattr(trials, "SUPPORT", HERE)  # where ranks find jax_nets
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    assert marked(str(tmp_path)) == []
    assert forked_processes() == []


def train(folder: Path, network: str) -> TrialOutcome:
    return run_trial(
        folder,
        framework="jax",
        devices=2,
        forks=True,
        strategies=("allreduce",),
        models=(f"jax_nets:{network}:4",),
        layout="nhwc",
        measure=Measure(3, 6),
    )


def probe(*names: str) -> dict[str, object]:
    configs = [
        Config("jax", f"jax_nets:{name}", 4, "local", image_size=16, classes=10, layout="nhwc") for name in names
    ]
    facts = run_probes({"jax": python_for("jax")}, [ProbeRequest("jax", configs, [HERE])])["jax"]
    assert facts.is_available, facts
    return dict(facts.models)


def test_a_network_of_ones_own_trains_alike_on_all_ranks(tmp_path: Path) -> None:
    outcome = train(tmp_path, "two_heads")
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.parameters == 3 * 3 * 3 * 8 + 2 * 8 * 10
    assert sorted(outcome.weights[0]) == ["conv.kernel", "heads.0", "heads.1"]
    assert len({rank.weights_digest for rank in outcome.record.ranks}) == 1


def test_the_probe_counts_a_network_and_says_what_is_wrong_with_another() -> None:
    models = probe("two_heads", "not_a_pair", "whole_numbers", "missing")
    assert models["jax_nets:two_heads"] == {"parameters": 3 * 3 * 3 * 8 + 2 * 8 * 10}
    assert "returned str, not a pair (parameters, apply)" in str(models["jax_nets:not_a_pair"])
    assert "['w'] is not an array of floats" in str(models["jax_nets:whole_numbers"])
    assert "has no attribute 'missing'" in str(models["jax_nets:missing"])


def test_an_exception_in_one_rank_is_a_crash_of_that_rank(tmp_path: Path) -> None:
    failure = train(tmp_path, "raises").record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", 1)
    assert "does not like this image" in failure.message


def test_a_killed_worker_is_blamed_and_not_those_who_lost_it(tmp_path: Path) -> None:
    failure = train(tmp_path, "killed").record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", 1)
    assert "SIGKILL" in failure.message
