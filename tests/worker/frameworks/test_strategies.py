"""Strategies train, in every framework: the same numbers as PyTorch, the same weights on every rank, and those of one
device with the whole batch.
"""

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trials
from trials import Computed, TrialOutcome, compute_parity, largest_difference

from trainscale.worker.job import Measure
from trainscale.worker.models import build, initial_weights

sys.path.insert(0, str(Path(__file__).parent / "keras"))
import keras_graphs

pytestmark = pytest.mark.framework

# Ten steps of 16 images of float32: what a sum in another order changes stays far below this.
TOLERANCE = 2e-6

SYNCHRONOUS = {
    "torch": ("allreduce", "ps:1", "ps:2", "sharded"),
    "tensorflow": ("allreduce", "ps:1", "ps:2"),
    "jax": ("allreduce", "sharded"),
    "keras-jax": ("allreduce",),
    "keras-tensorflow": ("allreduce",),
    "keras-torch": ("allreduce",),
    "mxnet": ("ps:1", "ps:2"),
}
KERAS = ["keras-jax", "keras-tensorflow", "keras-torch"]

Train = Callable[..., TrialOutcome]


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Train:
    """Train sixteen images in all on a network of 18,490 parameters, unless told otherwise. Each trial is run once."""

    @functools.cache
    def run(framework: str, strategy: str, devices: int, settings: tuple[tuple[str, Any], ...]) -> TrialOutcome:
        options = {"measure": Measure(2, 8), "models": (f"plain-graph:{16 // devices}",), **dict(settings)}
        options.update(framework=framework, strategies=(strategy,), devices=devices, forks=True)
        outcome = trials.run_trial(tmp_path_factory.mktemp("trial"), **options)
        assert outcome.record.ok, outcome.record.failure
        assert outcome.record.notes == ()  # servers and schedulers have ended by themselves
        return outcome

    return lambda framework, strategy, devices=1, **settings: run(framework, strategy, devices, tuple(settings.items()))


@functools.cache
def compute_with_torch(**settings: object) -> Computed:
    return compute_parity("torch", "every-kind", "fp64", **settings)


@pytest.mark.parametrize(
    ("framework", "settings"),
    [
        ("tensorflow", {}),
        ("jax", {"layout": "nhwc"}),
        ("jax", {"layout": "nchw"}),
        # On an image of even size, where Keras' own padding is another.
        ("keras-jax", {"image_size": 36}),
        ("keras-tensorflow", {"image_size": 36}),
        slow("keras-torch", {"image_size": 36}),
        ("mxnet", {"image_size": 33, "classes": 7}),
    ],
)
def test_every_kind_of_layer_computes_what_pytorch_computes(framework: str, settings: dict[str, Any]) -> None:
    theirs = compute_with_torch(**{name: value for name, value in settings.items() if name != "layout"})
    ours = compute_parity(framework, "every-kind", "fp64", **settings)
    assert (ours.facts["parameters"], ours.facts["macs"]) == (theirs.facts["parameters"], theirs.facts["macs"])
    assert ours.distance(theirs, "before") == 0.0
    assert ours.distance(theirs, "logits") < 1e-10
    # MXNet's SGD rounds its constants to float32: 0.001 is 5e-8 off, and so is whatever a step moves.
    is_exact = framework != "mxnet"
    assert ours.distance(theirs, "losses") < (1e-10 if is_exact else 1e-8)
    assert ours.distance(theirs, "after") < (1e-10 if is_exact else 1e-6)
    # Without weight decay, the scale of a batch norm would move by about 1 % less.
    for name in [name for name in ours.numbers if name.startswith("after/")]:
        moved = theirs.numbers[name] - theirs.numbers[name.replace("after/", "before/")]
        assert abs(moved).max() > 1e-6, name  # otherwise equal weights would prove nothing
        assert np.linalg.norm(ours.numbers[name] - theirs.numbers[name]) < 1e-6 * np.linalg.norm(moved), name


def test_tensorflow_computes_the_same_channels_first() -> None:
    """In float64 a CPU computes channels-last whatever the layout."""
    first = compute_parity("tensorflow", "every-kind", "fp32", layout="nchw")
    assert compute_with_torch().distance(first, "logits") < 1e-5


@pytest.mark.parametrize("framework", SYNCHRONOUS)
def test_training_moves_the_weights_to_where_pytorch_moves_them(train: Train, framework: str) -> None:
    whole = train(framework, "local").weights[0]
    assert largest_difference(initial_weights(build("plain-graph", 16, 10), 1337), whole) > 100 * TOLERANCE
    assert largest_difference(whole, train("torch", "local").weights[0]) < TOLERANCE


@pytest.mark.parametrize(
    ("framework", "strategy"), [(framework, strategy) for framework, each in SYNCHRONOUS.items() for strategy in each]
)
def test_every_rank_holds_the_weights_of_one_device_with_the_whole_batch(
    train: Train, framework: str, strategy: str
) -> None:
    outcome = train(framework, strategy, 2)
    assert len(outcome.weights) == 2
    assert largest_difference(*outcome.weights) == 0.0
    assert len({rank.weights_digest for rank in outcome.record.ranks}) == 1
    assert largest_difference(outcome.weights[0], train(framework, "local").weights[0]) < TOLERANCE


@pytest.mark.parametrize(
    ("framework", "strategy", "devices", "settings"),
    [
        ("torch", "local", 1, {"layout": "nhwc"}),
        slow("torch", "local", 1, {"compile": True}),
        slow("torch", "allreduce", 2, {"compile": True}),
        ("jax", "allreduce", 1, {}),
        ("jax", "sharded", 1, {}),
        ("jax", "local", 1, {"layout": "nchw", "compile": True}),  # every step is compiled anyway
        slow("tensorflow", "allreduce", 1, {"layout": "nchw"}),
        slow("tensorflow", "ps:1", 1, {"layout": "nchw"}),
        slow("tensorflow", "local", 1, {"compile": True}),
        slow("tensorflow", "allreduce", 1, {"compile": True}),
        slow("tensorflow", "ps:1", 1, {"compile": True}),
        slow("keras-jax", "allreduce", 1, {"layout": "nchw"}),
        slow("keras-jax", "allreduce", 2, {"compile": True}),
        slow("keras-tensorflow", "allreduce", 1, {"layout": "nhwc"}),
        slow("keras-tensorflow", "allreduce", 1, {"compile": True}),
        slow("keras-tensorflow", "allreduce", 2, {"compile": True}),
        slow("keras-torch", "allreduce", 1, {"layout": "nhwc"}),
        ("mxnet", "ps:1", 1, {}),
    ],
)
def test_it_is_the_same_training_by_whatever_strategy_layout_and_compiler(
    train: Train, framework: str, strategy: str, devices: int, settings: dict[str, Any]
) -> None:
    patience = {"timeout_seconds": 280.0, "stall_seconds": 280.0} if settings.get("compile") else {}
    outcome = train(framework, strategy, devices, **settings, **patience)
    assert largest_difference(outcome.weights[0], train(framework, "local").weights[0]) < TOLERANCE


@pytest.mark.parametrize("servers", ["ps:1", "ps:2"])
def test_pytorchs_parameter_servers_equal_allreduce_to_the_last_bit(train: Train, servers: str) -> None:
    outcomes = [train("torch", strategy, 2, models=("nets:plain:8",)) for strategy in (servers, "allreduce")]
    assert largest_difference(*(outcome.weights[0] for outcome in outcomes)) == 0.0


# In TensorFlow one dense layer, which has nine tenths of the parameters, is on one server and the rest on the other.
@pytest.mark.parametrize(("framework", "largest"), [("torch", 36_980), ("tensorflow", 65_536), ("mxnet", 44_376)])
def test_servers_share_the_weights_by_size_and_count_their_updates(train: Train, framework: str, largest: int) -> None:
    record = train(framework, "ps:2", 2).record
    sizes = [server.bytes for server in record.servers]
    assert sum(sizes) == 4 * (record.parameters or 0) == 73_960
    assert max(sizes) <= largest
    assert [server.updates for server in record.servers] == [10, 10]


@pytest.mark.parametrize(
    ("framework", "devices"), [("torch", 2), slow("tensorflow", 2), slow("tensorflow", 1), ("mxnet", 1), ("mxnet", 2)]
)
def test_asynchronous_servers_lower_the_loss(train: Train, framework: str, devices: int) -> None:
    record = train(framework, "ps-async:2", devices, models=("plain-graph:8",), measure=Measure(2, 60), seed=3).record
    assert all(rank.last_loss < rank.first_loss for rank in record.ranks)  # type: ignore[operator]
    assert all(server.updates >= devices * 62 for server in record.servers)
    if framework == "torch":
        assert all(server.staleness_max >= 1 for server in record.servers)


@pytest.mark.parametrize("framework", [slow("torch"), slow("tensorflow"), "jax", *map(slow, KERAS), "mxnet"])
def test_independent_workers_exchange_nothing(train: Train, framework: str) -> None:
    """Each ends where it would have ended alone, on its own images."""
    settings = {"precision": "bf16"} if framework in KERAS else {}
    both = train(framework, "independent", 2, **settings)
    alone = train(framework, "independent", models=("plain-graph:8",), **settings)
    assert largest_difference(*both.weights) > 100 * TOLERANCE
    # Ranks may go on after their window while others finish, so losses are compared, not final weights.
    assert both.record.ranks[0].last_loss == alone.record.ranks[0].last_loss
    assert {values.dtype.name for values in both.weights[0].values()} == {"float32"}


@pytest.mark.parametrize(
    ("framework", "strategy", "settings"),
    [
        *(("torch", each, {"precision": kind}) for each in ("allreduce", "sharded") for kind in ("bf16", "fp16")),
        ("torch", "ps:2", {"precision": "bf16"}),
        *(("torch", strategy, {"layout": "nhwc"}) for strategy in ("allreduce", "sharded", "ps:2")),
        ("tensorflow", "allreduce", {"precision": "bf16"}),
        slow("tensorflow", "ps:2", {"precision": "bf16"}),
        slow("jax", "allreduce", {"precision": "bf16"}),
        slow("jax", "sharded", {"precision": "bf16"}),
    ],
)
def test_precisions_and_layouts_train_alike_on_all_ranks(
    train: Train, framework: str, strategy: str, settings: dict[str, str]
) -> None:
    sizes: dict[str, Any] = {"models": ("nets:plain:8",)}
    if framework != "torch":  # with batch norm and dropout, which is another on each rank
        sizes = {"models": ("every-kind:4",), "image_size": 33, "classes": 7, "measure": Measure(2, 4)}
    outcome = train(framework, strategy, 2, **sizes, **settings)
    assert largest_difference(*outcome.weights) == 0.0
    assert {values.dtype.name for values in outcome.weights[0].values()} == {"float32"}
    assert outcome.record.ranks[0].first_loss != outcome.record.ranks[1].first_loss


@pytest.mark.parametrize("framework", KERAS)
def test_each_rank_of_keras_normalizes_over_its_own_images(train: Train, framework: str) -> None:
    """As PyTorch's ranks do. Statistics of all images together would end where one device with all of them ends."""
    keras_graphs.register()
    settings = {"image_size": 20}
    alone = train("torch", "allreduce", models=("normed-graph:16",), **settings)
    together = train("torch", "allreduce", 2, models=("normed-graph:8",), **settings)
    ranks = train(framework, "allreduce", 2, models=("normed-graph:8",), **settings)
    assert largest_difference(*ranks.weights) == 0.0
    distance = largest_difference(ranks.weights[0], together.weights[0])
    assert distance < 10 * TOLERANCE
    assert largest_difference(ranks.weights[0], alone.weights[0]) > 10 * distance


@pytest.mark.parametrize("framework", ["jax", "mxnet"])
def test_dropout_is_left_out_of_a_comparison_and_only_there(tmp_path: Path, framework: str) -> None:
    without = compute_parity(framework, "every-kind", "fp32", image_size=33, classes=7)
    sizes = {"models": ("every-kind:4",), "image_size": 33, "classes": 7, "measure": Measure(2, 2)}
    once, again = (
        trials.run_trial(tmp_path / name, framework=framework, strategies=("local",), forks=True, **sizes).record
        for name in ("once", "again")
    )
    assert once.ranks[0].first_loss == again.ranks[0].first_loss  # by seed
    assert once.ranks[0].first_loss != pytest.approx(without.numbers["losses"][0], abs=1e-4)


def test_servers_apart_have_cores_of_their_own(train: Train) -> None:
    train("torch", "ps:1", server_placement="apart")


def test_a_rank_ends_after_its_exit_handlers_without_tearing_down_the_interpreter(tmp_path: Path) -> None:
    outcome = trials.run_trial(tmp_path, forks=True, strategies=("local",), models=("nets:with_exit_handler:8",))
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.notes == ()
    (log,) = (tmp_path / "logs").iterdir()
    assert log.read_text().splitlines()[-1] == "exit handlers ran"
