"""A training script as a person writes it: no trainscale, no harness. One process on one core, run by the Python that
has MXNet; prints images per second.

python bench/bare_mxnet.py --depth 18 --image-size 96 --batch 8
"""

import argparse
import os
import time
from typing import Any

# MXNet reads these when it is imported.
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import mxnet as mx  # noqa: E402
from mxnet import autograd, gluon  # noqa: E402
from mxnet.gluon import nn  # noqa: E402

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


class Block(gluon.HybridBlock):
    """Two 3×3 convolutions, or 1×1, 3×3, 1×1 (with the stride on the 3×3) in the deep networks."""

    def __init__(self, channels: int, width: int, stride: int, deep: bool) -> None:
        super().__init__()
        out = width * 4 if deep else width
        kernels = (1, 3, 1) if deep else (3, 3)
        sizes = (width, width, out) if deep else (width, out)
        strides = (1, stride, 1) if deep else (stride, 1)
        self.body = nn.HybridSequential()
        for i, kernel in enumerate(kernels):
            self.body.add(nn.Conv2D(sizes[i], kernel, strides[i], kernel // 2, use_bias=False), nn.BatchNorm())
            if i < len(kernels) - 1:
                self.body.add(nn.Activation("relu"))
        self.short = nn.HybridSequential()
        if stride != 1 or channels != out:
            self.short.add(nn.Conv2D(out, 1, stride, use_bias=False), nn.BatchNorm())

    def hybrid_forward(self, F: Any, x: Any) -> Any:
        return F.Activation(self.body(x) + self.short(x), act_type="relu")


def resnet(depth: int) -> gluon.HybridBlock:
    deep = depth >= 50
    net = nn.HybridSequential()
    net.add(nn.Conv2D(64, 7, 2, 3, use_bias=False), nn.BatchNorm(), nn.Activation("relu"), nn.MaxPool2D(3, 2, 1))
    channels = 64
    for stage, count in enumerate(STAGES[depth]):
        width = 64 << stage
        for block in range(count):
            net.add(Block(channels, width, 2 if stage and not block else 1, deep))
            channels = width * 4 if deep else width
    net.add(nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(1000))
    return net


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--depth", type=int, default=18, choices=STAGES)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--steps", type=int, default=100)
    options = parser.parse_args()

    mx.random.seed(0)
    net = resnet(options.depth)
    net.initialize(mx.init.Xavier())
    net.hybridize(static_alloc=True, static_shape=True)
    criterion = gluon.loss.SoftmaxCrossEntropyLoss()
    criterion.hybridize(static_alloc=True, static_shape=True)
    trainer = gluon.Trainer(net.collect_params(), "sgd", {"learning_rate": 0.001, "momentum": 0.9, "wd": 1e-4})
    size = options.image_size
    images = mx.nd.random.normal(shape=(options.batch, 3, size, size))
    labels = mx.nd.random.randint(0, 1000, (options.batch,))

    def step() -> None:
        with autograd.record():
            loss = criterion(net(images), labels)
        loss.backward()
        trainer.step(options.batch)

    for _ in range(options.warmup):
        step()
    mx.nd.waitall()
    began = time.perf_counter()
    for _ in range(options.steps):
        step()
    mx.nd.waitall()
    seconds = time.perf_counter() - began
    print(f"images/s {options.batch * options.steps / seconds:.3f}", flush=True)


if __name__ == "__main__":
    main()
