"""Residual networks: the v1.5 family (He et al. 2015, arXiv:1512.03385, with the stride on the 3×3, which is what
libraries call ResNet-50 today) and the pre-activation ResNet-50 of the Keras-MXNet profile.
"""

from __future__ import annotations

from typing import Callable

from .builder import Builder
from .graph import Graph, Layer

# Residual blocks in each of the four stages.
_DEPTHS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
_STAGE_FILTERS = (64, 128, 256, 512)
_EXPANSION = 4  # a bottleneck block has four times as many output channels as inner ones

# Keras 1.2's default, which the Keras-MXNet profile did not change.
_KERAS_EPS = 1e-3

_Block = Callable[[Builder, Layer, int, int], Layer]


def resnet18(name: str, channels: int, image_size: int, classes: int) -> Graph:
    return _resnet(Builder(name, channels, image_size, classes), _add_basic_block, _DEPTHS[18])


def resnet34(name: str, channels: int, image_size: int, classes: int) -> Graph:
    return _resnet(Builder(name, channels, image_size, classes), _add_basic_block, _DEPTHS[34])


def resnet50(name: str, channels: int, image_size: int, classes: int) -> Graph:
    return _resnet(Builder(name, channels, image_size, classes), _add_bottleneck_block, _DEPTHS[50])


def resnet101(name: str, channels: int, image_size: int, classes: int) -> Graph:
    return _resnet(Builder(name, channels, image_size, classes), _add_bottleneck_block, _DEPTHS[101])


def resnet152(name: str, channels: int, image_size: int, classes: int) -> Graph:
    return _resnet(Builder(name, channels, image_size, classes), _add_bottleneck_block, _DEPTHS[152])


def _resnet(net: Builder, block: _Block, depths: tuple[int, ...]) -> Graph:
    with net.scope("stem"):
        x = net.conv_bn_relu(net.input, 64, kernel=7, stride=2, padding=3)
        x = net.max_pool(x, kernel=3, stride=2, padding=1)
    x = _add_stages(net, x, block, depths)
    x = net.global_avg_pool(x)
    return net.finish(net.dense(x, net.classes, name="logits"))


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
    """Build a pre-activation ResNet-50 (arXiv:1603.05027) with the stride on the first 1×1 and biases.

    Its stem is made for large images, which is odd for 32×32. It stays so, because the published numbers are of this
    network.
    """
    net = Builder(name, channels, image_size, classes)
    with net.scope("stem"):
        x = net.conv_bn_relu(net.input, 64, kernel=7, stride=2, padding=3, bias=True, eps=_KERAS_EPS)
        x = net.max_pool(x, kernel=3, stride=2)
    x = _add_stages(net, x, _add_preactivation_block, _DEPTHS[50])
    x = net.relu(net.batch_norm(x, _KERAS_EPS))
    x = net.global_avg_pool(x)
    return net.finish(net.dense(x, classes, name="logits"))


def _add_preactivation_block(net: Builder, x: Layer, filters: int, stride: int) -> Layer:
    # The stem has just normalized its output, so the very first block does not do it again.
    y = x if x.kind == "max_pool" else net.relu(net.batch_norm(x, _KERAS_EPS))
    y = net.conv(y, filters, kernel=1, stride=stride)
    y = net.conv(net.relu(net.batch_norm(y, _KERAS_EPS)), filters, kernel=3, padding=1)
    y = net.conv(net.relu(net.batch_norm(y, _KERAS_EPS)), filters * _EXPANSION, kernel=1)
    if x.shape != y.shape:
        x = net.conv(x, filters * _EXPANSION, kernel=1, stride=stride, name="shortcut")
    return net.add(y, x)
