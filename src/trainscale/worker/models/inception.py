"""The Inception networks. Inception v3 (Szegedy et al. 2015, arXiv:1512.00567), with and without its auxiliary
classifier, has many operations and few parameters: the counterpart of AlexNet in a scaling study.

Inception-BN (Ioffe and Szegedy 2015, arXiv:1502.03167) is as MXNet's examples had it: the network for 224×224 images,
and the small one for 28×28 crops of CIFAR-10. Both keep a bias in every convolution, as they did.
"""

from __future__ import annotations

from .builder import Builder, Size
from .graph import Graph, Layer

_EPS = 1e-3  # the paper's batch norm; all other networks here use 1e-5
_AUXILIARY_LOSS_WEIGHT = 0.4
_DROPOUT = 0.5

# Inception-BN, filters of the modules: 1×1, 3×3 reduced, 3×3, double 3×3 reduced, double 3×3, behind the pooling.
_MODULES = {
    "3a": (64, 64, 64, 64, 96, 32),
    "3b": (64, 64, 96, 64, 96, 64),
    "4a": (224, 64, 96, 96, 128, 128),
    "4b": (192, 96, 128, 96, 128, 128),
    "4c": (160, 128, 160, 128, 160, 128),
    "4d": (96, 128, 192, 160, 192, 128),
    "5a": (352, 192, 320, 160, 224, 128),
    "5b": (352, 192, 320, 192, 224, 128),
}

# Filters of the modules that halve the map: 3×3 reduced, 3×3, double 3×3 reduced, double 3×3.
_REDUCTIONS = {"3c": (128, 160, 64, 96), "4e": (128, 192, 192, 256)}

_ORDER = ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b")
_MAX_POOLED = ("5b",)  # the last module's pooling branch takes the maximum, all others the average

# The small network: a pair is (1×1 filters, 3×3 filters), a single number the filters of a halving step.
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
    return _inception(Builder(name, channels, image_size, classes), auxiliary=False)


def inceptionv3_aux(name: str, channels: int, image_size: int, classes: int) -> Graph:
    return _inception(Builder(name, channels, image_size, classes), auxiliary=True)


def _inception(net: Builder, auxiliary: bool) -> Graph:
    """Build Inception v3. At 299×299, the maps are 35×35 in modules a, 17×17 in modules b and 8×8 in modules c."""
    with net.scope("stem"):
        x = _add_stem(net)
    for number, pool_filters in enumerate((32, 64, 64), start=1):
        with net.scope(f"a{number}"):
            x = _add_module_a(net, x, pool_filters)
    with net.scope("reduce_a"):
        x = _add_reduction_a(net, x)
    for number, filters in enumerate((128, 160, 160, 192), start=1):
        with net.scope(f"b{number}"):
            x = _add_module_b(net, x, filters)
    aux = None
    if auxiliary:
        with net.scope("aux"):
            aux = (_add_auxiliary_logits(net, x), _AUXILIARY_LOSS_WEIGHT)
    with net.scope("reduce_b"):
        x = _add_reduction_b(net, x)
    for number in (1, 2):
        with net.scope(f"c{number}"):
            x = _add_module_c(net, x)
    x = net.dropout(net.global_avg_pool(x), _DROPOUT)
    return net.finish(net.dense(x, net.classes, name="logits"), auxiliary=aux)


def _add_stem(net: Builder) -> Layer:
    x = _add_conv(net, net.input, 32, 3, stride=2)
    x = _add_conv(net, x, 32, 3)
    x = _add_conv(net, x, 64, 3, padding=1)
    x = net.max_pool(x, kernel=3, stride=2)
    x = _add_conv(net, x, 80, 1)
    x = _add_conv(net, x, 192, 3)
    return net.max_pool(x, kernel=3, stride=2)


def _add_module_a(net: Builder, x: Layer, pool_filters: int) -> Layer:
    single = _add_conv(net, x, 64, 1)
    five = _add_conv(net, _add_conv(net, x, 48, 1), 64, 5, padding=2)
    double = _add_conv(net, x, 64, 1)
    for _ in range(2):
        double = _add_conv(net, double, 96, 3, padding=1)
    return net.concat([single, five, double, _add_pool_branch(net, x, pool_filters)])


def _add_reduction_a(net: Builder, x: Layer) -> Layer:
    three = _add_conv(net, x, 384, 3, stride=2)
    double = _add_conv(net, _add_conv(net, x, 64, 1), 96, 3, padding=1)
    double = _add_conv(net, double, 96, 3, stride=2)
    return net.concat([three, double, net.max_pool(x, kernel=3, stride=2)])


def _add_module_b(net: Builder, x: Layer, filters: int) -> Layer:
    """Add 7×7 convolutions, each factored into a row and a column."""
    single = _add_conv(net, x, 192, 1)
    seven = _add_conv(net, x, filters, 1)
    seven = _add_row7(net, seven, filters)
    seven = _add_column7(net, seven, 192)
    double = _add_conv(net, x, filters, 1)
    double = _add_column7(net, double, filters)
    double = _add_row7(net, double, filters)
    double = _add_column7(net, double, filters)
    double = _add_row7(net, double, 192)
    return net.concat([single, seven, double, _add_pool_branch(net, x, 192)])


def _add_reduction_b(net: Builder, x: Layer) -> Layer:
    three = _add_conv(net, _add_conv(net, x, 192, 1), 320, 3, stride=2)
    seven = _add_row7(net, _add_conv(net, x, 192, 1), 192)
    seven = _add_column7(net, seven, 192)
    seven = _add_conv(net, seven, 192, 3, stride=2)
    return net.concat([three, seven, net.max_pool(x, kernel=3, stride=2)])


def _add_module_c(net: Builder, x: Layer) -> Layer:
    """Add 3×3 convolutions whose row and column are side by side, which gives many channels."""
    single = _add_conv(net, x, 320, 1)
    three = _add_conv(net, x, 384, 1)
    three_row = _add_conv(net, three, 384, (1, 3), padding=(0, 1))
    three_column = _add_conv(net, three, 384, (3, 1), padding=(1, 0))
    double = _add_conv(net, _add_conv(net, x, 448, 1), 384, 3, padding=1)
    double_row = _add_conv(net, double, 384, (1, 3), padding=(0, 1))
    double_column = _add_conv(net, double, 384, (3, 1), padding=(1, 0))
    pooled = _add_pool_branch(net, x, 192)
    return net.concat([single, three_row, three_column, double_row, double_column, pooled])


def _add_auxiliary_logits(net: Builder, x: Layer) -> Layer:
    x = net.avg_pool(x, kernel=5, stride=3)
    x = _add_conv(net, _add_conv(net, x, 128, 1), 768, 5)
    return net.dense(net.global_avg_pool(x), net.classes, name="logits")


def _add_pool_branch(net: Builder, x: Layer, filters: int) -> Layer:
    return _add_conv(net, net.avg_pool(x, kernel=3, stride=1, padding=1), filters, 1)


def _add_row7(net: Builder, x: Layer, filters: int) -> Layer:
    return _add_conv(net, x, filters, (1, 7), padding=(0, 3))


def _add_column7(net: Builder, x: Layer, filters: int) -> Layer:
    return _add_conv(net, x, filters, (7, 1), padding=(3, 0))


def _add_conv(net: Builder, x: Layer, filters: int, kernel: Size, stride: int = 1, padding: Size = 0) -> Layer:
    return net.conv_bn_relu(x, filters, kernel, stride, padding, eps=_EPS)


def inception_bn(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    with net.scope("stem"):
        # MXNet's pooling then let the last window overhang, which gave maps of 56×56 and 28×28 at 224. A padding of 1
        # gives the same sizes, and every framework can do it.
        x = _add_biased(net, net.input, 64, 7, stride=2, padding=3)
        x = net.max_pool(x, kernel=3, stride=2, padding=1)
        x = _add_biased(net, _add_biased(net, x, 64, 1), 192, 3, padding=1)
        x = net.max_pool(x, kernel=3, stride=2, padding=1)
    for module in _ORDER:
        with net.scope(f"in{module}"):
            if module in _REDUCTIONS:
                x = _add_bn_reduction(net, x, *_REDUCTIONS[module])
            else:
                x = _add_bn_module(net, x, _MODULES[module], max_pooled=module in _MAX_POOLED)
    x = net.global_avg_pool(x)
    return net.finish(net.dense(x, classes, name="logits"))


def _add_bn_module(net: Builder, x: Layer, filters: tuple[int, ...], max_pooled: bool) -> Layer:
    single, reduced, three, double_reduced, double, pooled = filters
    direct = _add_biased(net, x, single, 1)
    pair = _add_biased(net, _add_biased(net, x, reduced, 1), three, 3, padding=1)
    triple = _add_biased(net, x, double_reduced, 1)
    for _ in range(2):
        triple = _add_biased(net, triple, double, 3, padding=1)
    pool = net.max_pool if max_pooled else net.avg_pool
    return net.concat([direct, pair, triple, _add_biased(net, pool(x, kernel=3, stride=1, padding=1), pooled, 1)])


def _add_bn_reduction(net: Builder, x: Layer, reduced: int, three: int, double_reduced: int, double: int) -> Layer:
    pair = _add_biased(net, _add_biased(net, x, reduced, 1), three, 3, stride=2, padding=1)
    triple = _add_biased(net, _add_biased(net, x, double_reduced, 1), double, 3, padding=1)
    triple = _add_biased(net, triple, double, 3, stride=2, padding=1)
    return net.concat([pair, triple, net.max_pool(x, kernel=3, stride=2, padding=1)])


def inception_bn_28_small(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    with net.scope("stem"):
        x = _add_biased(net, net.input, 96, 3, padding=1)
    for module, filters in _SMALL.items():
        with net.scope(f"in{module}"):
            if len(filters) == 2:
                x = net.concat([_add_biased(net, x, filters[0], 1), _add_biased(net, x, filters[1], 3, padding=1)])
            else:
                halved = _add_biased(net, x, filters[0], 3, stride=2, padding=1)
                x = net.concat([halved, net.max_pool(x, kernel=3, stride=2, padding=1)])
    x = net.global_avg_pool(x)
    return net.finish(net.dense(x, classes, name="logits"))


def _add_biased(net: Builder, x: Layer, filters: int, kernel: Size, stride: int = 1, padding: Size = 0) -> Layer:
    return net.conv_bn_relu(x, filters, kernel, stride, padding, bias=True)
