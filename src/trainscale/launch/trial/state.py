"""The state of a trial by its events: which ranks hang, and why it failed. Pure; the clock is passed in."""

from __future__ import annotations

import math
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...record.decoding import DecodingError, convert, decode_object
from ...record.trial import (
    CRASH,
    HANG,
    LOST,
    OUT_OF_MEMORY,
    TIMEOUT,
    Epoch,
    Failure,
    MachineLoad,
    ServerResult,
)
from ...spec.config import Trial
from ...worker.events import (
    CallStack,
    Deadline,
    End,
    Exit,
    GpuFacts,
    Heartbeat,
    Hello,
    LogLine,
    MemoryLimit,
    RankError,
    Ready,
    ReportPiece,
)
from ...worker.sample import Report
from ..connection import HostLost, ReceivedEvent, UnknownEvent, describe_exit

PORT_TAKEN = "port"
TAIL_LINES = 20
# Events that different hosts send at the same moment may arrive in any order.
_SAME_MOMENT_SECONDS = 1.0
_MOST_NAMES = 4  # of ranks or hosts, that a message lists
# A rank that fails makes the others fail too. Their messages contain these words.
_CONSEQUENCES = ("connection closed", "connection reset", "broken pipe", "left the rendezvous", "connection refused",
                 "socket closed", "remote process exited", "nccl", "connection was likely closed")  # fmt: skip
_STILL_SECONDS = 30.0  # without progress, in which no step is merely slow
_MEETING_PHASES = ("start", "join", "first step")  # in which ranks wait for others
# Frameworks compile in their first step: it may take minutes.
_FIRST_STEP_PATIENCE = 4
_HEARTBEATS_APART = 2.0  # seconds, of ranks that became silent together
_BUSY_CORES, _IDLE_CORES = 0.5, 0.1


@dataclass(eq=False)  # ranks are compared by identity: two of them may look alike
class RankState:
    rank: int
    last_event: float  # when it sent one
    last_progress: float  # when it reached another phase or step
    host: str = ""  # and device: empty where the trial has one host only
    device: str = ""
    phase: str = "start"
    step: int = 0
    cpu_seconds: float = 0.0  # of its process, at the last heartbeat
    cpu_seconds_at_progress: float = 0.0
    calls: tuple[str, ...] = ()  # its stack since its last progress, outermost first
    next_sequence: int = 0
    hello: Hello | None = None
    ready: Ready | None = None
    gpu: GpuFacts = field(default_factory=GpuFacts)
    result: Report | ServerResult | None = None
    error: RankError | None = None
    failed_at: float | None = None  # when its failure became known
    exit_code: int | None = None
    tail: tuple[str, ...] = ()  # of what it printed
    notes: list[str] = field(default_factory=list)
    _report_text: str = ""  # the pieces so far

    @property
    def has_failed(self) -> bool:
        return self.error is not None or (self.exit_code is not None and self.result is None)

    @property
    def name(self) -> str:
        """With its host and device where the trial has several hosts."""
        place = ", ".join(filter(None, (self.host, self.device)))
        return f"rank {self.rank} ({place})" if place else f"rank {self.rank}"

    @property
    def busy_cores(self) -> float:
        seconds = self.last_event - self.last_progress
        return (self.cpu_seconds - self.cpu_seconds_at_progress) / seconds if seconds > 0 else 0.0

    @property
    def position(self) -> str:
        return f"{self.phase}, step {self.step}" if self.step else self.phase

    def update(self, received: ReceivedEvent, now: float) -> None:
        self.last_event = now
        if received.sequence is not None:
            lost = received.sequence - self.next_sequence
            if lost > 0:
                self.notes.append(f"{self.name}: {lost} event line{'s' if lost > 1 else ''} lost")
            self.next_sequence = received.sequence + 1
        match event := received.event:
            case Hello():
                self.hello, self.last_progress = event, now
            case Ready():
                self.ready, self.last_progress = event, now
            case Heartbeat():
                self.cpu_seconds = event.cpu_seconds
                if (event.phase, event.step) != (self.phase, self.step):
                    self.phase, self.step, self.last_progress = event.phase, event.step, now
                    self.cpu_seconds_at_progress, self.calls = event.cpu_seconds, ()
            case CallStack():
                self.calls = tuple(event.calls)
            # Where it starts later, a line was lost: see the notes.
            case ReportPiece() if event.start == len(self._report_text):
                self._report_text += event.text
                if event.is_last:
                    try:
                        self.result = convert(decode_object(self._report_text), Report)
                    except DecodingError as error:
                        self.notes.append(f"{self.name}: its report cannot be read: {error}")
            case ServerResult():
                self.result = event
            case GpuFacts():
                self.gpu = event
            case LogLine():
                self.tail = (*self.tail, event.text)[-TAIL_LINES:]
            case RankError() if self.result is None:
                self.error = event
            case RankError():
                self.notes.append(f"{self.name} failed after its result: {event.message}")
            case Exit():
                self.exit_code = event.code
                self.tail = tuple(event.tail.splitlines())
                if self.result is not None and event.code != 0:
                    self.notes.append(f"{self.name} {describe_exit(event.code)} after its result")
            case UnknownEvent(problem=problem) if problem:
                self.notes.append(f"{self.name}: an event {event.event_kind!r} cannot be read: {problem}")
        if self.has_failed and self.failed_at is None:
            self.failed_at = now


@dataclass
class TrialState:
    trial: Trial
    ranks: list[RankState]
    hosts: int = 1
    epochs: list[Epoch] = field(default_factory=list)  # of a trial that trains to an accuracy
    failed_ranks: list[int] = field(default_factory=list)  # in the order in which they failed
    deadlines: dict[str, float] = field(default_factory=dict)  # when each reported that time was over
    lost_host: HostLost | None = None  # the first whose keeper was not told to end, or the first
    hang: Failure | None = None
    machine: MachineLoad = field(default_factory=MachineLoad)
    kernel_kills: int = 0
    measured_at: float | None = None  # when the last worker had sent its result
    last_leave: float = 0.0  # when a rank sent its result or exited
    notes: list[str] = field(default_factory=list)  # of what happened after all results were in

    @classmethod
    def begin(
        cls, trial: Trial, processes: int, hosts: int, now: float, places: Sequence[tuple[str, str]] = ()
    ) -> TrialState:
        """``places``: the host and device of each rank. Messages name them if there are several hosts."""
        shown = places if hosts > 1 and places else [("", "")] * processes
        return cls(trial, [RankState(rank, now, now, *shown[rank]) for rank in range(processes)], hosts)

    @property
    def workers(self) -> list[RankState]:
        return self.ranks[: self.trial.devices]

    @property
    def servers(self) -> list[RankState]:
        first = self.trial.devices
        return self.ranks[first : first + self.trial.config.count_servers(self.hosts)]

    @property
    def is_finished(self) -> bool:
        return all(rank.result is not None and rank.exit_code is not None for rank in self.ranks)

    @property
    def is_measured(self) -> bool:
        """Whether every worker has sent its result. What happens later does not matter."""
        return self.measured_at is not None

    @property
    def has_failed(self) -> bool:
        return bool(self.failed_ranks or self.deadlines or self.lost_host or self.hang)

    @property
    def is_port_taken(self) -> bool:
        """Whether another program took a port meanwhile. Then the trial is tried again."""
        return any(rank.error is not None and rank.error.error == PORT_TAKEN for rank in self.ranks)

    @property
    def slowest_worker(self) -> RankState:
        return min(self.workers, key=lambda rank: (rank.result is not None, rank.step))

    def update(self, received: ReceivedEvent, now: float) -> None:
        match received.event:
            case HostLost() as lost if self.is_measured:
                who = lost.culprit or "a keeper"
                self.notes.append(f"{who} was lost after the results of all workers were in")
            case HostLost() as lost if not self.deadlines:  # else its time was over
                if self.lost_host is None or (self.lost_host.was_ended and not lost.was_ended):
                    self.lost_host = lost
            case Deadline() if self.is_measured:
                self.note_stayed_ranks()
            case Deadline():
                self.deadlines.setdefault(received.host if self.hosts > 1 else "", now)
            case End() as event:
                self.kernel_kills += event.kernel_kills
                # Keep the load of the busiest host, because a synchronous step waits for it.
                cores, pressure = self.machine.other_cores, self.machine.cpu_pressure
                if event.seconds > 0 and event.machine_busy_seconds is not None:
                    others_seconds = max(0.0, event.machine_busy_seconds - event.own_cpu_seconds)
                    cores = max(cores or 0.0, round(others_seconds / event.seconds, 3))
                if event.seconds > 0 and event.waited_seconds is not None:
                    pressure = max(pressure or 0.0, round(event.waited_seconds / event.seconds, 3))
                self.machine = replace(self.machine, other_cores=cores, cpu_pressure=pressure)
            case MemoryLimit() as event:
                self.machine = replace(self.machine, memory_limit_bytes=event.memory_limit_bytes)
            case Epoch() as event:
                self.epochs.append(event)
        if received.rank is None or received.rank >= len(self.ranks):
            return
        rank = self.ranks[received.rank]
        had_failed, had_reported = rank.has_failed, rank.result is not None
        rank.update(received, now)
        has_reported = rank.result is not None and not had_reported
        if has_reported or isinstance(received.event, Exit):
            self.last_leave = now
        if rank.has_failed and not had_failed:
            if self.is_measured:
                self.notes.append(f"{rank.name} failed after the results of all workers were in")
            else:
                self.failed_ranks.append(rank.rank)
        if has_reported and not self.has_failed and all(worker.result is not None for worker in self.workers):
            self.measured_at = self.measured_at or now

    def note_stayed_ranks(self) -> None:
        stayed = [f"{rank.name} in {rank.position}" for rank in self.ranks if rank.exit_code is None]
        note = f"ended by force after all results were in: {join_names(stayed)}"
        if note not in self.notes:  # several hosts may have reported that the time is over
            self.notes.append(note)


def join_names(names: Sequence[str]) -> str:
    """Return "node1, node2, node3, node4 and 12 more"."""
    others = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {others} more" if others > 0 else "")


# ---- ranks that hang


def find_hang(state: TrialState, stall_seconds: float, now: float) -> Failure | None:
    """Name the ranks that the others wait for, if known."""
    alive = [rank for rank in state.ranks if rank.exit_code is None]
    waiting = [rank for rank in state.workers if rank.result is None]
    if any(now - rank.last_event > stall_seconds for rank in alive):
        silence = stall_seconds - _HEARTBEATS_APART
        suspects = [rank for rank in alive if now - rank.last_event > silence]
        seconds = max(now - rank.last_event for rank in suspects)
        problem = f"{'were' if len(suspects) > 1 else 'was'} silent for {seconds:.0f} s"
    else:
        for rank in waiting:
            patience = stall_seconds * (_FIRST_STEP_PATIENCE if rank.phase == "first step" else 1)
            if now - rank.last_progress <= patience:
                return None
        if not waiting:
            return None
        suspects = _find_behind(waiting, state.trial.config.device == "cpu")
        seconds = now - max(rank.last_progress for rank in suspects or waiting)
        problem = f"made no progress for {seconds:.0f} s"
    first = (suspects or waiting)[0]
    hosts = {rank.host for rank in suspects}
    host = hosts.pop() if len(hosts) == 1 else ""
    hint = ""
    if state.hosts > 1 and first.phase in _MEETING_PHASES:
        hint = "; do the hosts reach each other's ports? see: trainscale check --hosts FILE"
    if not suspects:
        problem = f"no worker made progress for {seconds:.0f} s"
        message = f"{problem} in {first.position}; which of them hangs is unknown"
        return Failure(HANG, message + hint)
    if host and len(suspects) > 1 and suspects == [rank for rank in alive if rank.host == host]:
        numbers = join_names([str(rank.rank) for rank in suspects])
        problem = problem.replace("were", "was")
        message = f"{host} with its ranks {numbers} {problem} in {first.position}"
        return Failure(HANG, message + hint, host=host)
    where = f" at {first.calls[-1]}" if first.calls else ""
    message = f"{join_names([rank.name for rank in suspects])} {problem} in {first.position}{where}"
    return Failure(HANG, message + hint, first.rank if len(suspects) == 1 else None, host=host)


def _find_behind(workers: Sequence[RankState], are_on_cpus: bool) -> list[RankState]:
    """Return those that the others wait for, by steps, calls, or on CPUs by CPU time."""
    steps = [worker.step for worker in workers]
    if len(workers) == 1:
        return list(workers)
    if len({worker.phase for worker in workers}) == 1 and len(set(steps)) > 1:
        return [worker for worker in workers if worker.step == min(steps)]
    groups: dict[tuple[str, tuple[str, ...]], list[RankState]] = {}
    for worker in workers:
        groups.setdefault((worker.phase, worker.calls), []).append(worker)
    smallest, *others = sorted(groups.values(), key=len)
    if len(others) == 1 and len(smallest) < len(others[0]):
        return smallest
    busy = [worker for worker in workers if worker.busy_cores > _BUSY_CORES]
    idle = [worker for worker in workers if worker.busy_cores < _IDLE_CORES]
    return busy if are_on_cpus and len(busy) == 1 and len(idle) == len(workers) - 1 else []


# ---- failures of a trial that has ended


def find_failure(state: TrialState) -> Failure:
    """Return why the trial failed: a rank's own error, a lost host, a hang, or its deadline."""

    def weigh(rank: RankState) -> int:
        """Memory first, then signals, then errors, then consequences of another rank's end."""
        if rank.error is not None and rank.error.error == OUT_OF_MEMORY:
            return 0
        if rank.error is None and (rank.exit_code or 0) < 0:
            return 1
        return 3 if _is_consequence(rank) else 2

    # Only what failed before a host ended its ranks because their time was over.
    in_time = []
    for rank in (state.ranks[number] for number in state.failed_ranks):
        failed_at = rank.failed_at or 0.0
        margins = {host: _SAME_MOMENT_SECONDS if host != rank.host else 0.0 for host in state.deadlines}
        if all(failed_at < passed - margins[host] for host, passed in state.deadlines.items()):
            in_time.append(rank)
    blamed = min(in_time, key=weigh, default=None)
    has_own_error = blamed is not None and not _is_consequence(blamed)
    lost = state.lost_host
    if lost is not None and not has_own_error:
        tail = lost.stderr_tail[-TAIL_LINES:]
        if not lost.culprit:
            message = tail[-1] if tail else "the command that had started the keepers ended"
            return Failure(LOST, message, tail=tail)
        reason = f": {tail[-1]}" if tail else " without a message"
        message = f"the keeper on {lost.culprit} ended{reason}"
        return Failure(LOST, message, tail=tail, host=lost.culprit)
    if blamed is not None and (has_own_error or not (state.hang or state.deadlines)):
        code, limit, kind = blamed.exit_code or 0, state.machine.memory_limit_bytes, CRASH
        reason = describe_exit(code) if code else "ended without a result"
        message = f"{blamed.name} {reason} in {blamed.position}"
        if blamed.error is not None:
            kind = OUT_OF_MEMORY if blamed.error.error == OUT_OF_MEMORY else CRASH
            message = f"{blamed.name}: {blamed.error.message}"
        elif code == -signal.SIGKILL and state.kernel_kills:
            kind, message = OUT_OF_MEMORY, f"{blamed.name} was ended by the kernel: out of memory"
        elif limit is not None and code:  # some frameworks abort when an allocation fails
            message = f"{blamed.name} {reason} with no more than {limit / 2**30:.1f} GiB to allocate"
            kind = OUT_OF_MEMORY
        return Failure(kind, message, blamed.rank, blamed.tail, blamed.host)
    if state.hang is not None:
        if state.hang.rank is None:
            places = [f"{rank.name} at {rank.calls[-1]}" for rank in state.workers if rank.calls]
            return replace(state.hang, tail=tuple(places[:TAIL_LINES]))
        rank = state.ranks[state.hang.rank]
        stack = ("call stack, outermost frame first:", *rank.calls) if rank.calls else ()
        return replace(state.hang, tail=(*rank.tail, *stack))
    if not state.deadlines:
        return Failure(LOST, "all keepers ended before the work was done")
    # How far the trial came, and which worker the others waited for.
    slowest = state.slowest_worker
    message = f"the trial passed its time limit in {slowest.phase}, step {slowest.step}"
    waiting = [rank for rank in state.workers if rank.result is None]
    last_progress = max((rank.last_progress for rank in waiting), default=math.inf)
    still_seconds = min(state.deadlines.values()) - last_progress
    behind = _find_behind(waiting, state.trial.config.device == "cpu") if waiting else []
    if still_seconds <= _STILL_SECONDS or len(behind) != 1:
        return Failure(TIMEOUT, message, tail=slowest.tail)
    (rank,) = behind
    message += f"; {rank.name} had made no progress for {still_seconds:.0f} s"
    return Failure(TIMEOUT, message, rank.rank, rank.tail, rank.host)


def _is_consequence(rank: RankState) -> bool:
    """Return whether the rank's error only reports the end of another rank."""
    message = rank.error.message.lower() if rank.error is not None else ""
    return any(text in message for text in _CONSEQUENCES)
