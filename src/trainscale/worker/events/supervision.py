"""The events that come from the keeper, from the bootstrap that precedes it, and from the client that holds the nodes
of a Ray cluster (launch/launchers/ray_client.py).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import Event


@dataclass(frozen=True)
class Bootstrap(Event):
    """Whether the host has the worker already; then where it is and which Python runs it, or an error."""

    kind = "bootstrap"
    sender = "bootstrap"
    has: bool | None = None
    start: str = ""
    python: str = ""
    version: str = ""
    error: str = ""


@dataclass(frozen=True)
class Ports(Event):
    """Free ports of the keeper's host and the time of its clock, or an error."""

    kind = "ports"
    sender = "keeper"
    ports: list[int] = field(default_factory=list)
    clock: float = 0.0
    error: str = ""


@dataclass(frozen=True)
class LogLine(Event):
    """A line that a task printed, or a part of a long one."""

    kind = "log"
    sender = "keeper"
    text: str
    stream: str = "stdout"
    more: bool = False  # the line continues in the next event of this stream


@dataclass(frozen=True)
class GpuMemoryPeak(Event):
    """The GPU memory that the driver counted for a rank's processes, or why that is unknown."""

    kind = "nvml"
    sender = "keeper, before the exit of a rank on a GPU"
    peak_bytes: int | None = None
    note: str = ""


@dataclass(frozen=True)
class GpuWindow(Event):
    """What a rank's GPU did in its window: clocks, power, temperature, what limited the clocks, and traffic."""

    kind = "gpu"
    sender = "keeper, after the result of a rank on a GPU"
    samples: int
    sm_mhz_mean: float | None = None
    sm_mhz_min: int | None = None
    sm_mhz_limit: int | None = None  # the highest clock that the GPU has
    memory_mhz_mean: float | None = None
    memory_mhz_min: int | None = None
    memory_mhz_limit: int | None = None
    watts_mean: float | None = None
    watts_limit: float | None = None
    celsius_max: int | None = None
    limited_share: float = 0.0  # of the samples, in which something limited the clocks
    limited_by: dict[str, float] = field(default_factory=dict)  # the share of each reason
    pcie_sent_per_second: float | None = None  # bytes
    pcie_received_per_second: float | None = None
    nvlink_sent_per_second: float | None = None
    nvlink_received_per_second: float | None = None


@dataclass(frozen=True)
class Exit(Event):
    """A task's exit code (negative for a signal) and the last lines that it printed."""

    kind = "exit"
    sender = "keeper"
    code: int
    tail: str = ""


@dataclass(frozen=True)
class Deadline(Event):
    """The tasks have used up their time."""

    kind = "deadline"
    sender = "keeper"
    seconds: float


@dataclass(frozen=True)
class End(Event):
    """CPU seconds of the tasks and of the whole machine, and how many processes the kernel killed."""

    kind = "end"
    sender = "keeper, as its last event"
    seconds: float
    own_cpu_seconds: float
    machine_busy_seconds: float | None = None
    waited_seconds: float | None = None  # in which some process had work but no core
    kernel_kills: int = 0
    signal: int | None = None  # that ended the keeper


@dataclass(frozen=True)
class RayNodes(Event):
    """How many nodes Ray gave, and the address of this machine that they call."""

    kind = "started"
    sender = "Ray client"
    hosts: int
    address: str = ""


@dataclass(frozen=True)
class RayWaiting(Event):
    """What Ray has not enough of."""

    kind = "waiting"
    sender = "Ray client"
    message: str


@dataclass(frozen=True)
class RayNodeLost(Event):
    """A node's program or actor has ended, and why."""

    kind = "lost"
    sender = "Ray client"
    address: str
    message: str


@dataclass(frozen=True)
class RayError(Event):
    """Why the nodes cannot be used, and whether the request was wrong."""

    kind = "ray-error"
    sender = "Ray client"
    message: str
    input: bool
