"""The arithmetic of a precision rounds as that precision does."""

import graph_nets
import numpy as np
import pytest

from trainscale.worker import models
from trainscale.worker.data import source
from trainscale.worker.witness.reference import Arrays, ReferenceNetwork, TorchArrays

VALUES = np.array([1.0, -1.0, 1 / 3, 3e-5, 1e20, -7.7, 0.0], np.float32)


@pytest.mark.parametrize(("arithmetic", "bits"), [("tf32", 10), ("fp16", 10), ("bf16", 7)])
def test_an_operand_keeps_the_bits_of_its_precision(arithmetic: str, bits: int) -> None:
    rounded = Arrays(arithmetic).round_operand(VALUES)
    assert rounded.dtype == np.float32
    mantissa, _ = np.frexp(rounded.astype(np.float64))
    assert (mantissa * 2.0 ** (bits + 1) % 1 == 0).all()
    assert rounded == pytest.approx(VALUES, rel=2.0 ** -(bits + 1))
    assert (rounded != VALUES).sum() >= 4


def test_half_precision_is_numpys_where_its_range_suffices() -> None:
    values = np.random.default_rng(1).standard_normal(10_000).astype(np.float32)
    ties = np.array([1 + 2**-11, 1 + 3 * 2**-11, -1 - 2**-11], np.float32)
    for array in (values[np.abs(values) > 1e-3], ties):
        assert (Arrays("fp16").round_operand(array) == array.astype(np.float16).astype(np.float32)).all()


@pytest.mark.parametrize("arithmetic", ["fp64", "fp32", "tf32", "fp16", "bf16"])
def test_32_bit_precisions_round_nothing_and_tf32_no_results(arithmetic: str) -> None:
    arrays = Arrays(arithmetic)
    assert (arrays.round_operand(VALUES) == VALUES).all() == (arithmetic in ("fp64", "fp32"))
    assert (arrays.round_result(VALUES) == VALUES).all() == (arithmetic not in ("fp16", "bf16"))


def test_a_view_that_is_not_contiguous_is_rounded_too() -> None:
    matrix = VALUES[:6].reshape(2, 3)
    assert (Arrays("bf16").round_operand(matrix.T) == Arrays("bf16").round_operand(matrix).T).all()


@pytest.mark.framework
@pytest.mark.parametrize("arithmetic", ["fp64", "fp32", "bf16"])
def test_pytorchs_tensors_compute_what_numpys_arrays_do(arithmetic: str) -> None:
    """Here on a CPU; on a GPU they only are elsewhere."""
    assert TorchArrays("fp64", "cuda:1000").count_free_bytes() == 0
    graph_nets.register()
    graph = models.build("every-kind")
    samples, labels = source.make_samples(1, 0, 4, (3, 33, 33), 7)
    losses, gradients = [], []
    for arrays in (Arrays(arithmetic), TorchArrays(arithmetic, "cpu")):
        weights = {name: arrays.make_array(values) for name, values in models.initial_weights(graph, 1).items()}
        loss, by_name = ReferenceNetwork(graph, arrays).compute_gradients(weights, samples[::-1], labels[::-1])
        losses.append(loss)
        gradients.append({name: arrays.to_numpy(values) for name, values in by_name.items()})
    tolerance = {"fp64": 1e-12, "fp32": 1e-4, "bf16": 0.1}[arithmetic]
    assert losses[1] == pytest.approx(losses[0], rel=tolerance)
    length = np.sqrt(sum((values**2).sum() for values in gradients[0].values()))
    assert gradients[0].keys() == gradients[1].keys()
    for name, values in gradients[0].items():
        assert np.linalg.norm(values - gradients[1][name]) < tolerance * length, name
