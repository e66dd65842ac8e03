"""VGG-16 (Simonyan and Zisserman 2014, arXiv:1409.1556, configuration D): a plain and heavy chain."""

from __future__ import annotations

from .builder import Builder
from .graph import Graph

# Filters, and the number of 3×3 convolutions between two poolings.
_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))


def vgg16(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Build VGG-16. At 224 the last map is 7×7; at other sizes the first dense layer is larger or smaller."""
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
