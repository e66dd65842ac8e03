"""The EC2 instance types that trainscale knows: devices, network, price, and the batch sizes that the originals used.

Plain data. Nothing here talks to AWS, but for ``this_instance_type``, which asks the machine it runs on.
"""

from __future__ import annotations

import http.client
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field

from ...errors import unknown

# What the prices are; shown wherever one of them is.
PRICES = "rough on-demand prices of us-east-1; check yours"
# Against a public list of July 2026: p4d to p5en, g4dn but for metal, g5, g6, g6e, c7i. The others were not looked up.

_METADATA = "http://169.254.169.254"


@dataclass(frozen=True)
class Instance:
    """One type of EC2 instance, which is one host of a cluster."""

    name: str
    gpus: int  # per host; 0: this type trains on its CPU
    gpu: str
    cpus: int  # virtual ones, as AWS counts them
    efa: int  # network cards with an Elastic Fabric Adapter
    dollars: float | None  # per hour; None: not sold by the hour
    batches: Mapping[str, int] = field(default_factory=dict)  # per device, by model; else docs/defaults.md counts

    @property
    def family(self) -> str:
        return self.name.partition(".")[0]


def _family(name: str, gpu: str, *sizes: tuple[str, int, int, int, float | None], **batches: int) -> list[Instance]:
    """Types that differ in size only: (size, GPUs, CPUs, EFA cards, dollars per hour)."""
    return [
        Instance(f"{name}.{size}", gpus, gpu, cpus, efa, dollars, batches) for size, gpus, cpus, efa, dollars in sizes
    ]


def _cpu_family(name: str, dollars_per_large: float) -> list[Instance]:
    """A family without GPUs, whose price is proportional to its CPUs. Only the largest has an adapter."""
    sizes = {"large": 2, "xlarge": 4} | {f"{n}xlarge": 4 * n for n in (2, 4, 8, 12, 16, 24, 48)}
    rows = [(size, 0, n, int(n == 192), round(dollars_per_large * n / 2, 5)) for size, n in sizes.items()]
    return _family(name, "", *rows)


_ALL = [
    # The originals' clusters, with their batch sizes. AWS offers neither family to new users today.
    *_family(
        "p2",
        "NVIDIA K80",
        ("xlarge", 1, 4, 0, 0.90),
        ("8xlarge", 8, 32, 0, 7.20),
        ("16xlarge", 16, 64, 0, 14.40),
        alexnet=512,
        inceptionv3=32,
    ),
    *_family(
        "g2", "NVIDIA GRID K520", ("2xlarge", 1, 8, 0, 0.65), ("8xlarge", 4, 32, 0, 2.60), alexnet=128, inceptionv3=8
    ),
    *_family(
        "p3",
        "NVIDIA V100 16GB",
        ("2xlarge", 1, 8, 0, 3.06),
        ("8xlarge", 4, 32, 0, 12.24),
        ("16xlarge", 8, 64, 0, 24.48),
    ),
    *_family("p3dn", "NVIDIA V100 32GB", ("24xlarge", 8, 96, 1, 31.212)),
    *_family("p4d", "NVIDIA A100 40GB", ("24xlarge", 8, 96, 4, 21.957642)),
    *_family("p4de", "NVIDIA A100 80GB", ("24xlarge", 8, 96, 4, 27.44705)),
    *_family("p5", "NVIDIA H100 80GB", ("4xlarge", 1, 16, 1, 6.88), ("48xlarge", 8, 192, 32, 55.04)),
    *_family("p5e", "NVIDIA H200 141GB", ("48xlarge", 8, 192, 32, None)),  # only in reserved blocks
    *_family("p5en", "NVIDIA H200 141GB", ("48xlarge", 8, 192, 16, 63.296)),
    *_family(
        "g4dn",
        "NVIDIA T4 16GB",
        ("xlarge", 1, 4, 0, 0.526),
        ("2xlarge", 1, 8, 0, 0.752),
        ("4xlarge", 1, 16, 0, 1.204),
        ("8xlarge", 1, 32, 1, 2.176),
        ("12xlarge", 4, 48, 1, 3.912),
        ("16xlarge", 1, 64, 1, 4.352),
        ("metal", 8, 96, 1, 7.824),
    ),
    *_family(
        "g5",
        "NVIDIA A10G 24GB",
        ("xlarge", 1, 4, 0, 1.006),
        ("2xlarge", 1, 8, 0, 1.212),
        ("4xlarge", 1, 16, 0, 1.624),
        ("8xlarge", 1, 32, 1, 2.448),
        ("12xlarge", 4, 48, 1, 5.672),
        ("16xlarge", 1, 64, 1, 4.096),
        ("24xlarge", 4, 96, 1, 8.144),
        ("48xlarge", 8, 192, 1, 16.288),
    ),
    *_family(
        "g6",
        "NVIDIA L4 24GB",
        ("xlarge", 1, 4, 0, 0.8048),
        ("2xlarge", 1, 8, 0, 0.9776),
        ("4xlarge", 1, 16, 0, 1.3232),
        ("8xlarge", 1, 32, 1, 2.0144),
        ("12xlarge", 4, 48, 1, 4.6016),
        ("16xlarge", 1, 64, 1, 3.3968),
        ("24xlarge", 4, 96, 1, 6.6752),
        ("48xlarge", 8, 192, 1, 13.3504),
    ),
    *_family(
        "g6e",
        "NVIDIA L40S 48GB",
        ("xlarge", 1, 4, 0, 1.861),
        ("2xlarge", 1, 8, 0, 2.24208),
        ("4xlarge", 1, 16, 0, 3.00424),
        ("8xlarge", 1, 32, 1, 4.52856),
        ("12xlarge", 4, 48, 1, 10.49264),
        ("16xlarge", 1, 64, 1, 7.57719),
        ("24xlarge", 4, 96, 2, 15.06559),
        ("48xlarge", 8, 192, 4, 30.13118),
    ),
    *_cpu_family("c7i", 0.08925),
    *_cpu_family("m7i", 0.1008),
]
INSTANCES: dict[str, Instance] = {one.name: one for one in _ALL}


def instance(name: str, where: str = "") -> Instance:
    """The type of that name; ``where`` is the flag to name in the message when there is none."""
    if name not in INSTANCES:
        raise unknown("instance type", name, INSTANCES, where)
    return INSTANCES[name]


def this_instance_type(metadata: str = _METADATA, seconds: float = 1.0) -> str | None:
    """The EC2 instance type of this machine, from EC2's metadata service (version 2). None: not on EC2.

    The address answers on EC2 only; elsewhere it may be swallowed by a router, hence the time-out. Not called unless
    somebody asks for it.
    """
    # Proxies are for the world outside; the service is on the machine itself.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    token = urllib.request.Request(
        f"{metadata}/latest/api/token", method="PUT", headers={"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    )
    try:
        with direct.open(token, timeout=seconds) as answer:
            headers = {"X-aws-ec2-metadata-token": answer.read().decode()}
        wanted = urllib.request.Request(f"{metadata}/latest/meta-data/instance-type", headers=headers)
        with direct.open(wanted, timeout=seconds) as answer:
            return answer.read().decode().strip() or None
    except (OSError, http.client.HTTPException, ValueError):  # no route, refused, time-out, an error status, not text
        return None
