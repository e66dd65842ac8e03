"""Contract 2, process → controller: lines ``@trainscale {json}`` on standard output, each of at most 4,096 bytes.

A pipe accepts 4,096 bytes in one piece, so lines of several processes never mix. An event of a rank carries the rank
and a sequence number, so that the controller notices a lost line. Each kind of event is a dataclass in the
module of its sender. The class attributes ``kind`` (its name in the line) and ``sender`` and the docstring also make
the table in docs/architecture.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .base import LIMIT, MARK, Event

if TYPE_CHECKING:
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
        CallStack,
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

    EVENTS: dict[str, type[Event]]  # by kind, in the order of the table

__all__ = [
    "EVENTS",
    "LIMIT",
    "MARK",
    "Bootstrap",
    "CallStack",
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


def __getattr__(name: str) -> Any:
    """Import the module of an event when the event is first used. A process sends few kinds, and making the classes of
    all of them takes longer than all else that happens when a keeper or a loader starts.
    """
    modules = [importlib.import_module(f".{module}", __name__) for module in ("ranks", "inspections", "supervision")]
    if name == "EVENTS":
        classes = [value for module in modules for value in vars(module).values() if isinstance(value, type)]
        return {event.kind: event for event in classes if issubclass(event, Event) and event is not Event}
    for module in modules:
        if hasattr(module, name):
            return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
