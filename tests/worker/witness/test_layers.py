"""The gradient of every kind of layer is the derivative of what the layer computes."""

from collections.abc import Callable

import numpy as np
import pytest

from trainscale.worker.models import KINDS, Layer
from trainscale.worker.witness.reference import OPERATIONS, Arrays, Node, Result

STEP = 1e-6


def windowed(kernel: tuple[int, int], stride: tuple[int, int], padding: tuple[int, int], **options: object) -> dict:
    return {"kernel": kernel, "stride": stride, "padding": padding, **options}


UNEVEN = windowed((3, 2), (2, 1), (1, 0))
IMAGES = (2, 6, 5, 3)
# kind, options, shapes of the inputs (channels last), shape of a layer's output (channels first), shapes of the weights
CASES = [
    ("conv", UNEVEN, [IMAGES], (4, 3, 4), {"weight": (4, 3, 3, 2), "bias": (4,)}),
    ("conv", windowed((1, 1), (1, 1), (0, 0)), [IMAGES], (4, 6, 5), {"weight": (4, 3, 1, 1)}),
    ("conv", windowed((1, 1), (2, 2), (0, 0)), [IMAGES], (4, 3, 3), {"weight": (4, 3, 1, 1)}),
    ("conv", windowed((5, 5), (1, 1), (2, 2)), [IMAGES], (4, 6, 5), {"weight": (4, 3, 5, 5), "bias": (4,)}),
    ("batch_norm", {"eps": 1e-3}, [IMAGES], (3, 6, 5), {"scale": (3,), "shift": (3,)}),
    ("batch_norm", {"eps": 1e-3}, [(5, 3)], (3,), {"scale": (3,), "shift": (3,)}),
    ("relu", {}, [IMAGES], (3, 6, 5), {}),
    ("max_pool", UNEVEN, [IMAGES], (3, 3, 4), {}),
    ("avg_pool", {**UNEVEN, "count_padding": True}, [IMAGES], (3, 3, 4), {}),
    ("avg_pool", {**UNEVEN, "count_padding": False}, [IMAGES], (3, 3, 4), {}),
    ("global_avg_pool", {}, [IMAGES], (3,), {}),
    ("flatten", {}, [IMAGES], (90,), {}),
    ("dense", {}, [(2, 7)], (4,), {"weight": (4, 7), "bias": (4,)}),
    ("dense", {}, [(2, 7)], (4,), {"weight": (4, 7)}),
    ("dropout", {"rate": 0.5}, [(2, 7)], (7,), {}),
    ("concat", {}, [IMAGES, (2, 6, 5, 2)], (5, 6, 5), {}),
    ("add", {}, [IMAGES, IMAGES], (3, 6, 5), {}),
]


def compute(layer: Layer, *inputs: np.ndarray, weights: dict | None = None, block: int = 1 << 21) -> Result:
    arrays = Arrays()
    arrays.block_values = block
    return OPERATIONS[layer.kind](Node(layer, weights or {}, arrays), *inputs)


@pytest.mark.parametrize(("kind", "options", "inputs", "shape", "weights"), CASES)
def test_gradients_are_numerical_differences(
    kind: str, options: dict, inputs: list[tuple[int, ...]], shape: tuple[int, ...], weights: dict[str, tuple[int, ...]]
) -> None:
    random = np.random.default_rng(3)
    layer = Layer("layer", kind, tuple(map(str, range(len(inputs)))), options, shape)
    values = [random.standard_normal(size) for size in inputs]
    parameters = {role: random.standard_normal(size) for role, size in weights.items()}

    result, backward = compute(layer, *values, weights=parameters)
    assert result.shape[1:] == (*shape[1:], shape[0])
    upstream = random.standard_normal(result.shape)
    input_gradients, gradients = backward(upstream.copy())

    def objective() -> float:
        return float((compute(layer, *values, weights=parameters)[0] * upstream).sum())

    for value, gradient in zip(values, input_gradients, strict=True):
        assert gradient == pytest.approx(differences(objective, value), rel=1e-6, abs=1e-6)
    assert gradients.keys() == weights.keys()
    for role, value in parameters.items():
        assert gradients[role] == pytest.approx(differences(objective, value), rel=1e-6, abs=1e-6)


def differences(objective: Callable[[], float], values: np.ndarray) -> np.ndarray:
    result = np.zeros_like(values)
    for index in np.ndindex(values.shape):
        original = values[index]
        values[index] = original + STEP
        above = objective()
        values[index] = original - STEP
        result[index] = (above - objective()) / (2 * STEP)
        values[index] = original
    return result


def test_every_kind_of_layer_has_an_operation() -> None:
    assert {*OPERATIONS, "input"} == {*KINDS}
    assert {kind for kind, *_ in CASES} == {*OPERATIONS}


def test_a_convolution_is_the_same_however_many_images_are_computed_at_a_time() -> None:
    random = np.random.default_rng(4)
    layer = Layer("layer", "conv", ("x",), windowed((3, 3), (2, 2), (1, 1)), (4, 3, 3))
    weights = {"weight": random.standard_normal((4, 3, 3, 3))}
    images, upstream = random.standard_normal((5, 6, 6, 3)), random.standard_normal((5, 3, 3, 4))
    results = []
    for block in (1, 600, 1 << 21):
        result, backward = compute(layer, images, weights=weights, block=block)
        (gradient,), gradients = backward(upstream)
        results.append([result, gradient, gradients["weight"]])
    for other in results[1:]:
        for expected, seen in zip(results[0], other, strict=True):
            assert seen == pytest.approx(expected, rel=1e-12, abs=1e-12)


def test_of_equal_maxima_the_first_gets_the_gradient_and_padding_is_never_one() -> None:
    layer = Layer("layer", "max_pool", ("x",), windowed((2, 2), (2, 2), (0, 0)), (1, 1, 1))
    _, backward = compute(layer, np.array([1.0, 2.0, 2.0, 2.0]).reshape(1, 2, 2, 1))
    (gradient,), _ = backward(np.full((1, 1, 1, 1), 3.0))
    assert gradient.ravel().tolist() == [0.0, 3.0, 0.0, 0.0]
    padded = Layer("layer", "max_pool", ("x",), windowed((3, 3), (1, 1), (1, 1)), (1, 2, 2))
    assert (compute(padded, np.full((1, 2, 2, 1), -5.0))[0] == -5.0).all()
