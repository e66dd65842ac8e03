"""Networks as graphs, for every framework, added as a third party would add them."""

from __future__ import annotations

from pathlib import Path

from trainscale.worker import plugins
from trainscale.worker.job import PluginReference
from trainscale.worker.models import Builder, Graph, ModelInfo


def plain(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Without batch norm and dropout: n devices must reach the weights of one device with n times the batch."""
    net = Builder(name, channels, image_size, classes)
    x = net.relu(net.conv(net.input, 8, kernel=3, padding=1))
    x = net.max_pool(x, kernel=2, stride=2)
    x = net.relu(net.conv(x, 16, kernel=3, stride=2, padding=1))
    x = net.relu(net.dense(net.flatten(x), 64))
    return net.finish(net.dense(x, classes, name="logits"))


def every_kind(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """All layer kinds, uneven kernels, strides and paddings, both ways to count padding, two heads."""
    net = Builder(name, channels, image_size, classes)
    x = net.conv_bn_relu(net.input, 12, kernel=5, stride=2, padding=2)
    left = net.conv_bn_relu(x, 8, kernel=(1, 7), padding=(0, 3))
    right = net.avg_pool(x, kernel=3, stride=1, padding=1, count_padding=True)
    other = net.avg_pool(x, kernel=3, stride=1, padding=1, count_padding=False)
    x = net.concat([left, right, other])
    x = net.max_pool(x, kernel=3, stride=2, padding=1)
    same = net.batch_norm(net.conv(x, 32, kernel=1, bias=False), eps=1e-3)
    x = net.relu(net.add(net.conv(x, 32, kernel=3, padding=1), same))
    second = net.dense(net.flatten(net.max_pool(x, kernel=2, stride=2)), classes, name="aux.logits")
    x = net.dropout(net.global_avg_pool(x), 0.5)
    x = net.relu(net.dense(x, 24))
    return net.finish(net.dense(x, classes, name="logits"), auxiliary=(second, 0.4))


def with_biases(name: str, channels: int, image_size: int, classes: int) -> Graph:
    """Convolutions whose biases are before a batch norm, which removes them."""
    net = Builder(name, channels, image_size, classes)
    x = net.input
    for filters in (16, 24):
        x = net.relu(net.batch_norm(net.conv(x, filters, kernel=3, stride=2, padding=1, bias=True)))
    x = net.dropout(net.global_avg_pool(x), 0.2)
    return net.finish(net.dense(x, classes, name="logits"))


PLAIN = ModelInfo("plain-graph", "Plain", "graph_nets:plain", "for tests", image_size=16, classes=10)
WITH_BIASES = ModelInfo("with-biases", "Biases", "graph_nets:with_biases", "for tests", image_size=32, classes=7)
EVERY_KIND = ModelInfo("every-kind", "Every kind", "graph_nets:every_kind", "for tests", image_size=33, classes=7)


def register() -> None:
    here = str(Path(__file__).parent)
    for name, info in (("PLAIN", PLAIN), ("EVERY_KIND", EVERY_KIND), ("WITH_BIASES", WITH_BIASES)):
        plugins.add(PluginReference("model", info.name, f"graph_nets:{name}", here))
