"""Strategies train: the same weights on every rank, and those of one device with the whole batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import trials
from trials import TrialOutcome, largest_difference

from trainscale.worker.job import Measure

pytestmark = pytest.mark.framework

# Ten steps of 16 images of float32: what a sum in another order changes stays far below this.
TOLERANCE = 2e-6

SYNCHRONOUS = ["allreduce", "ps:1", "ps:2", "sharded"]


def run_trial(folder: Path, **settings: object) -> TrialOutcome:
    return trials.run_trial(folder, forks=True, **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole_batch(tmp_path_factory: pytest.TempPathFactory) -> TrialOutcome:
    """One device with the batch of two."""
    return run_trial(
        tmp_path_factory.mktemp("whole"), strategies=("local",), models=("nets:plain:16",), measure=Measure(2, 8)
    )


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialOutcome]:
    return {
        strategy: run_trial(tmp_path_factory.mktemp("two"), devices=2, strategies=(strategy,), measure=Measure(2, 8))
        for strategy in SYNCHRONOUS
    }


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


def test_training_moves_the_weights(whole_batch: TrialOutcome, tmp_path: Path) -> None:
    """Otherwise the tests above would prove nothing."""
    shorter = run_trial(tmp_path, strategies=("local",), models=("nets:plain:16",), measure=Measure(2, 2))
    assert largest_difference(shorter.weights[0], whole_batch.weights[0]) > 100 * TOLERANCE


@pytest.mark.parametrize("servers", ["ps:1", "ps:2"])
def test_parameter_servers_equal_allreduce_to_the_last_bit(outcomes: dict[str, TrialOutcome], servers: str) -> None:
    assert largest_difference(outcomes[servers].weights[0], outcomes["allreduce"].weights[0]) == 0.0


def test_parameters_are_split_over_the_servers_by_size_and_servers_end_by_themselves(
    outcomes: dict[str, TrialOutcome],
) -> None:
    record = outcomes["ps:2"].record
    first, second = (server.bytes for server in record.servers)
    assert abs(first - second) <= 4
    assert first + second == 4 * (record.parameters or 0)
    assert [server.updates for server in record.servers] == [10, 10]


def test_asynchronous_servers_lower_the_loss_and_count_staleness(tmp_path: Path) -> None:
    outcome = run_trial(tmp_path, devices=2, strategies=("ps-async:2",), measure=Measure(2, 60), seed=3)
    assert outcome.record.ok, outcome.record.failure
    for rank in outcome.record.ranks:
        assert rank.first_loss is not None
        assert rank.last_loss is not None
        assert rank.last_loss < rank.first_loss
    for server in outcome.record.servers:
        assert server.updates >= 2 * 62
        assert server.staleness_max >= 1


@pytest.mark.slow
def test_independent_workers_exchange_nothing(tmp_path: Path) -> None:
    """Each ends where it would have ended alone, on its own images."""
    both = run_trial(tmp_path / "both", devices=2, strategies=("independent",), measure=Measure(2, 8))
    alone = run_trial(tmp_path / "alone", strategies=("independent",), measure=Measure(2, 8))
    assert both.record.ok, both.record.failure
    assert largest_difference(*both.weights) > 100 * TOLERANCE
    # Ranks may go on after their window while others finish, so losses are compared, not final weights.
    assert both.record.ranks[0].last_loss == alone.record.ranks[0].last_loss


@pytest.mark.parametrize("settings", [{"precision": "bf16"}, {"precision": "fp16"}, {"layout": "nhwc"}])
@pytest.mark.parametrize("strategy", ["allreduce", "sharded"])
def test_precisions_and_layouts_train_alike_on_all_ranks(
    tmp_path: Path, settings: dict[str, str], strategy: str
) -> None:
    outcome = run_trial(tmp_path, devices=2, strategies=(strategy,), **settings)
    assert outcome.record.ok, outcome.record.failure
    assert largest_difference(*outcome.weights) == 0.0


@pytest.mark.parametrize("settings", [{"precision": "bf16"}, {"layout": "nhwc"}])
def test_parameter_servers_train_in_other_precisions_and_layouts(tmp_path: Path, settings: dict[str, str]) -> None:
    outcome = run_trial(tmp_path, devices=2, strategies=("ps:2",), **settings)
    assert outcome.record.ok, outcome.record.failure
    assert largest_difference(*outcome.weights) == 0.0


def test_channels_last_is_the_same_training(tmp_path: Path, whole_batch: TrialOutcome) -> None:
    last = run_trial(tmp_path, strategies=("local",), models=("nets:plain:16",), measure=Measure(2, 8), layout="nhwc")
    assert largest_difference(last.weights[0], whole_batch.weights[0]) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["local", "allreduce"])
def test_a_compiled_network_is_the_same_training(tmp_path: Path, whole_batch: TrialOutcome, strategy: str) -> None:
    devices = 1 if strategy == "local" else 2
    compiled = run_trial(
        tmp_path,
        devices=devices,
        strategies=(strategy,),
        models=(f"nets:plain:{16 // devices}",),
        measure=Measure(2, 8),
        compile=True,
        timeout_seconds=280.0,
        stall_seconds=280.0,
    )
    assert compiled.record.ok, compiled.record.failure
    assert largest_difference(compiled.weights[0], whole_batch.weights[0]) < TOLERANCE


def test_servers_apart_have_cores_of_their_own(tmp_path: Path) -> None:
    outcome = run_trial(tmp_path, strategies=("ps:1",), server_placement="apart")
    assert outcome.record.ok, outcome.record.failure


@pytest.mark.slow
def test_a_network_with_an_auxiliary_head_trains(tmp_path: Path) -> None:
    outcome = run_trial(
        tmp_path, strategies=("local",), models=("inceptionv3-aux:2",), image_size=299, measure=Measure(2, 2)
    )
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.parameters == 24_371_444  # 10 classes instead of 1000 in both heads


def test_a_rank_ends_after_its_exit_handlers_without_tearing_down_the_interpreter(tmp_path: Path) -> None:
    outcome = run_trial(tmp_path, strategies=("local",), models=("nets:with_exit_handler:8",))
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.notes == ()
    (log,) = (tmp_path / "logs").iterdir()
    assert log.read_text().splitlines()[-1] == "exit handlers ran"
