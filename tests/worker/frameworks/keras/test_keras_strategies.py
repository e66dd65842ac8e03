"""Keras trains on each of its backends: the same numbers as PyTorch, the same weights on every rank, and those of one
device with the whole batch.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from trials import Computed, TrialOutcome, compute_parity, largest_difference, run_trial

from trainscale.worker.job import Measure
from trainscale.worker.models import build, initial_weights

sys.path.insert(0, str(Path(__file__).parent))
import keras_graphs

pytestmark = pytest.mark.framework

# Ten steps of 16 images of float32: what a sum in another order changes stays far below this.
TOLERANCE = 2e-6

BACKENDS = ["keras-jax", "keras-tensorflow", "keras-torch"]
# Not the one that is taken when nobody asks; Keras on TensorFlow has but one on a CPU.
OTHER_LAYOUT = {"keras-jax": "nchw", "keras-tensorflow": "nhwc", "keras-torch": "nhwc"}


def train(
    folder: Path, framework: str, strategy: str, batch: int = 8, devices: int = 1, **settings: object
) -> TrialOutcome:
    settings = {"measure": Measure(2, 8), "models": (f"plain-graph:{batch}",), **settings}
    settings = {"framework": framework, "devices": devices, "strategies": (strategy,), **settings}
    outcome = run_trial(folder, forks=True, **settings)  # type: ignore[arg-type]
    assert outcome.record.ok, outcome.record.failure
    return outcome


@pytest.fixture(scope="module", params=BACKENDS)
def framework(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def whole_batch(framework: str, tmp_path_factory: pytest.TempPathFactory) -> TrialOutcome:
    """One device with the batch of two."""
    return train(tmp_path_factory.mktemp("whole"), framework, "local", batch=16)


@pytest.fixture(scope="module")
def torch_numbers(tmp_path_factory: pytest.TempPathFactory) -> Computed:
    return compute_parity("torch", "every-kind", "fp64", image_size=36)


@pytest.fixture(scope="module")
def torch_normed(tmp_path_factory: pytest.TempPathFactory) -> list[TrialOutcome]:
    """On one device, and on two with the same images."""
    return [train_normed(tmp_path_factory.mktemp("torch"), "torch", devices) for devices in (1, 2)]


def train_normed(folder: Path, framework: str, devices: int) -> TrialOutcome:
    keras_graphs.register()
    models = (f"normed-graph:{16 // devices}",)
    return train(folder, framework, "allreduce", devices=devices, models=models, image_size=20)


@pytest.mark.parametrize(
    "framework", [*BACKENDS[:2], pytest.param("keras-torch", marks=pytest.mark.slow)], indirect=True, scope="module"
)
def test_every_kind_of_layer_computes_what_pytorch_computes(
    framework: str, tmp_path: Path, torch_numbers: Computed
) -> None:
    """On an image of even size, where Keras' own padding is another."""
    keras = compute_parity(framework, "every-kind", "fp64", image_size=36)
    counts = [(each.facts["parameters"], each.facts["macs"]) for each in (keras, torch_numbers)]
    assert counts[0] == counts[1]
    assert keras.distance(torch_numbers, "before") == 0.0
    assert max(keras.distance(torch_numbers, part) for part in ("logits", "losses", "after")) < 1e-10


def test_training_moves_the_weights(whole_batch: TrialOutcome) -> None:
    """Otherwise the tests below would prove nothing."""
    start = initial_weights(build("plain-graph", 16, 10), 1337)
    assert largest_difference(whole_batch.weights[0], start) > 100 * TOLERANCE


@pytest.mark.slow
def test_one_process_together_in_another_layout_is_a_lone_device(
    framework: str, tmp_path: Path, whole_batch: TrialOutcome
) -> None:
    outcome = train(tmp_path, framework, "allreduce", batch=16, layout=OTHER_LAYOUT[framework])
    assert largest_difference(outcome.weights[0], whole_batch.weights[0]) < TOLERANCE


def test_every_rank_holds_the_weights_of_one_device_with_the_whole_batch(
    framework: str, tmp_path: Path, whole_batch: TrialOutcome
) -> None:
    outcome = train(tmp_path, framework, "allreduce", devices=2)
    assert len(outcome.weights) == 2
    assert largest_difference(*outcome.weights) == 0.0
    assert len({rank.weights_digest for rank in outcome.record.ranks}) == 1
    assert largest_difference(outcome.weights[0], whole_batch.weights[0]) < TOLERANCE


def test_each_rank_normalises_over_its_own_images(
    framework: str, tmp_path: Path, torch_normed: list[TrialOutcome]
) -> None:
    """As PyTorch's ranks do. Statistics of all images together would end where one device with all of them ends."""
    alone, together = torch_normed
    ranks = train_normed(tmp_path, framework, devices=2)
    assert largest_difference(*ranks.weights) == 0.0
    distance = largest_difference(ranks.weights[0], together.weights[0])
    assert distance < 10 * TOLERANCE
    assert largest_difference(ranks.weights[0], alone.weights[0]) > 10 * distance


@pytest.mark.slow
def test_independent_workers_exchange_nothing_and_bfloat16_trains(framework: str, tmp_path: Path) -> None:
    both = train(tmp_path / "both", framework, "independent", devices=2, precision="bf16")
    alone = train(tmp_path / "alone", framework, "independent", precision="bf16")
    assert largest_difference(*both.weights) > 100 * TOLERANCE
    # Ranks may go on after their window while others finish, so losses are compared, not final weights.
    assert both.record.ranks[0].last_loss == alone.record.ranks[0].last_loss
    assert {values.dtype.name for values in both.weights[0].values()} == {"float32"}


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
@pytest.mark.parametrize("compiled", ["keras-jax", "keras-tensorflow"])
def test_a_compiled_network_is_the_same_training(tmp_path: Path, compiled: str, devices: int) -> None:
    settings = {"batch": 16 // devices, "devices": devices, "compile": True, "timeout_seconds": 280.0}
    together = train(tmp_path / "compiled", compiled, "allreduce", **settings)  # type: ignore[arg-type]
    plain = train(tmp_path / "plain", compiled, "local", batch=16)
    assert largest_difference(together.weights[0], plain.weights[0]) < TOLERANCE
