"""A network as a graph, for the tests of Keras, added as a third party would add it."""

from __future__ import annotations

from pathlib import Path

from trainscale.worker import plugins
from trainscale.worker.job import PluginReference
from trainscale.worker.models import Builder, Graph, ModelInfo


def normed(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Batch norm without dropout, and on an even image every window whose padding is not what Keras calls "same"."""
    net = Builder(name, channels, image_size, classes)
    x = net.conv_bn_relu(net.input, 8, kernel=5, stride=2, padding=1)
    x = net.max_pool(x, kernel=3, stride=2, padding=1)
    x = net.batch_norm(net.conv(x, 12, kernel=3, stride=1, padding=(1, 0), bias=False))
    x = net.avg_pool(x, kernel=2, stride=2, padding=1, count_padding=False)
    return net.finish(net.dense(net.relu(net.dropout(net.flatten(x), 0.0)), classes, name="logits"))


NORMED = ModelInfo("normed-graph", "Normed", "keras_graphs:normed", "for tests", image_size=20, classes=10)


def register() -> None:
    here = str(Path(__file__).parent)
    plugins.add(PluginReference("model", NORMED.name, "keras_graphs:NORMED", here))
