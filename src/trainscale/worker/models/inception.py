"""Inception v3 (Szegedy et al. 2015, arXiv:1512.00567), with and without its auxiliary classifier: many
operations and few parameters, the counterpart of AlexNet in a scaling study.
"""

from __future__ import annotations

from .builder import Builder, Size
from .graph import Graph, Layer

_EPS = 1e-3  # the paper's batch norm; all other networks here use 1e-5
_AUXILIARY_LOSS_WEIGHT = 0.4
_DROPOUT = 0.5


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
