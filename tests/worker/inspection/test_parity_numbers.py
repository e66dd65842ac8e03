"""What a framework computes for a parity check, beyond logits, losses and weights."""

import pytest
from trials import Computed, compute_parity

pytestmark = pytest.mark.framework

OTHERS = ["tensorflow", "jax", "keras-torch", "keras-tensorflow", "keras-jax", "mxnet"]


@pytest.fixture(scope="module")
def pytorch() -> Computed:
    return compute_parity("torch", "every-kind", "fp64", image_size=33, classes=7)


@pytest.mark.parametrize("framework", OTHERS)
def test_every_framework_keeps_the_same_running_statistics(pytorch: Computed, framework: str) -> None:
    """The variance of Keras and MXNet, which is biased, is made comparable."""
    computed = compute_parity(framework, "every-kind", "fp64", image_size=33, classes=7)
    # MXNet keeps the momentum 0.9 as a 32-bit number, 2.4e-8 less. That is 2.4e-7 of the weight of a new batch, 0.1.
    assert computed.distance(pytorch, "statistics/") < (3e-7 if framework == "mxnet" else 1e-12)


@pytest.mark.parametrize("framework", ["torch", *OTHERS])
def test_every_framework_drops_the_rate_and_places_pixels(framework: str) -> None:
    numbers = compute_parity(framework, "every-kind", "fp32", image_size=33, classes=7).numbers
    share, kept, rate, count = numbers["dropout/dropout1"]
    assert (kept, rate, count) == (2.0, 0.5, 100_000)
    assert share == pytest.approx(0.5, abs=5 * (0.25 / count) ** 0.5)
    difference, wrong_labels = numbers["pixels"]
    assert difference < 1e-6
    assert wrong_labels == 0
    assert len(numbers["losses"]) == 3


def test_the_start_meets_the_whole_range_of_every_unit(pytorch: Computed) -> None:
    """No bias is 0, and batch norms have channels of several sizes."""
    biases = [values for name, values in pytorch.numbers.items() if name.startswith("before/") and "bias" in name]
    scales = [values for name, values in pytorch.numbers.items() if name.startswith("before/") and "scale" in name]
    assert biases
    assert all((values != 0).all() for values in biases)
    assert all(values.max() > 4 * values.min() for values in scales)
