"""Batch sizes by device, in one table; and a rough pace, so that a plan can say about how long it takes."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True)
class Row:
    """Batch per device of each model; ``rest`` serves the models that are not named."""

    device: str
    matches: tuple[str, ...]  # parts of a device's name
    least_memory_bytes: int  # used when no name matches
    batches: dict[str, int]
    rest: int
    flops: float  # sustained in training, 32-bit; for estimates only


# AlexNet and Inception v3 on the K80 and K520 are those of the AWS P2 and G2 instances in
# awslabs/deeplearning-benchmark. Modern GPUs go by memory: a batch that fits with room to spare at 32-bit. CPU sizes
# let a step of any of these networks take a few seconds on one core at most.
TABLE = (
    Row(
        "AWS P2 (K80)", ("K80",), 0,
        {"alexnet": 512, "mnist": 512, "inception-bn-28-small": 256, "resnet50-cifar": 256},
        32, 2e12,
    ),
    Row(
        "AWS G2 (K520)", ("K520",), 0,
        {"alexnet": 128, "mnist": 256, "inception-bn-28-small": 128, "resnet50-cifar": 128},
        8, 1e12,
    ),
    Row(
        "GPU, 64 GiB and more", (), 64 * GIB,
        {"alexnet": 1024, "resnet18": 512, "resnet34": 512, "vgg16": 128, "resnet101": 128, "resnet152": 128,
         "mnist": 2048, "inception-bn-28-small": 1024, "resnet50-cifar": 1024},
        256, 3e13,
    ),
    Row(
        "GPU, 32 GiB and more", (), 32 * GIB,
        {"alexnet": 1024, "resnet18": 256, "resnet34": 256, "vgg16": 64, "resnet101": 64, "resnet152": 64,
         "mnist": 1024, "inception-bn-28-small": 512, "resnet50-cifar": 512},
        128, 1.2e13,
    ),
    Row(
        "GPU, 14 GiB and more", (), 14 * GIB,
        {"alexnet": 512, "resnet18": 128, "resnet34": 128, "vgg16": 32, "resnet101": 32, "resnet152": 32,
         "mnist": 512, "inception-bn-28-small": 256, "resnet50-cifar": 256},
        64, 6e12,
    ),
    Row(
        "GPU, smaller", (), 0,
        {"alexnet": 128, "mnist": 256, "inception-bn-28-small": 128, "resnet50-cifar": 128},
        8, 3e12,
    ),
)  # fmt: skip
CPU = Row(
    "CPU, a core", (), 0,
    {"alexnet": 8, "mnist": 64, "inception-bn-28-small": 16, "resnet50-cifar": 16, "resnet18": 4, "resnet34": 4},
    2, 6e10,
)  # fmt: skip


def row_for(kind: str, name: str = "", memory_bytes: int = 0) -> Row:
    if kind == "cpu":
        return CPU
    for row in TABLE:
        if any(part in name for part in row.matches):
            return row
    return next(row for row in TABLE if not row.matches and memory_bytes >= row.least_memory_bytes)


def batch_for(model: str, row: Row) -> int:
    return row.batches.get(model, row.rest)
