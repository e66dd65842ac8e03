"""Initial weights: the same everywhere, in the canonical layout, of a size that lets training start well."""

import math
import zlib

import numpy
import pytest

from trainscale.worker.models import Builder, Graph, build, initial_weights


def chain(depth: int) -> Graph:
    net = Builder("chain", channels=3, image_size=8, classes=10)
    x = net.input
    for _ in range(depth):
        x = net.conv_bn_relu(x, 64, kernel=3, padding=1)
    return net.finish(net.dense(net.global_avg_pool(x), 10, name="logits"))


def test_arrays_have_the_names_order_shapes_and_type_of_the_parameters() -> None:
    graph = build("inception-bn-28-small")
    weights = initial_weights(graph, seed=1)
    assert list(weights) == [parameter.name for parameter in graph.parameters()]
    for parameter in graph.parameters():
        assert weights[parameter.name].shape == parameter.shape
        assert weights[parameter.name].dtype == numpy.float32
        assert weights[parameter.name].flags["C_CONTIGUOUS"]


def test_the_bits_are_pinned() -> None:
    # Workers on other hosts may run other versions of numpy: they must still start from these very bits.
    weights = initial_weights(build("mnist"), seed=7)
    checksums = {name: zlib.crc32(weights[name].astype("<f4").tobytes()) for name in weights if "weight" in name}
    assert checksums == {
        "conv1.weight": 0xF48F9D05,
        "conv2.weight": 0x751DCB30,
        "fc1.weight": 0x0A0A6650,
        "logits.weight": 0x3BEE333C,
    }


def test_values_depend_on_seed_and_name_but_not_on_the_rest_of_the_network() -> None:
    shallow, deep, other = initial_weights(chain(1), 3), initial_weights(chain(4), 3), initial_weights(chain(1), 2)
    assert not numpy.array_equal(shallow["conv1.weight"], other["conv1.weight"])
    assert not numpy.array_equal(deep["conv2.weight"], deep["conv3.weight"])
    assert set(shallow) < set(deep)
    for name, values in shallow.items():
        assert numpy.array_equal(values, deep[name]), name


def test_hidden_layers_are_he_normal_biases_zero_and_batch_norms_the_identity() -> None:
    weights = initial_weights(build("mnist"), seed=1)
    dense = weights["fc1.weight"].astype(numpy.float64)
    he = math.sqrt(2 / 3136)
    assert dense.mean() == pytest.approx(0, abs=he / 500)
    assert dense.std() == pytest.approx(he, rel=0.002)
    # A bell, not a box: a normal distribution has 68.3 % within one deviation, a uniform one 57.7 %.
    assert (abs(dense) < he).mean() == pytest.approx(0.683, abs=0.02)
    assert abs(dense).max() < 3.47 * he
    assert not weights["fc1.bias"].any()
    assert not weights["conv1.bias"].any()
    normed = initial_weights(chain(1), seed=1)
    assert (normed["bn1.scale"] == 1).all()
    assert (normed["bn1.shift"] == 0).all()


def test_neighbouring_values_are_independent() -> None:
    values = initial_weights(build("mnist"), seed=1)["fc1.weight"].astype(numpy.float64).ravel()
    for distance in (1, 2, 4, 1 << 16):
        correlation = numpy.corrcoef(values[:-distance], values[distance:])[0, 1]
        assert abs(correlation) < 0.003, distance


@pytest.mark.framework
@pytest.mark.parametrize(
    ("name", "image_size"),
    [("mnist", 28), ("inception-bn-28-small", 28), ("resnet50-cifar", 32), ("resnet18", 64), ("inceptionv3", 75)],
)
def test_the_first_loss_is_close_to_that_of_guessing(name: str, image_size: int) -> None:
    import torch
    import torch_reference

    graph = build(name, image_size)
    weights = {key: torch.from_numpy(values) for key, values in initial_weights(graph, seed=1).items()}
    generator = torch.Generator().manual_seed(0)
    images = torch.randn(8, *graph.input_shape, generator=generator)
    labels = torch.randint(graph.classes, (8,), generator=generator)
    with torch.no_grad():
        logits = torch_reference.run(graph, images, weights)[graph.heads[0].layer]
    loss = torch.nn.functional.cross_entropy(logits, labels).item()
    assert loss == pytest.approx(math.log(graph.classes), abs=0.2)
    assert logits.std() > 0.01  # small, but the network does say something
