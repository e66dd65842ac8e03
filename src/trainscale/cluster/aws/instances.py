"""The EC2 instance types that trainscale knows: devices, network, and the batch sizes of the original scripts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import explain_unknown


@dataclass(frozen=True)
class InstanceType:
    """A type of EC2 instance. Each instance is one host of a cluster."""

    name: str
    gpus: int  # per host; 0 for a type that trains on its CPU
    gpu: str
    cpus: int  # virtual CPUs
    efa: int  # network cards with an Elastic Fabric Adapter
    batches: Mapping[str, int] = field(default_factory=dict)  # per device, by model; otherwise see docs/defaults.md

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]


def _make_family(name: str, gpu: str, *sizes: tuple[str, int, int, int], **batches: int) -> list[InstanceType]:
    """Return types that differ only in size: (size, GPUs, CPUs, EFA cards)."""
    return [InstanceType(f"{name}.{size}", gpus, gpu, cpus, efa, batches) for size, gpus, cpus, efa in sizes]


def _make_cpu_family(name: str) -> list[InstanceType]:
    """Return a family without GPUs. Only its largest type has an EFA card."""
    sizes = {"large": 2, "xlarge": 4} | {f"{n}xlarge": 4 * n for n in (2, 4, 8, 12, 16, 24, 48)}
    return _make_family(name, "", *((size, 0, cpus, int(cpus == 192)) for size, cpus in sizes.items()))


_ALL = [
    # The clusters of the original scripts, with their batch sizes. AWS offers neither family to new users today.
    *_make_family(
        "p2",
        "NVIDIA K80",
        ("xlarge", 1, 4, 0),
        ("8xlarge", 8, 32, 0),
        ("16xlarge", 16, 64, 0),
        alexnet=512,
        inceptionv3=32,
    ),
    *_make_family("g2", "NVIDIA GRID K520", ("2xlarge", 1, 8, 0), ("8xlarge", 4, 32, 0), alexnet=128, inceptionv3=8),
    *_make_family(
        "p3",
        "NVIDIA V100 16GB",
        ("2xlarge", 1, 8, 0),
        ("8xlarge", 4, 32, 0),
        ("16xlarge", 8, 64, 0),
    ),
    *_make_family("p3dn", "NVIDIA V100 32GB", ("24xlarge", 8, 96, 1)),
    *_make_family("p4d", "NVIDIA A100 40GB", ("24xlarge", 8, 96, 4)),
    *_make_family("p4de", "NVIDIA A100 80GB", ("24xlarge", 8, 96, 4)),
    *_make_family("p5", "NVIDIA H100 80GB", ("4xlarge", 1, 16, 1), ("48xlarge", 8, 192, 32)),
    *_make_family("p5e", "NVIDIA H200 141GB", ("48xlarge", 8, 192, 32)),
    *_make_family("p5en", "NVIDIA H200 141GB", ("48xlarge", 8, 192, 16)),
    *_make_family(
        "g4dn",
        "NVIDIA T4 16GB",
        ("xlarge", 1, 4, 0),
        ("2xlarge", 1, 8, 0),
        ("4xlarge", 1, 16, 0),
        ("8xlarge", 1, 32, 1),
        ("12xlarge", 4, 48, 1),
        ("16xlarge", 1, 64, 1),
        ("metal", 8, 96, 1),
    ),
    *_make_family(
        "g5",
        "NVIDIA A10G 24GB",
        ("xlarge", 1, 4, 0),
        ("2xlarge", 1, 8, 0),
        ("4xlarge", 1, 16, 0),
        ("8xlarge", 1, 32, 1),
        ("12xlarge", 4, 48, 1),
        ("16xlarge", 1, 64, 1),
        ("24xlarge", 4, 96, 1),
        ("48xlarge", 8, 192, 1),
    ),
    *_make_family(
        "g6",
        "NVIDIA L4 24GB",
        ("xlarge", 1, 4, 0),
        ("2xlarge", 1, 8, 0),
        ("4xlarge", 1, 16, 0),
        ("8xlarge", 1, 32, 1),
        ("12xlarge", 4, 48, 1),
        ("16xlarge", 1, 64, 1),
        ("24xlarge", 4, 96, 1),
        ("48xlarge", 8, 192, 1),
    ),
    *_make_family(
        "g6e",
        "NVIDIA L40S 48GB",
        ("xlarge", 1, 4, 0),
        ("2xlarge", 1, 8, 0),
        ("4xlarge", 1, 16, 0),
        ("8xlarge", 1, 32, 1),
        ("12xlarge", 4, 48, 1),
        ("16xlarge", 1, 64, 1),
        ("24xlarge", 4, 96, 2),
        ("48xlarge", 8, 192, 4),
    ),
    *_make_cpu_family("c7i"),
    *_make_cpu_family("m7i"),
]
INSTANCE_TYPES: dict[str, InstanceType] = {instance_type.name: instance_type for instance_type in _ALL}


def find_instance_type(name: str, where: str = "") -> InstanceType:
    """Return the type with this name. ``where`` is the flag that the error message names."""
    if name not in INSTANCE_TYPES:
        raise explain_unknown("instance type", name, INSTANCE_TYPES, where)
    return INSTANCE_TYPES[name]
