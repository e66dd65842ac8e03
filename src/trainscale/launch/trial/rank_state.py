"""What the controller has seen of one rank so far. The rank's events update it; the clock is passed in."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...worker.events import (
    CallStack,
    ClosingSteps,
    EpochSamples,
    Event,
    Exchanges,
    Exit,
    FirstSteps,
    FurtherBatches,
    GpuMemoryPeak,
    GpuWindow,
    Heartbeat,
    Hello,
    LogLine,
    Memory,
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
from ..events import ReceivedEvent, UnknownEvent, describe_exit

TAIL_LINES = 20


@dataclass(frozen=True)
class RankPlace:
    """Where a rank runs: its host, and its device in words, which may be empty."""

    host: str = ""
    device: str = ""


@dataclass(eq=False)  # ranks are compared by identity: two of them may look alike
class RankState:
    rank: int
    last_event: float  # when it sent one
    last_progress: float  # when it reached another phase or step
    place: RankPlace = field(default_factory=RankPlace)  # empty where the trial has one host only
    phase: str = "start"
    step: int = 0
    cpu_seconds: float = 0.0  # of its process, at the last heartbeat
    cpu_seconds_at_progress: float = 0.0
    calls: tuple[str, ...] = ()  # in which it is since its last progress, the outermost first; empty: unknown
    next_sequence: int = 0
    hello: Hello | None = None
    ready: Ready | None = None
    memory: Memory = field(default_factory=Memory)
    gpu_memory: GpuMemoryPeak = field(default_factory=GpuMemoryPeak)
    gpu_window: GpuWindow | None = None
    resident: Resident | None = None
    exchanges: Exchanges | None = None
    further_batches: FurtherBatches | None = None
    first_steps: FirstSteps | None = None
    sketches: dict[str, str] = field(default_factory=dict)  # of single tensors, encoded
    closing_sketches: dict[str, str] = field(default_factory=dict)
    window_proof: WindowProof | None = None
    closing_steps: ClosingSteps | None = None
    epoch_samples: list[EpochSamples] = field(default_factory=list)
    sample_flags: str = ""
    result: Result | ServerResult | None = None
    error: RankError | None = None
    failed_at: float | None = None  # when its failure became known
    exit_code: int | None = None
    tail: tuple[str, ...] = ()
    step_seconds: list[float] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def has_failed(self) -> bool:
        return self.error is not None or (self.exit_code is not None and self.result is None)

    @property
    def name(self) -> str:
        """Return its number for a message, with its host and device where the trial has several hosts."""
        place = ", ".join(filter(None, (self.place.host, self.place.device)))
        return f"rank {self.rank} ({place})" if place else f"rank {self.rank}"

    @property
    def busy_cores(self) -> float:
        """Return how many cores its process has used since its last progress."""
        seconds = self.last_event - self.last_progress
        return (self.cpu_seconds - self.cpu_seconds_at_progress) / seconds if seconds > 0 else 0.0

    @property
    def position(self) -> str:
        """Return the phase and step for a message."""
        return f"{self.phase}, step {self.step}" if self.step else self.phase

    def update(self, received: ReceivedEvent, now: float) -> None:
        self.last_event = now
        self._check_sequence(received.sequence)
        self._apply(received.event, now)
        if self.has_failed and self.failed_at is None:
            self.failed_at = now

    def _apply(self, event: Event, now: float) -> None:
        match event:
            case Hello():
                self.hello, self.last_progress = event, now
            case Ready():
                self.ready, self.last_progress = event, now
            case Heartbeat():
                self._add_heartbeat(event, now)
            case CallStack():
                self.calls = tuple(event.calls)
            case Steps():
                self.step_seconds += event.seconds
            case Result() | ServerResult():
                self.result = event
            case RankError():
                self._add_error(event)
            case LogLine():
                self.tail = (*self.tail, event.text)[-TAIL_LINES:]
            case Exit():
                self._add_exit(event)
            case UnknownEvent(problem=problem) if problem:
                self.notes.append(f"{self.name}: an event {event.event_kind!r} cannot be read: {problem}")
            case _:
                self._store(event)

    def _store(self, event: Event) -> None:
        """Keep what a rank or its keeper reports beside its progress, its result and its end."""
        match event:
            case Memory():
                self.memory = event
            case GpuMemoryPeak():
                self.gpu_memory = event
            case GpuWindow():
                self.gpu_window = event
            case FirstSteps():
                self.first_steps = event
            case TensorSketches():
                sketches = self.closing_sketches if event.is_closing else self.sketches
                sketches.update(zip(event.names, event.sketches, strict=False))
            case EpochSamples():
                self.epoch_samples.append(event)
            case SampleFlags():
                self.sample_flags += event.text
            case WindowProof():
                self.window_proof = event
            case ClosingSteps():
                self.closing_steps = event
            case Resident():
                self.resident = event
            case Exchanges():
                self.exchanges = event
            case FurtherBatches():
                self.further_batches = event

    def _add_heartbeat(self, heartbeat: Heartbeat, now: float) -> None:
        self.cpu_seconds = heartbeat.cpu_seconds
        if (heartbeat.phase, heartbeat.step) != (self.phase, self.step):
            self.phase, self.step, self.last_progress = heartbeat.phase, heartbeat.step, now
            self.cpu_seconds_at_progress, self.calls = heartbeat.cpu_seconds, ()

    def _add_error(self, error: RankError) -> None:
        if self.result is None:
            self.error = error
        else:
            self.notes.append(f"{self.name} failed after its result: {error.message}")

    def _add_exit(self, event: Exit) -> None:
        self.exit_code = event.code
        self.tail = tuple(event.tail.splitlines())
        if self.result is not None and event.code != 0:
            self.notes.append(f"{self.name} {describe_exit(event.code)} after its result")

    def _check_sequence(self, sequence: int | None) -> None:
        if sequence is None:
            return
        lost = sequence - self.next_sequence
        if lost > 0:
            self.notes.append(f"{self.name}: {lost} event line{'s' if lost > 1 else ''} lost")
        self.next_sequence = sequence + 1
