"""JAX trains: the same numbers as PyTorch, the same weights on every rank, and those of one device with the whole
batch.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from trials import Computed, TrialOutcome, compute_parity, largest_difference, run_trial

from trainscale.worker.job import Measure

pytestmark = pytest.mark.framework

# Ten steps of 16 images of float32: what a sum in another order changes stays far below this.
TOLERANCE = 2e-6

SYNCHRONOUS = ["allreduce", "sharded"]


def train(folder: Path, strategy: str, batch: int = 8, devices: int = 1, **settings: object) -> TrialOutcome:
    settings = {"measure": Measure(2, 8), "models": (f"plain-graph:{batch}",), **settings}
    outcome = run_trial(folder, framework="jax", devices=devices, strategies=(strategy,), forks=True, **settings)  # type: ignore[arg-type]
    assert outcome.record.ok, outcome.record.failure
    return outcome


@pytest.fixture(scope="module")
def whole_batch(tmp_path_factory: pytest.TempPathFactory) -> TrialOutcome:
    """One device with the batch of two."""
    return train(tmp_path_factory.mktemp("whole"), "local", batch=16)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrialOutcome]:
    return {strategy: train(tmp_path_factory.mktemp("two"), strategy, devices=2) for strategy in SYNCHRONOUS}


@pytest.fixture(scope="module")
def pytorch(tmp_path_factory: pytest.TempPathFactory) -> Computed:
    return compute_parity("torch", "every-kind", "fp64")


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
def test_every_kind_of_layer_computes_what_pytorch_computes(tmp_path: Path, pytorch: Computed, layout: str) -> None:
    jax = compute_parity("jax", "every-kind", "fp64", layout=layout)
    assert (jax.facts["parameters"], jax.facts["macs"]) == (pytorch.facts["parameters"], pytorch.facts["macs"])
    assert jax.distance(pytorch, "before") == 0.0
    assert max(jax.distance(pytorch, part) for part in ("logits", "losses", "after")) < 1e-10


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_every_rank_holds_the_weights_of_one_device_with_the_whole_batch(
    outcomes: dict[str, TrialOutcome], whole_batch: TrialOutcome, strategy: str
) -> None:
    outcome = outcomes[strategy]
    assert len(outcome.weights) == 2
    assert largest_difference(*outcome.weights) == 0.0
    assert len({rank.weights_digest for rank in outcome.record.ranks}) == 1
    assert largest_difference(outcome.weights[0], whole_batch.weights[0]) < TOLERANCE


@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_one_process_of_a_mesh_is_a_lone_device(tmp_path: Path, whole_batch: TrialOutcome, strategy: str) -> None:
    outcome = train(tmp_path, strategy, batch=16)
    assert largest_difference(outcome.weights[0], whole_batch.weights[0]) < TOLERANCE


def test_training_moves_the_weights(tmp_path: Path, whole_batch: TrialOutcome) -> None:
    """Otherwise the tests above would prove nothing."""
    shorter = train(tmp_path, "local", batch=16, measure=Measure(2, 2))
    assert largest_difference(shorter.weights[0], whole_batch.weights[0]) > 100 * TOLERANCE


def test_independent_workers_exchange_nothing(tmp_path: Path) -> None:
    both = train(tmp_path / "both", "independent", devices=2)
    alone = train(tmp_path / "alone", "independent")
    assert largest_difference(*both.weights) > 100 * TOLERANCE
    # Ranks may go on after their window while others finish, so losses are compared, not final weights.
    assert both.record.ranks[0].last_loss == alone.record.ranks[0].last_loss


def test_channels_first_and_compile_are_the_same_training(tmp_path: Path, whole_batch: TrialOutcome) -> None:
    """Every step is compiled anyway."""
    first = train(tmp_path, "local", batch=16, layout="nchw", compile=True)
    assert largest_difference(first.weights[0], whole_batch.weights[0]) < TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("strategy", SYNCHRONOUS)
def test_bfloat16_batch_norm_and_dropout_train_alike_on_all_ranks(tmp_path: Path, strategy: str) -> None:
    outcome = train(
        tmp_path, strategy, devices=2, models=("every-kind:4",), image_size=33, precision="bf16", measure=Measure(2, 2)
    )
    assert largest_difference(*outcome.weights) == 0.0
    assert {values.dtype.name for values in outcome.weights[0].values()} == {"float32"}
    assert outcome.record.ranks[0].first_loss != outcome.record.ranks[1].first_loss


def test_dropout_is_real(tmp_path: Path, pytorch: Computed) -> None:
    """Every kind has a dropout layer, which a parity check leaves out."""
    outcome = train(tmp_path, "local", models=("every-kind:4",), image_size=33, classes=7, measure=Measure(2, 2))
    assert outcome.record.ranks[0].first_loss != pytest.approx(float(pytorch.numbers["losses"][0]), rel=1e-4)
