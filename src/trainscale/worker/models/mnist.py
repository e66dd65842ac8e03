"""The small convolutional network of the deep-MNIST tutorials. A laptop's CPU trains it in minutes."""

from __future__ import annotations

from .builder import Builder
from .graph import Graph


def mnist(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    x = net.input
    for filters in (32, 64):
        x = net.relu(net.conv(x, filters, kernel=5, padding=2))
        x = net.max_pool(x, kernel=2, stride=2)
    x = net.relu(net.dense(net.flatten(x), 1024))
    x = net.dropout(x, 0.5)
    return net.finish(net.dense(x, classes, name="logits"))
