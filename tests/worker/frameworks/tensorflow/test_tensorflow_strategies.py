"""TensorFlow trains: the same numbers as PyTorch, the same weights on every rank, those of one device with the whole
batch.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import trials
from trials import TrialOutcome, compute_parity, largest_difference

from trainscale.worker import models
from trainscale.worker.job import Measure
from trainscale.worker.models.weights import initial_weights

pytestmark = pytest.mark.framework

# Six steps of 16 images of float32: what a sum in another order changes stays far below this.
TOLERANCE = 2e-6
SYNCHRONOUS = ["allreduce", "ps:1", "ps:2"]
HERE = str(Path(__file__).parent)


def run_trial(folder: Path, strategy: str, devices: int = 1, **settings: object) -> TrialOutcome:
    """On a network of 18,490 parameters; sixteen images in all, unless told otherwise."""
    settings = {"models": (f"plain-graph:{16 // devices}",), "strategies": (strategy,), **settings}
    return trials.run_trial(folder, framework="tensorflow", devices=devices, forks=True, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole_batch(tmp_path_factory: pytest.TempPathFactory) -> TrialOutcome:
    """One device with the batch of two."""
    return run_trial(tmp_path_factory.mktemp("whole"), "local")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialOutcome]:
    return {strategy: run_trial(tmp_path_factory.mktemp("two"), strategy, devices=2) for strategy in SYNCHRONOUS}


def test_every_layer_kind_computes_what_pytorch_computes(tmp_path: Path) -> None:
    theirs = compute_parity("torch", "every-kind", "fp64")
    ours = compute_parity("tensorflow", "every-kind", "fp64")
    assert ours.facts["parameters"] == theirs.facts["parameters"]
    assert ours.facts["macs"] == theirs.facts["macs"]
    assert theirs.distance(ours, "before") == 0.0
    for part in ("logits", "losses", "after"):
        assert theirs.distance(ours, part) < 1e-10
    # In float64 a CPU computes channels-last whatever the layout: that of channels-first shows in float32.
    first = compute_parity("tensorflow", "every-kind", "fp32", layout="nchw")
    assert theirs.distance(first, "logits") < 1e-5


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_every_rank_of_a_synchronous_strategy_holds_the_same_weights(
    outcomes: dict[str, TrialOutcome], strategy: str
) -> None:
    outcome = outcomes[strategy]
    assert outcome.record.ok, outcome.record.failure
    assert len(outcome.weights) == 2
    assert largest_difference(*outcome.weights) == 0.0
    assert len({rank.weights_digest for rank in outcome.record.ranks}) == 1


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_two_devices_end_where_one_device_with_the_whole_batch_ends(
    outcomes: dict[str, TrialOutcome], whole_batch: TrialOutcome, strategy: str
) -> None:
    assert largest_difference(outcomes[strategy].weights[0], whole_batch.weights[0]) < TOLERANCE


def test_training_moves_the_weights(whole_batch: TrialOutcome) -> None:
    """Otherwise the tests above would prove nothing."""
    untrained = initial_weights(models.build("plain-graph", 16, 10), 1337)
    assert largest_difference(untrained, whole_batch.weights[0]) > 100 * TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize(
    ("strategy", "settings"),
    [
        ("allreduce", {"layout": "nchw"}),
        ("ps:1", {"layout": "nchw"}),
        ("local", {"compile": True}),
        ("ps-async:1", {}),
        pytest.param("allreduce", {"compile": True}, marks=pytest.mark.slow),
        pytest.param("ps:1", {"compile": True}, marks=pytest.mark.slow),
    ],
)
def test_one_process_is_the_same_training_by_whatever_engine_and_layout(
    tmp_path: Path, whole_batch: TrialOutcome, strategy: str, settings: dict[str, object]
) -> None:
    outcome = run_trial(tmp_path, strategy, **settings)
    assert outcome.record.ok, outcome.record.failure
    if strategy == "ps-async:1":  # goes on after its window
        assert outcome.record.ranks[0].last_loss == pytest.approx(whole_batch.record.ranks[0].last_loss, abs=1e-6)
    else:
        assert largest_difference(outcome.weights[0], whole_batch.weights[0]) < TOLERANCE


def test_servers_hold_everything_once_count_updates_and_end_by_themselves(outcomes: dict[str, TrialOutcome]) -> None:
    record = outcomes["ps:2"].record
    first, second = (server.bytes for server in record.servers)
    assert first + second == 4 * (record.parameters or 0)
    # One dense layer has nine tenths of the parameters; the rest is on the other server.
    assert sorted((first, second)) == [4 * (record.parameters or 0) - 65536, 65536]
    assert [server.updates for server in record.servers] == [6, 6]


@pytest.mark.slow
def test_asynchronous_servers_lower_the_loss_and_share_the_weights_by_size(tmp_path: Path) -> None:
    outcome = run_trial(tmp_path, "ps-async:2", devices=2, measure=Measure(2, 40))
    assert outcome.record.ok, outcome.record.failure
    for rank in outcome.record.ranks:
        assert rank.first_loss is not None
        assert rank.last_loss is not None
        assert rank.last_loss < rank.first_loss
    assert max(server.bytes for server in outcome.record.servers) == 65536
    assert all(server.updates >= 2 * 42 for server in outcome.record.servers)


@pytest.mark.slow
def test_independent_workers_exchange_nothing(tmp_path: Path) -> None:
    """Each ends where it would have ended alone, on its own images."""
    both = run_trial(tmp_path / "both", "independent", devices=2)
    alone = run_trial(tmp_path / "alone", "independent", models=("plain-graph:8",))
    assert both.record.ok, both.record.failure
    assert largest_difference(*both.weights) > 100 * TOLERANCE
    # Ranks may go on after their window while others finish, so losses are compared, not final weights.
    assert both.record.ranks[0].last_loss == alone.record.ranks[0].last_loss


@pytest.mark.parametrize("strategy", ["allreduce", pytest.param("ps:2", marks=pytest.mark.slow)])
def test_bfloat16_trains_alike_on_all_ranks(tmp_path: Path, strategy: str) -> None:
    settings = {"models": ("every-kind:4",), "image_size": 33, "classes": 7}
    outcome = run_trial(tmp_path, strategy, devices=2, precision="bf16", **settings)
    assert outcome.record.ok, outcome.record.failure
    assert largest_difference(*outcome.weights) == 0.0


@pytest.mark.parametrize("strategy", ["allreduce", pytest.param("ps:2", marks=pytest.mark.slow)])
def test_a_users_own_network_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str) -> None:
    monkeypatch.setattr(trials, "SUPPORT", HERE)
    outcome = run_trial(tmp_path, strategy, devices=2, models=("tensorflow_nets:plain:8",))
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.parameters == 3 * 3 * 3 * 8 + 8 + 8 + 8 * 10
    assert largest_difference(*outcome.weights) == 0.0
    assert all(rank.last_loss < rank.first_loss for rank in outcome.record.ranks)  # type: ignore[operator]


@pytest.mark.parametrize("strategy", ["allreduce", "ps:1", pytest.param("ps-async:1", marks=pytest.mark.slow)])
def test_a_rank_that_fails_ends_the_trial_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str
) -> None:
    monkeypatch.setattr(trials, "SUPPORT", HERE)
    outcome = run_trial(tmp_path, strategy, devices=2, models=("tensorflow_nets:raises:8",))
    assert not outcome.record.ok
    assert outcome.record.failure is not None
    assert outcome.record.failure.kind == "crash"
    assert outcome.record.failure.message == "rank 1: ValueError: the network of rank 1 does not like this image"
