"""Contract 2, process → controller: lines ``@trainscale {json}`` on standard output, each of at most 4,096 bytes.

A pipe accepts 4,096 bytes in one piece, so lines of several processes never mix. An event of a rank carries the rank
and a sequence number, so that the controller notices a lost line. Each kind of event is a dataclass in the
module of its sender. The class attributes ``kind`` (its name in the line) and ``sender`` and the docstring also make
the table in docs/architecture.md.
"""

from __future__ import annotations

from . import inspections, ranks, supervision
from .base import LIMIT, MARK, Event
from .inspections import (
    ExpectationDone,
    FolderState,
    FrameworkFacts,
    HostFactsPiece,
    Links,
    NumbersPiece,
    ParityDone,
)
from .ranks import (
    ClosingSteps,
    EpochEnd,
    EpochSamples,
    Exchanges,
    FirstSteps,
    FurtherBatches,
    Heartbeat,
    Hello,
    Memory,
    MemoryLimit,
    RankError,
    Ready,
    Resident,
    Result,
    SampleFlags,
    ServerResult,
    Steps,
    TensorSketches,
    WindowProof,
)
from .supervision import (
    Bootstrap,
    Deadline,
    End,
    Exit,
    GpuMemoryPeak,
    GpuWindow,
    LogLine,
    Ports,
    RayError,
    RayNodeLost,
    RayNodes,
    RayWaiting,
)

# By kind, in the order of the table.
EVENTS: dict[str, type[Event]] = {
    event.kind: event
    for module in (ranks, inspections, supervision)
    for event in vars(module).values()
    if isinstance(event, type) and issubclass(event, Event) and event is not Event
}

__all__ = [
    "EVENTS",
    "LIMIT",
    "MARK",
    "Bootstrap",
    "ClosingSteps",
    "Deadline",
    "End",
    "EpochEnd",
    "EpochSamples",
    "Event",
    "Exchanges",
    "Exit",
    "ExpectationDone",
    "FirstSteps",
    "FolderState",
    "FrameworkFacts",
    "FurtherBatches",
    "GpuMemoryPeak",
    "GpuWindow",
    "Heartbeat",
    "Hello",
    "HostFactsPiece",
    "Links",
    "LogLine",
    "Memory",
    "MemoryLimit",
    "NumbersPiece",
    "ParityDone",
    "Ports",
    "RankError",
    "RayError",
    "RayNodeLost",
    "RayNodes",
    "RayWaiting",
    "Ready",
    "Resident",
    "Result",
    "SampleFlags",
    "ServerResult",
    "Steps",
    "TensorSketches",
    "WindowProof",
]
