"""The networks themselves, for any image size."""

from __future__ import annotations

from functools import partial
from typing import Callable

from .builder import Builder
from .graph import Graph, Layer

# VGG-16: filters, and the number of 3×3 convolutions between two poolings.
_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def alexnet(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Build AlexNet in one tower (Krizhevsky 2014, arXiv:1404.5997), without local normalization."""
    net = Builder(name, channels, image_size, classes)
    x = net.relu(net.conv(net.input, 64, kernel=11, stride=4, padding=2))
    x = net.max_pool(x, kernel=3, stride=2)
    x = net.relu(net.conv(x, 192, kernel=5, padding=2))
    x = net.max_pool(x, kernel=3, stride=2)
    for filters in (384, 256, 256):
        x = net.relu(net.conv(x, filters, kernel=3, padding=1))
    x = net.max_pool(x, kernel=3, stride=2)
    x = net.flatten(x)
    for _ in range(2):
        x = net.dropout(x, 0.5)
        x = net.relu(net.dense(x, 4096))
    return net.finish(net.dense(x, classes, name="logits"))


def vgg16(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Build VGG-16 (Simonyan and Zisserman 2014, arXiv:1409.1556, configuration D)."""
    net = Builder(name, channels, image_size, classes)
    x = net.input
    for number, (filters, depth) in enumerate(_STAGES, start=1):
        with net.scope(f"stage{number}"):
            for _ in range(depth):
                x = net.relu(net.conv(x, filters, kernel=3, padding=1))
            x = net.max_pool(x, kernel=2, stride=2)
    x = net.flatten(x)
    for _ in range(2):
        x = net.relu(net.dense(x, 4096))
        x = net.dropout(x, 0.5)
    return net.finish(net.dense(x, classes, name="logits"))


def mnist(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Build the small network of the deep-MNIST tutorials. A laptop's CPU trains it in minutes."""
    net = Builder(name, channels, image_size, classes)
    x = net.input
    for filters in (32, 64):
        x = net.relu(net.conv(x, filters, kernel=5, padding=2))
        x = net.max_pool(x, kernel=2, stride=2)
    x = net.relu(net.dense(net.flatten(x), 1024))
    x = net.dropout(x, 0.5)
    return net.finish(net.dense(x, classes, name="logits"))


# Residual networks v1.5 (He et al. 2015, arXiv:1512.03385) have the stride on the 3×3. These are
# the residual blocks in each of the four stages.
_DEPTHS = {
    "resnet18": (2, 2, 2, 2),
    "resnet34": (3, 4, 6, 3),
    "resnet50": (3, 4, 6, 3),
    "resnet101": (3, 4, 23, 3),
    "resnet152": (3, 8, 36, 3),
}
_STAGE_FILTERS = (64, 128, 256, 512)
_EXPANSION = 4  # times as many output channels of a bottleneck block as inner ones
_KERAS_EPS = 1e-3  # Keras 1.2's default, which the Keras-MXNet profile did not change

_Block = Callable[[Builder, Layer, int, int], Layer]


def resnet(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    with net.scope("stem"):
        x = net.conv_bn_relu(net.input, 64, kernel=7, stride=2, padding=3)
        x = net.max_pool(x, kernel=3, stride=2, padding=1)
    block = _add_basic_block if name in ("resnet18", "resnet34") else _add_bottleneck_block
    x = net.global_avg_pool(_add_stages(net, x, block, _DEPTHS[name]))
    return net.finish(net.dense(x, classes, name="logits"))


def _add_stages(net: Builder, x: Layer, block: _Block, depths: tuple[int, ...]) -> Layer:
    """Add the stages. Each one except the first halves the map in its first block."""
    for stage, (filters, depth) in enumerate(zip(_STAGE_FILTERS, depths), start=1):
        for number in range(1, depth + 1):
            stride = 2 if number == 1 and stage > 1 else 1
            with net.scope(f"stage{stage}.block{number}"):
                x = block(net, x, filters, stride)
    return x


def _add_basic_block(net: Builder, x: Layer, filters: int, stride: int) -> Layer:
    y = net.conv_bn_relu(x, filters, kernel=3, stride=stride, padding=1)
    y = net.batch_norm(net.conv(y, filters, kernel=3, padding=1, bias=False))
    return net.relu(net.add(y, _add_shortcut(net, x, filters, stride)))


def _add_bottleneck_block(net: Builder, x: Layer, filters: int, stride: int) -> Layer:
    y = net.conv_bn_relu(x, filters, kernel=1)
    y = net.conv_bn_relu(y, filters, kernel=3, stride=stride, padding=1)
    y = net.batch_norm(net.conv(y, filters * _EXPANSION, kernel=1, bias=False))
    return net.relu(net.add(y, _add_shortcut(net, x, filters * _EXPANSION, stride)))


def _add_shortcut(net: Builder, x: Layer, filters: int, stride: int) -> Layer:
    """Return the block's input, projected where its shape changes."""
    if stride == 1 and x.shape[0] == filters:
        return x
    with net.scope("shortcut"):
        return net.batch_norm(net.conv(x, filters, kernel=1, stride=stride, bias=False))


def resnet50_cifar(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Build the Keras-MXNet profile's pre-activation ResNet-50 (arXiv:1603.05027), with the stride on
    the first 1×1. Its stem is for large images, but the published numbers are of this network.
    """
    net = Builder(name, channels, image_size, classes)
    with net.scope("stem"):
        x = net.conv_bn_relu(net.input, 64, kernel=7, stride=2, padding=3, bias=True, eps=_KERAS_EPS)
        x = net.max_pool(x, kernel=3, stride=2)
    x = _add_stages(net, x, _add_preactivation_block, _DEPTHS["resnet50"])
    x = net.global_avg_pool(net.relu(net.batch_norm(x, _KERAS_EPS)))
    return net.finish(net.dense(x, classes, name="logits"))


def _add_preactivation_block(net: Builder, x: Layer, filters: int, stride: int) -> Layer:
    # The stem has just normalized the input of the very first block.
    y = x if x.kind == "max_pool" else net.relu(net.batch_norm(x, _KERAS_EPS))
    y = net.conv(y, filters, kernel=1, stride=stride)
    y = net.conv(net.relu(net.batch_norm(y, _KERAS_EPS)), filters, kernel=3, padding=1)
    y = net.conv(net.relu(net.batch_norm(y, _KERAS_EPS)), filters * _EXPANSION, kernel=1)
    if x.shape != y.shape:
        x = net.conv(x, filters * _EXPANSION, kernel=1, stride=stride, name="shortcut")
    return net.add(y, x)


# Inception-BN (Ioffe and Szegedy 2015, arXiv:1502.03167) as in MXNet's examples: for 224×224 images, and
# small for 28×28 crops of CIFAR-10, both with a bias in every convolution. Filters of the modules: 1×1,
# 3×3 reduced, 3×3, double 3×3 reduced, double 3×3, behind the pooling. A module that halves the map
# has neither the first nor the last.
_MODULES = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "3c": (0, 128, 160, 64, 96, 0),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "4e": (0, 128, 192, 192, 256, 0),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}

# The small network: 1×1 and 3×3 filters, or the filters of a step that halves the map.
_SMALL = {
    "3a": (32, 32),
    "3b": (32, 48),
    "3c": (80,),
    "4a": (112, 48),
    "4b": (96, 64),
    "4c": (80, 80),
    "4d": (48, 96),
    "4e": (96,),
    "5a": (176, 160),
    "5b": (176, 160),
}


def inceptionv3(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Build Inception v3 (Szegedy et al. 2015, arXiv:1512.00567), or with its auxiliary classifier.

    At 299×299, the maps are 35×35 in modules a, 17×17 in modules b and 8×8 in modules c.
    """
    net = Builder(name, channels, image_size, classes)
    conv = partial(net.conv_bn_relu, eps=1e-3)  # as in the paper
    # A 7×7 convolution is factored into a row and a column.
    row, column = partial(conv, kernel=(1, 7), padding=(0, 3)), partial(conv, kernel=(7, 1), padding=(3, 0))

    def pooled(x: Layer, filters: int) -> Layer:
        return conv(net.avg_pool(x, kernel=3, stride=1, padding=1), filters, 1)

    def split(x: Layer) -> list[Layer]:
        """Add the row and the column of a 3×3 convolution side by side, which gives many channels."""
        return [conv(x, 384, (1, 3), padding=(0, 1)), conv(x, 384, (3, 1), padding=(1, 0))]

    with net.scope("stem"):
        x = conv(net.input, 32, 3, stride=2)
        x = conv(conv(x, 32, 3), 64, 3, padding=1)
        x = net.max_pool(x, kernel=3, stride=2)
        x = conv(conv(x, 80, 1), 192, 3)
        x = net.max_pool(x, kernel=3, stride=2)
    for number, pool_filters in enumerate((32, 64, 64), start=1):
        with net.scope(f"a{number}"):
            single = conv(x, 64, 1)
            five = conv(conv(x, 48, 1), 64, 5, padding=2)
            double = conv(conv(conv(x, 64, 1), 96, 3, padding=1), 96, 3, padding=1)
            x = net.concat([single, five, double, pooled(x, pool_filters)])
    with net.scope("reduce_a"):
        three = conv(x, 384, 3, stride=2)
        double = conv(conv(conv(x, 64, 1), 96, 3, padding=1), 96, 3, stride=2)
        x = net.concat([three, double, net.max_pool(x, kernel=3, stride=2)])
    for number, filters in enumerate((128, 160, 160, 192), start=1):
        with net.scope(f"b{number}"):
            single = conv(x, 192, 1)
            seven = column(row(conv(x, filters, 1), filters), 192)
            double = row(column(conv(x, filters, 1), filters), filters)
            double = row(column(double, filters), 192)
            x = net.concat([single, seven, double, pooled(x, 192)])
    aux = None
    if name == "inceptionv3-aux":
        with net.scope("aux"):
            y = net.avg_pool(x, kernel=5, stride=3)
            y = conv(conv(y, 128, 1), 768, 5)
            aux = (net.dense(net.global_avg_pool(y), classes, name="logits"), 0.4)
    with net.scope("reduce_b"):
        three = conv(conv(x, 192, 1), 320, 3, stride=2)
        seven = column(row(conv(x, 192, 1), 192), 192)
        seven = conv(seven, 192, 3, stride=2)
        x = net.concat([three, seven, net.max_pool(x, kernel=3, stride=2)])
    for number in (1, 2):
        with net.scope(f"c{number}"):
            parts = [conv(x, 320, 1)]
            parts += split(conv(x, 384, 1))
            parts += split(conv(conv(x, 448, 1), 384, 3, padding=1))
            x = net.concat([*parts, pooled(x, 192)])
    x = net.dropout(net.global_avg_pool(x), 0.5)
    return net.finish(net.dense(x, classes, name="logits"), auxiliary=aux)


def inception_bn(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    conv = partial(net.conv_bn_relu, bias=True)
    with net.scope("stem"):
        # MXNet's pooling let the last window overhang: at 224, maps of 56×56 and 28×28. A padding
        # of 1 gives the same sizes in every framework.
        x = conv(net.input, 64, 7, stride=2, padding=3)
        x = net.max_pool(x, kernel=3, stride=2, padding=1)
        x = conv(conv(x, 64, 1), 192, 3, padding=1)
        x = net.max_pool(x, kernel=3, stride=2, padding=1)
    for module, (single, reduced, three, double_reduced, double, pooled) in _MODULES.items():
        with net.scope(f"in{module}"):
            halves = not single
            parts = [] if halves else [conv(x, single, 1)]
            stride = 2 if halves else 1
            parts.append(conv(conv(x, reduced, 1), three, 3, stride=stride, padding=1))
            y = conv(conv(x, double_reduced, 1), double, 3, padding=1)
            parts.append(conv(y, double, 3, stride=stride, padding=1))
            # The last module takes the maximum too, all others the average.
            pool = net.max_pool if halves or module == "5b" else net.avg_pool
            y = pool(x, kernel=3, stride=stride, padding=1)
            x = net.concat([*parts, y if halves else conv(y, pooled, 1)])
    return net.finish(net.dense(net.global_avg_pool(x), classes, name="logits"))


def inception_bn_28_small(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    conv = partial(net.conv_bn_relu, bias=True)
    with net.scope("stem"):
        x = conv(net.input, 96, 3, padding=1)
    for module, filters in _SMALL.items():
        with net.scope(f"in{module}"):
            if len(filters) == 2:
                x = net.concat([conv(x, filters[0], 1), conv(x, filters[1], 3, padding=1)])
            else:
                halved = conv(x, filters[0], 3, stride=2, padding=1)
                x = net.concat([halved, net.max_pool(x, kernel=3, stride=2, padding=1)])
    return net.finish(net.dense(net.global_avg_pool(x), classes, name="logits"))
