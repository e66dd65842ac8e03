"""Inception-BN (Ioffe and Szegedy 2015, arXiv:1502.03167) as MXNet's examples had it: the network for 224×224
images, and the small one for 28×28 crops of CIFAR-10. Both keep a bias in every convolution, as they did.
"""

from __future__ import annotations

from .builder import Builder, Size
from .graph import Graph, Layer

# Filters of the modules: 1×1, 3×3 reduced, 3×3, double 3×3 reduced, double 3×3, behind the pooling.
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


def inception_bn(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    with net.scope("stem"):
        # MXNet's pooling then let the last window overhang, which gave maps of 56×56 and 28×28 at 224. A padding of 1
        # gives the same sizes, and every framework can do it.
        x = _add_conv(net, net.input, 64, 7, stride=2, padding=3)
        x = net.max_pool(x, kernel=3, stride=2, padding=1)
        x = _add_conv(net, _add_conv(net, x, 64, 1), 192, 3, padding=1)
        x = net.max_pool(x, kernel=3, stride=2, padding=1)
    for module in _ORDER:
        with net.scope(f"in{module}"):
            if module in _REDUCTIONS:
                x = _add_reduction(net, x, *_REDUCTIONS[module])
            else:
                x = _add_module(net, x, _MODULES[module], max_pooled=module in _MAX_POOLED)
    x = net.global_avg_pool(x)
    return net.finish(net.dense(x, classes, name="logits"))


def _add_module(net: Builder, x: Layer, filters: tuple[int, ...], max_pooled: bool) -> Layer:
    single, reduced, three, double_reduced, double, pooled = filters
    direct = _add_conv(net, x, single, 1)
    pair = _add_conv(net, _add_conv(net, x, reduced, 1), three, 3, padding=1)
    triple = _add_conv(net, x, double_reduced, 1)
    for _ in range(2):
        triple = _add_conv(net, triple, double, 3, padding=1)
    pool = net.max_pool if max_pooled else net.avg_pool
    return net.concat([direct, pair, triple, _add_conv(net, pool(x, kernel=3, stride=1, padding=1), pooled, 1)])


def _add_reduction(net: Builder, x: Layer, reduced: int, three: int, double_reduced: int, double: int) -> Layer:
    pair = _add_conv(net, _add_conv(net, x, reduced, 1), three, 3, stride=2, padding=1)
    triple = _add_conv(net, _add_conv(net, x, double_reduced, 1), double, 3, padding=1)
    triple = _add_conv(net, triple, double, 3, stride=2, padding=1)
    return net.concat([pair, triple, net.max_pool(x, kernel=3, stride=2, padding=1)])


def inception_bn_28_small(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    with net.scope("stem"):
        x = _add_conv(net, net.input, 96, 3, padding=1)
    for module, filters in _SMALL.items():
        with net.scope(f"in{module}"):
            if len(filters) == 2:
                x = net.concat([_add_conv(net, x, filters[0], 1), _add_conv(net, x, filters[1], 3, padding=1)])
            else:
                halved = _add_conv(net, x, filters[0], 3, stride=2, padding=1)
                x = net.concat([halved, net.max_pool(x, kernel=3, stride=2, padding=1)])
    x = net.global_avg_pool(x)
    return net.finish(net.dense(x, classes, name="logits"))


def _add_conv(net: Builder, x: Layer, filters: int, kernel: Size, stride: int = 1, padding: Size = 0) -> Layer:
    return net.conv_bn_relu(x, filters, kernel, stride, padding, bias=True)
