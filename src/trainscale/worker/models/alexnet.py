"""AlexNet in its one-tower form (Krizhevsky 2014, arXiv:1404.5997). It has few operations and many parameters, so that
communication limits how it scales. It has no local response normalization, as in today's libraries.
"""

from __future__ import annotations

from .builder import Builder
from .graph import Graph


def alexnet(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Build AlexNet. At 224 the last map is 6×6; at other sizes the first dense layer is larger or smaller."""
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
