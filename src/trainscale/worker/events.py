"""Contract 2, process → controller: lines ``@trainscale {json}`` on standard output, each of at most 4,096 bytes.

A pipe accepts 4,096 bytes in one piece, so lines of several processes never mix. An event of a rank carries the rank
and a sequence number, so that the controller notices a lost line. Each kind of event is a dataclass below; the class
attributes ``kind`` (its name in the line) and ``sender`` and the docstring also make the table in docs/architecture.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

MARK = "@trainscale "
LIMIT = 4096


@dataclass(frozen=True)
class Event:
    """What every event has."""

    kind: ClassVar[str] = ""
    sender: ClassVar[str] = ""


# ---- from a rank


@dataclass(frozen=True)
class Hello(Event):
    """The rank has imported its framework; it tells its host, process id, role, versions and C allocator variables."""

    kind = "hello"
    sender = "rank"
    host: str
    pid: int
    role: str
    versions: dict[str, str]
    allocator: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready(Event):
    """The network is built: its parameter count, and the unit in which its samples are counted."""

    kind = "ready"
    sender = "rank"
    parameters: int | None = None  # servers and schedulers may not know it
    unit: str = "images"


@dataclass(frozen=True)
class Heartbeat(Event):
    """The phase and step that the rank has reached."""

    kind = "heartbeat"
    sender = "rank, once a second"
    phase: str
    step: int


@dataclass(frozen=True)
class FirstSteps(Event):
    """The losses of the rank's first steps, and the sketch of how they changed its weights."""

    kind = "first-steps"
    sender = "rank, before the window"
    losses: list[float]
    total: str  # 64 little-endian float64 numbers in base64


@dataclass(frozen=True)
class TensorSketches(Event):
    """How the first steps changed single tensors, up to four a line."""

    kind = "sketches"
    sender = "last worker, before the window"
    names: list[str]
    sketches: list[str]  # one for each name, encoded as in `first-steps`


@dataclass(frozen=True)
class WindowProof(Event):
    """How much work the device still had when the window ended, and what weight decay has left of the head."""

    kind = "window-proof"
    sender = "rank, after the window"
    updates: int  # that the weights have had since the start
    unfinished_seconds: float
    decay: float | None  # the share of the head's class sum that is left; None where it cannot be known
    expected_decay: float
    next_decay: float  # after one more update


@dataclass(frozen=True)
class EpochSamples(Event):
    """Which samples the rank has trained on in an epoch: how many, and the sum of the hashes of their numbers."""

    kind = "epoch-samples"
    sender = "rank, where it trains on real data"
    train: int  # samples of the data set
    epoch: int
    count: int
    hash_sum: int
    complete: bool


@dataclass(frozen=True)
class SampleFlags(Event):
    """A piece of the flags of the samples that the rank's first epoch had, as text."""

    kind = "sample-flags"
    sender = "rank, where it trains on real data"
    text: str


@dataclass(frozen=True)
class Steps(Event):
    """Step times, up to 200 a line."""

    kind = "steps"
    sender = "rank, after the window"
    first: int  # the index of the first of them
    seconds: list[float]


@dataclass(frozen=True)
class Memory(Event):
    """Peaks of memory on the device, in the rank, and in the processes that prepare its images."""

    kind = "memory"
    sender = "rank"
    device_peak_bytes: int | None = None  # by the framework's allocator
    host_peak_bytes: int | None = None
    loaders_peak_bytes: int | None = None


@dataclass(frozen=True)
class MemoryLimit(Event):
    """How much memory the rank may allocate."""

    kind = "limit"
    sender = "rank, where its memory is limited"
    memory_limit_bytes: int


@dataclass(frozen=True)
class EpochEnd(Event):
    """Losses and accuracies of one epoch, of all ranks together."""

    kind = "epoch"
    sender = "rank 0, where it trains to an accuracy"
    epoch: int  # from 1
    seconds: float  # of the steps, without the very first one
    samples: int
    train_loss: float | None
    train_accuracy: float
    valid_loss: float | None
    valid_accuracy: float
    valid_samples: int
    waited_seconds: float = 0.0
    evaluation_seconds: float = 0.0


@dataclass(frozen=True)
class Resident(Event):
    """How long steps take on one batch that stays on the device."""

    kind = "resident"
    sender = "rank, where it trains on real data"
    steps: int
    seconds: float


@dataclass(frozen=True)
class Result(Event):
    """What a worker measured in its window."""

    kind = "result"
    sender = "rank"
    samples: int
    steps: int
    warmup: int
    window_seconds: float
    startup_seconds: float
    first_step_seconds: float
    first_loss: float
    last_loss: float
    cpu_seconds: float
    involuntary_switches: int
    weights_digest: str
    waited_seconds: float | None = None  # for samples that were not ready


@dataclass(frozen=True)
class ServerResult(Event):
    """What a parameter server or scheduler served."""

    kind = "served"
    sender = "rank"
    updates: int | None = None
    bytes: int | None = None  # of the weights that it held
    staleness_mean: float | None = None  # updates that a gradient was behind
    staleness_max: int | None = None


@dataclass(frozen=True)
class RankError(Event):
    """The rank fails: `oom`, `port`, `refused` or `crash`, and one line of explanation."""

    kind = "error"
    sender = "rank, parity, expectation"
    error: str
    message: str


# ---- from the roles that inspect a host


@dataclass(frozen=True)
class FrameworkFacts(Event):
    """A framework's version, GPUs and users' networks; or the reason why it cannot be used."""

    kind = "probe"
    sender = "probe"
    is_available: bool
    reason: str = ""  # why it is not available
    install_command: str = ""
    version: str = ""
    versions: dict[str, str] = field(default_factory=dict)  # of the framework and of what it builds on
    gpus: list[str] = field(default_factory=list)  # names of those that the framework sees
    # Of each user's network: its parameter count, or what is wrong with it.
    models: dict[str, dict[str, int] | str] = field(default_factory=dict)


@dataclass(frozen=True)
class NumbersPiece(Event):
    """A piece of the numbers that were computed, in base64."""

    kind = "numbers"
    sender = "parity, expectation"
    data: str


@dataclass(frozen=True)
class ParityDone(Event):
    """All numbers are sent: the parameter count, the multiplications, the seconds it took."""

    kind = "parity"
    sender = "parity"
    parameters: int
    macs: int | None
    seconds: float


@dataclass(frozen=True)
class ExpectationDone(Event):
    """All numbers are sent that a correct trial computes in its first steps: the seconds and the memory it took."""

    kind = "expectation"
    sender = "expectation"
    seconds: float
    peak_bytes: int


@dataclass(frozen=True)
class HostFactsPiece(Event):
    """A piece of a host's facts as JSON text: machine, addresses, disk, and which Pythons have the frameworks."""

    kind = "look"
    sender = "look, in several lines"
    text: str


@dataclass(frozen=True)
class Links(Event):
    """The round trip to the next host and the bandwidth from the previous one, or what prevented measuring them."""

    kind = "links"
    sender = "links"
    round_trip_seconds: float | None = None
    send_error: str = ""
    bits_per_second: float | None = None
    receive_error: str = ""


@dataclass(frozen=True)
class FolderState(Event):
    """What is wrong with the folder of a user's program; empty if nothing is."""

    kind = "folder"
    sender = "program"
    problem: str


# ---- from the keeper, and from what precedes it on another host


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
    signal: int | None = None  # that told the keeper to end


# ---- from the program that holds the nodes of a Ray cluster (launch/launchers/ray_client.py)


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


EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for event in (
        *(Hello, Ready, Heartbeat, FirstSteps, TensorSketches, WindowProof, EpochSamples, SampleFlags, Steps),
        *(Memory, MemoryLimit, EpochEnd, Resident, Result, ServerResult, RankError),
        *(FrameworkFacts, NumbersPiece, ParityDone, ExpectationDone, HostFactsPiece, Links, FolderState),
        *(Bootstrap, Ports, LogLine, GpuMemoryPeak, Exit, Deadline, End),
        *(RayNodes, RayWaiting, RayNodeLost, RayError),
    )
}
