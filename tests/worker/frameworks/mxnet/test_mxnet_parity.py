"""MXNet computes what PyTorch computes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from trials import Computed, compute_parity, largest_difference, run_trial

from trainscale.worker.job import Measure

pytestmark = pytest.mark.framework


@pytest.fixture(scope="module")
def both() -> tuple[Computed, Computed]:
    torch, mxnet = (compute_parity(name, "every-kind", "fp64", image_size=33, classes=7) for name in ("torch", "mxnet"))
    return torch, mxnet


def test_the_same_network_is_counted(both: tuple[Computed, Computed]) -> None:
    torch, mxnet = both
    assert (mxnet.facts["parameters"], mxnet.facts["macs"]) == (torch.facts["parameters"], torch.facts["macs"])


def test_training_starts_from_the_same_bits(both: tuple[Computed, Computed]) -> None:
    assert both[0].distance(both[1], "before") == 0.0


# MXNet's SGD rounds its constants to float32: 0.001 is 5e-8 off, and so is whatever a step moves.
@pytest.mark.parametrize(("part", "tolerance"), [("logits", 1e-10), ("losses", 1e-8), ("after", 1e-6)])
def test_every_kind_of_layer_trains_the_same_in_float64(
    both: tuple[Computed, Computed], part: str, tolerance: float
) -> None:
    assert both[0].distance(both[1], part) < tolerance


def test_weight_decay_reaches_every_parameter(both: tuple[Computed, Computed]) -> None:
    """Without it the scale of a batch norm would move by about 1 % less; MXNet's rounding is 5e-8 of a movement."""
    torch, mxnet = (both[index].numbers for index in (0, 1))
    for name in torch:
        if name.startswith("after/"):
            moved = torch[name] - torch[name.replace("after/", "before/")]
            assert np.linalg.norm(mxnet[name] - torch[name]) < 1e-6 * np.linalg.norm(moved), name


def test_the_weights_have_moved(both: tuple[Computed, Computed]) -> None:
    """Otherwise equal weights would prove nothing."""
    numbers = both[1].numbers
    for name in numbers:
        if name.startswith("after/"):
            assert abs(numbers[name] - numbers[name.replace("after/", "before/")]).max() > 1e-6, name


def test_float32_training_ends_where_pytorchs_ends(tmp_path: Path) -> None:
    torch, mxnet = (
        run_trial(
            tmp_path / name,
            framework=name,
            strategies=("local",),
            models=("plain-graph:8",),
            measure=Measure(2, 4),
        )
        for name in ("torch", "mxnet")
    )
    assert mxnet.record.ok, mxnet.record.failure
    assert largest_difference(torch.weights[0], mxnet.weights[0]) < 2e-6


def test_dropout_is_left_out_of_a_comparison_and_only_there(tmp_path: Path) -> None:
    without = compute_parity("mxnet", "every-kind", "fp32", image_size=33, classes=7)
    once, again = (
        run_trial(
            tmp_path / name,
            framework="mxnet",
            strategies=("local",),
            models=("every-kind:4",),
            image_size=33,
            classes=7,
            measure=Measure(2, 2),
        ).record.ranks[0]
        for name in ("once", "again")
    )
    assert once.first_loss is not None
    assert abs(once.first_loss - without.numbers["losses"][0]) > 1e-4
    assert once.first_loss == again.first_loss  # by seed
