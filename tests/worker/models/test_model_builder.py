"""Writing a graph: inferred shapes, names, and what is said when layers do not fit."""

from collections.abc import Callable
from dataclasses import FrozenInstanceError

import pytest

from trainscale.worker.models import Builder, Graph, Parameter, ShapeError


def small_graph() -> Graph:
    net = Builder("tiny", channels=3, image_size=8, classes=5)
    x = net.conv(net.input, 4, kernel=(1, 3), stride=2, padding=(0, 1))
    x = net.relu(net.batch_norm(x))
    x = net.flatten(x)
    return net.finish(net.dense(x, 5, bias=False, name="logits"))


def test_a_graph_has_inferred_shapes_canonical_parameters_and_counts_multiply_adds() -> None:
    graph = small_graph()
    assert [(layer.name, layer.shape) for layer in graph.layers] == [
        ("input", (3, 8, 8)),
        ("conv1", (4, 4, 4)),
        ("bn1", (4, 4, 4)),
        ("relu1", (4, 4, 4)),
        ("flatten1", (64,)),
        ("logits", (5,)),
    ]
    assert dict(graph.layer("conv1").options) == {
        "filters": 4,
        "kernel": (1, 3),
        "stride": (2, 2),
        "padding": (0, 1),
        "bias": True,
    }
    assert graph.parameters() == (
        Parameter("conv1.weight", (4, 3, 1, 3), "conv1", "weight", 9),
        Parameter("conv1.bias", (4,), "conv1", "bias", 9),
        Parameter("bn1.scale", (4,), "bn1", "scale", 1),
        Parameter("bn1.shift", (4,), "bn1", "shift", 1),
        Parameter("logits.weight", (5, 64), "logits", "weight", 64),
    )
    assert graph.macs == 4 * 3 * 1 * 3 * (4 * 4) + 64 * 5  # of a convolution at every place, of a dense layer once


def test_graphs_are_frozen_equal_by_value_and_hashable() -> None:
    graph = small_graph()
    assert graph == small_graph()
    assert hash(graph) == hash(small_graph())
    with pytest.raises(FrozenInstanceError):
        graph.name = "other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        graph.layer("conv1").options["filters"] = 8  # type: ignore[index]


def test_scopes_prefix_names_and_count_on_their_own() -> None:
    net = Builder("scoped", 3, 8, 10)
    with net.scope("stage1"):
        first = net.relu(net.input)
        with net.scope("block1"):
            second = net.relu(first)
        third = net.relu(second)
    fourth = net.relu(third)
    assert [x.name for x in (first, second, third, fourth)] == [
        "stage1.relu1",
        "stage1.block1.relu1",
        "stage1.relu2",
        "relu1",
    ]
    assert second.identifier == "stage1_block1_relu1"


def two_layers_of_one_name(net: Builder) -> None:
    with net.scope("a"):
        net.relu(net.input, name="b")
    net.relu(net.input, name="a_b")


def a_layer_that_leads_nowhere(net: Builder) -> None:
    pooled = net.global_avg_pool(net.input)
    net.relu(net.input, name="forgotten")
    net.finish(net.dense(pooled, 10))


def a_head_of_nine_classes(net: Builder) -> None:
    pooled = net.global_avg_pool(net.input)
    net.finish(net.dense(pooled, 10), auxiliary=(net.dense(pooled, 9), 0.3))


@pytest.mark.parametrize(
    ("write", "error", "message"),
    [
        (two_layers_of_one_name, ValueError, "two layers are called 'a_b'"),
        (lambda net: net.relu(net.input, name="3x3 relu"), ValueError, "letters, digits"),
        (
            lambda net: net.conv(net.max_pool(net.input, kernel=3, stride=2), 8, kernel=5),
            ShapeError,
            r"deep: an image of 8×8 is too small: .*conv1.* 3×3.* 5×5.*--image-size",
        ),
        (
            lambda net: net.concat([net.input, net.max_pool(net.input, kernel=2, stride=2)]),
            ShapeError,
            r"concat1.*input gives 3×8×8, pool1 gives 3×4×4",
        ),
        (
            lambda net: net.add(net.conv(net.input, 4, kernel=1), net.input),
            ShapeError,
            r"add1.*conv1 gives 4×8×8, input gives 3×8×8",
        ),
        (lambda net: net.dense(net.input, 10), ShapeError, "fc1 needs a vector, input gives 3×8×8; flatten it"),
        (lambda net: net.conv(net.global_avg_pool(net.input), 4), ShapeError, "conv1 needs a map .* pool1 gives 3"),
        (a_layer_that_leads_nowhere, ValueError, "nothing uses layer forgotten"),
        (a_head_of_nine_classes, ShapeError, "head fc2 gives 9, not one value for each of 10 classes"),
    ],
)
def test_what_is_wrong_with_a_layer_is_said(
    write: Callable[[Builder], object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        write(Builder("deep", 3, 8, 10))


@pytest.mark.parametrize(("image_size", "classes"), [(0, 10), (-4, 10), (8, 1), (8, 0)])
def test_impossible_sizes_are_refused_at_once(image_size: int, classes: int) -> None:
    with pytest.raises(ValueError, match="at least"):
        Builder("none", 3, image_size, classes)
