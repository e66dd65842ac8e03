"""Default batches by kind of device, and its rough speed, from which a plan estimates its time."""

from __future__ import annotations

from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True)
class DeviceDefaults:
    """The default batch per device of each network; ``other_batch`` is that of networks that are not named."""

    device: str
    name_parts: tuple[str, ...]  # a device whose name contains one of these is meant
    least_memory_bytes: int  # where no name matches
    batches: dict[str, int]
    other_batch: int
    flops: float  # sustained in 32-bit training; for estimates only

    def choose_batch(self, model: str) -> int:
        return self.batches.get(model, self.other_batch)


# The batches of AlexNet and Inception v3 on the K80 and K520 are those of the AWS P2 and G2 instances in
# awslabs/deeplearning-benchmark. Those of modern GPUs go by memory: a 32-bit batch fits with room to spare. With those
# of CPUs, a step of any of these networks takes at most a few seconds on one core.
GPUS = (
    DeviceDefaults(
        "AWS P2 (K80)", ("K80",), 0,
        {"alexnet": 512, "mnist": 512, "inception-bn-28-small": 256, "resnet50-cifar": 256},
        32, 2e12,
    ),
    DeviceDefaults(
        "AWS G2 (K520)", ("K520",), 0,
        {"alexnet": 128, "mnist": 256, "inception-bn-28-small": 128, "resnet50-cifar": 128},
        8, 1e12,
    ),
    DeviceDefaults(
        "GPU, 64 GiB and more", (), 64 * GIB,
        {"alexnet": 1024, "resnet18": 512, "resnet34": 512, "vgg16": 128, "resnet101": 128, "resnet152": 128,
         "mnist": 2048, "inception-bn-28-small": 1024, "resnet50-cifar": 1024},
        256, 3e13,
    ),
    DeviceDefaults(
        "GPU, 32 GiB and more", (), 32 * GIB,
        {"alexnet": 1024, "resnet18": 256, "resnet34": 256, "vgg16": 64, "resnet101": 64, "resnet152": 64,
         "mnist": 1024, "inception-bn-28-small": 512, "resnet50-cifar": 512},
        128, 1.2e13,
    ),
    DeviceDefaults(
        "GPU, 14 GiB and more", (), 14 * GIB,
        {"alexnet": 512, "resnet18": 128, "resnet34": 128, "vgg16": 32, "resnet101": 32, "resnet152": 32,
         "mnist": 512, "inception-bn-28-small": 256, "resnet50-cifar": 256},
        64, 6e12,
    ),
    DeviceDefaults(
        "GPU, smaller", (), 0,
        {"alexnet": 128, "mnist": 256, "inception-bn-28-small": 128, "resnet50-cifar": 128},
        8, 3e12,
    ),
)  # fmt: skip
CPU = DeviceDefaults(
    "CPU, a core", (), 0,
    {"alexnet": 8, "mnist": 64, "inception-bn-28-small": 16, "resnet50-cifar": 16, "resnet18": 4, "resnet34": 4},
    2, 6e10,
)  # fmt: skip


def choose_defaults(kind: str, device_name: str = "", memory_bytes: int = 0) -> DeviceDefaults:
    if kind == "cpu":
        return CPU
    for gpu in GPUS:
        if any(part in device_name for part in gpu.name_parts):
            return gpu
    return next(gpu for gpu in GPUS if not gpu.name_parts and memory_bytes >= gpu.least_memory_bytes)
