"""Networks whose layers form a chain: AlexNet, VGG-16 and Deep MNIST.

Their first dense layer is larger or smaller where the image is.
"""

from __future__ import annotations

from .builder import Builder
from .graph import Graph

# VGG-16: filters, and the number of 3×3 convolutions between two poolings.
_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def alexnet(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Build AlexNet in its one-tower form (Krizhevsky 2014, arXiv:1404.5997). At 224 the last map is 6×6.

    It has few operations and many parameters, so that communication limits how it scales. It has no local response
    normalization, as in today's libraries.
    """
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
    """Build VGG-16 (Simonyan and Zisserman 2014, arXiv:1409.1556, configuration D). At 224 the last map is 7×7."""
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
