"""Contract 1, job → process: the document from which a process learns all that it needs, and
the requests by which the controller has a keeper start processes.

Each is a line of JSON on standard input. Ranks 0 … workers-1 are workers; parameter servers
follow. A scheduler is the last rank.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Union

from .config import Config

WORKER, SERVER, SCHEDULER = "worker", "server", "scheduler"

# Strategies whose ranks do not wait for each other.
ASYNCHRONOUS = ("ps-async", "independent")


@dataclass(frozen=True)
class PluginReference:
    kind: str  # framework, model or launcher
    name: str
    reference: str  # module:name
    folder: str  # that holds its top-level package

    @property
    def package(self) -> str:
        return parse_package(self.reference)


def parse_package(reference: str) -> str:
    return reference.partition(":")[0].partition(".")[0]


@dataclass(frozen=True)
class Measure:
    """How long to measure. With ``seconds``, the counts are upper limits."""

    warmup: int = 10
    steps: int = 100
    seconds: float | None = None
    least_steps: int = 3  # of the window, however little time there is


@dataclass(frozen=True)
class Device:
    """What one worker trains on: a GPU, or a fixed set of CPU cores."""

    kind: str = "cpu"
    index: int = 0
    cores: tuple[int, ...] = ()
    shared: bool = False  # with another rank, which NCCL does not allow


@dataclass(frozen=True)
class Job:
    role: str
    rank: int
    workers: int
    servers: int
    addresses: tuple[str, ...]  # of every rank, in order
    ports: tuple[int, ...]  # of every rank, on its host, for its framework to listen on
    rendezvous_port: int  # of the loop's own rendezvous, on rank 0's host
    device: Device
    config: Config
    batch: int  # samples per step of this rank
    measure: Measure = field(default_factory=Measure)
    interface: str | None = None
    python_path: tuple[str, ...] = ()
    seed: int = 1337
    save_weights: str | None = None  # a folder for the weights after the last step, for tests
    dropout: bool = True  # False where two frameworks must compute the same numbers
    plugins: tuple[PluginReference, ...] = ()  # that this trial uses
    data_dir: str = ""  # the same on every host; empty for synthetic data
    witness: bool = False  # whether the ranks report their first steps
    explain: bool = False  # whether they measure after the window what an explanation needs
    memory_share: float = 0.0  # of the free memory that a rank may allocate; 0: no limit
    keeps_compiled: bool = True  # whether compiled programs are kept for later trials
    secret: str = field(default="", repr=False)  # by which the ranks recognise each other
    compiled_folder: str = ""  # where they are; the rank itself sets it

    @property
    def world(self) -> int:
        return self.workers + self.servers

    @property
    def port(self) -> int:
        """The port of the framework's own rendezvous, on rank 0's host."""
        return self.ports[0]

    @property
    def coordinator(self) -> str:
        return self.addresses[0]

    @property
    def is_asynchronous(self) -> bool:
        return self.config.strategy in ASYNCHRONOUS

    def to_json(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Job:
        values = json.loads(text)
        values["device"] = Device(**{**values["device"], "cores": tuple(values["device"]["cores"])})
        values["measure"] = Measure(**values["measure"])
        values["config"] = Config.from_dict(values["config"])
        values["plugins"] = tuple(PluginReference(**plugin) for plugin in values["plugins"])
        for name in ("addresses", "ports", "python_path"):
            values[name] = tuple(values[name])
        return cls(**values)


@dataclass(frozen=True)
class Task:
    """A process that the controller requests from a keeper.

    In ``command``, ``START`` stands for the host's own copy of start.py, and ``PYTHON`` for the
    keeper's interpreter.
    """

    host: str
    rank: int
    command: list[str]
    job: str = ""  # the line on its standard input
    environment: dict[str, str] = field(default_factory=dict)  # replaces the host's variables
    folder: str | None = None
    defaults: dict[str, str] = field(default_factory=dict)  # variables that yield to the host's
    uses_gpu: bool = False  # the keeper then counts the GPU memory of its processes
    gpu: int | None = None  # whose state is sampled, by its number among the visible ones
    most_output: int | None = None  # characters that are relayed, besides events; None: all


@dataclass(frozen=True)
class PortsRequest:
    """Find this many free ports, before tasks are started."""

    ports: int


@dataclass(frozen=True)
class TasksRequest:
    """Start tasks; end them after the deadline, or when the controller is silent."""

    tasks: Sequence[Task]
    deadline_seconds: float
    silence_seconds: float | None = None  # None: silence does not matter
    stays: bool = False  # whether the keeper then waits for further requests


@dataclass(frozen=True)
class SignalRequest:
    signal: int


@dataclass(frozen=True)
class EndTasksRequest:
    """End all tasks. For keepers that do not stay, the end of their input means the same."""

    end_tasks: bool = True


KeeperRequest = Union[PortsRequest, TasksRequest, SignalRequest, EndTasksRequest]


def encode_request(request: KeeperRequest) -> bytes:
    return json.dumps(asdict(request)).encode() + b"\n"


def decode_request(line: bytes) -> KeeperRequest:
    values = json.loads(line)
    if "tasks" in values:
        return TasksRequest(**{**values, "tasks": tuple(Task(**task) for task in values["tasks"])})
    if "ports" in values:
        return PortsRequest(**values)
    return SignalRequest(**values) if "signal" in values else EndTasksRequest()
