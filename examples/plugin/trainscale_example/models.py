"""The model ``tiny``: a function that writes a graph, and the entry that tells trainscale about it."""

from __future__ import annotations

from trainscale.worker.models import Builder, Graph, ModelInfo


def tiny(name: str, channels: int, image_size: int, classes: int) -> Graph:
    net = Builder(name, channels, image_size, classes)
    x = net.conv_bn_relu(net.input, 16, kernel=3, stride=2, padding=1)
    x = net.max_pool(x, kernel=2, stride=2)
    x = net.dropout(net.global_avg_pool(x), 0.2)
    return net.finish(net.dense(x, classes, name="logits"))


TINY = ModelInfo(
    name="tiny",
    title="Tiny",
    builder="trainscale_example.models:tiny",
    description="one convolution, from the example of a plug-in",
    aliases=("tiny-net",),
    image_size=32,
    classes=10,
)
