"""Sketches are linear, as long as what they represent, and different wherever weights are."""

import numpy as np
import pytest

from trainscale.worker.witness import sketch as sketch_module
from trainscale.worker.witness.sketch import SIZE, sketch, sketch_weights

SHAPES = [(3,), (64,), (65,), (10, 100), (64, 3, 11, 11), (300, 5000)]


def change(shape: tuple[int, ...], seed: int = 1, dtype: str = "float64") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("shape", SHAPES)
def test_a_sketch_is_linear_and_on_average_as_long_as_the_change(shape: tuple[int, ...]) -> None:
    """Of 64 numbers, a length is known to about 1 / sqrt(128); the mean over 200 names to a hundredth of that."""
    a, b = change(shape, 1), change(shape, 2)
    both = 2 * sketch("layer.weight", a) + sketch("layer.weight", b)
    assert both.shape == (SIZE,)
    assert sketch("layer.weight", 2 * a + b) == pytest.approx(both, rel=1e-9, abs=1e-9)
    squares = [np.sum(sketch(f"layer{number}", a) ** 2) for number in range(200)]
    assert np.mean(squares) == pytest.approx(np.sum(a**2), rel=0.05)


def test_a_small_change_of_large_weights_is_exact() -> None:
    """The difference of two sketches is known as precisely as the change itself, which float32 already rounds."""
    before = change((300, 5000), 1, "float32")
    after = before + change((300, 5000), 2, "float32") * np.float32(1e-5)
    exact = sketch("w", after.astype("f8") - before.astype("f8"))
    first = sketch_weights({"b": before[0, :9], "w": before}, ["w", "b"])
    last = sketch_weights({"w": after, "b": after[0, :9]}, ["w", "b"])
    assert np.linalg.norm(last[0] - first[0] - exact) < 1e-8 * np.linalg.norm(exact)
    assert np.array_equal(last[1], sketch("b", after[0, :9]))


def test_what_was_swapped_or_left_out_changes_the_sketch() -> None:
    values = change((50, 700))
    exact = sketch("w", values)
    length = np.linalg.norm(exact)
    swapped, without_row, without_column = values.copy(), values.copy(), values.copy()
    swapped[:25], swapped[25:] = values[25:], values[:25]
    without_row[7] = 0
    without_column[:, 300:] = 0
    for wrong in (swapped, without_row, without_column, values.T, values[::-1], -values, values * 1.001):
        assert np.linalg.norm(sketch("w", wrong) - exact) > 5e-4 * length


def test_equal_changes_of_two_tensors_do_not_cancel_or_double() -> None:
    values = change((40,))
    names = [*map(str, range(100))]
    same = sketch_weights(dict.fromkeys(names, values), names).sum(axis=0)
    assert np.sum(same**2) == pytest.approx(100 * np.sum(values**2), rel=0.7)


def test_the_signs_are_the_same_in_every_numpy_version() -> None:
    """These values are of numpy 2.4.6; numpy 1.23.5 gives them too."""
    assert list(sketch("conv2.weight", np.arange(1.0, 6.0))[:5]) == [1.0, -2.0, 3.0, 4.0, -5.0]
    assert list(sketch("conv1.weight", np.arange(100.0))[:4]) == [72.5, -68.5, 38.0, 32.0]


def test_sketches_depend_on_no_threads_and_no_order_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(5)
    weights = {f"layer{n}": generator.normal(size=(3 + n, 5, 7, 11)).astype(np.float32) for n in range(9)}
    transposed = {name: values.transpose(2, 3, 1, 0).copy().transpose(3, 2, 0, 1) for name, values in weights.items()}
    results = []
    for cores, arrays in (((0,), weights), ((0, 1, 2, 3), weights), ((0, 1, 2, 3), transposed)):
        monkeypatch.setattr(sketch_module, "list_usable_cores", lambda cores=cores: cores)
        results.append(sketch_weights(arrays, list(weights)))
    assert all(np.array_equal(other, results[0]) for other in results[1:])
