"""MXNet's strategies train: the same weights on every rank, and those of one device with the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
from trials import TrialOutcome, largest_difference, run_trial

from trainscale.worker.job import Measure

pytestmark = pytest.mark.framework

# Ten steps of 16 images of float32: what a sum in another order changes stays far below this.
TOLERANCE = 2e-6

SYNCHRONOUS = ["ps:1", "ps:2"]


def run(folder: Path, strategy: str, devices: int = 1, batch: int = 8, steps: int = 8) -> TrialOutcome:
    outcome = run_trial(
        folder,
        framework="mxnet",
        devices=devices,
        strategies=(strategy,),
        models=(f"plain-graph:{batch}",),
        measure=Measure(2, steps),
    )
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.notes == ()  # servers and scheduler have ended by themselves, and in order
    return outcome


@pytest.fixture(scope="module")
def whole_batch(tmp_path_factory: pytest.TempPathFactory) -> TrialOutcome:
    """One device with the batch of two."""
    return run(tmp_path_factory.mktemp("whole"), "local", batch=16)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialOutcome]:
    return {strategy: run(tmp_path_factory.mktemp("two"), strategy, devices=2) for strategy in SYNCHRONOUS}


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_every_rank_holds_the_same_weights(outcomes: dict[str, TrialOutcome], strategy: str) -> None:
    outcome = outcomes[strategy]
    assert len(outcome.weights) == 2
    assert largest_difference(*outcome.weights) == 0.0
    assert len({rank.weights_digest for rank in outcome.record.ranks}) == 1


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_two_devices_end_where_one_device_with_the_whole_batch_ends(
    outcomes: dict[str, TrialOutcome], whole_batch: TrialOutcome, strategy: str
) -> None:
    assert largest_difference(outcomes[strategy].weights[0], whole_batch.weights[0]) < TOLERANCE


def test_one_device_with_a_server_trains_as_one_without(tmp_path: Path, whole_batch: TrialOutcome) -> None:
    served = run(tmp_path, "ps:1", batch=16)
    assert largest_difference(served.weights[0], whole_batch.weights[0]) < TOLERANCE


def test_training_moves_the_weights(tmp_path: Path, whole_batch: TrialOutcome) -> None:
    """Otherwise the tests above would prove nothing."""
    shorter = run(tmp_path, "local", batch=16, steps=2)
    assert largest_difference(shorter.weights[0], whole_batch.weights[0]) > 100 * TOLERANCE


def test_servers_share_the_weights_and_count_their_updates(outcomes: dict[str, TrialOutcome]) -> None:
    record = outcomes["ps:2"].record
    first, second = (server.bytes for server in record.servers)
    assert first + second == 4 * (record.parameters or 0)
    assert abs(first - second) < 0.2 * (first + second)
    assert [server.updates for server in record.servers] == [10, 10]


@pytest.mark.parametrize("devices", [1, 2])
def test_asynchronous_servers_lower_the_loss(tmp_path: Path, devices: int) -> None:
    record = run(tmp_path, "ps-async:2", devices, steps=60).record
    for rank in record.ranks:
        assert rank.first_loss is not None
        assert rank.last_loss is not None
        assert rank.last_loss < rank.first_loss
    for server in record.servers:
        assert server.updates >= devices * 62


def test_independent_workers_exchange_nothing(tmp_path: Path) -> None:
    """Each ends where it would have ended alone, on its own images."""
    both = run(tmp_path / "both", "independent", devices=2)
    alone = run(tmp_path / "alone", "independent")
    assert largest_difference(*both.weights) > 100 * TOLERANCE
    # Ranks may go on after their window while others finish, so losses are compared, not final weights.
    assert both.record.ranks[0].last_loss == alone.record.ranks[0].last_loss
