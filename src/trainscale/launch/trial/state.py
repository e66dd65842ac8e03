"""What the controller has seen of a trial so far: its ranks, epochs and hosts. Without I/O; the clock is passed in.

hangs.py finds ranks that hang, failures.py finds why a trial failed, record.py makes the trial's record.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...record.trial import Epoch, Failure, MachineLoad
from ...spec.config import Trial
from ...worker.events import Deadline, End, EpochEnd, Exit, MemoryLimit, Result, ServerResult
from ..events import HostLost, ReceivedEvent
from .rank_state import RankPlace, RankState

PORT_TAKEN = "port"
# Events of different hosts come over different connections, so those of one moment may arrive in any order.
_SAME_MOMENT_SECONDS = 1.0
_NAMED_RANKS = 4  # that a note lists


@dataclass
class TrialState:
    trial: Trial
    ranks: list[RankState]
    hosts: int = 1
    epochs: list[Epoch] = field(default_factory=list)  # of a trial that trains to an accuracy
    failed_ranks: list[int] = field(default_factory=list)  # in the order in which they failed
    deadlines: dict[str, float] = field(default_factory=dict)  # when each host reported that the time was over
    lost_host: HostLost | None = None  # the first one whose keeper was not told to end, or else the first one
    hang: Failure | None = None
    machine: MachineLoad = field(default_factory=MachineLoad)
    kernel_kills: int = 0
    measured_at: float | None = None  # when the last worker had sent its result
    last_leave: float = 0.0  # when a rank sent its result or exited
    notes: list[str] = field(default_factory=list)  # of what happened after all results were in
    _measured_workers: set[int] = field(default_factory=set)

    @classmethod
    def begin(
        cls, trial: Trial, processes: int, hosts: int, now: float, places: Sequence[RankPlace] = ()
    ) -> TrialState:
        """Return the state of a trial that begins. Messages name the ``places`` of ranks if there are several hosts."""
        shown = places if hosts > 1 and places else [RankPlace()] * processes
        return cls(trial, [RankState(rank, now, now, shown[rank]) for rank in range(processes)], hosts)

    @property
    def workers(self) -> list[RankState]:
        return self.ranks[: self.trial.devices]

    @property
    def servers(self) -> list[RankState]:
        first = self.trial.devices
        return self.ranks[first : first + self.trial.config.count_servers(self.hosts)]

    @property
    def is_finished(self) -> bool:
        """Whether every rank has sent its result and exited."""
        return all(rank.result is not None and rank.exit_code is not None for rank in self.ranks)

    @property
    def is_measured(self) -> bool:
        """Whether every worker has sent its result. What happens later takes nothing from the measurement."""
        return self.measured_at is not None

    @property
    def has_passed_deadline(self) -> bool:
        return bool(self.deadlines)

    @property
    def has_failed(self) -> bool:
        return bool(self.failed_ranks or self.has_passed_deadline or self.lost_host or self.hang)

    @property
    def is_port_taken(self) -> bool:
        """Whether another program took a port between its choice and its use. Then the trial is tried again."""
        return any(rank.error is not None and rank.error.error == PORT_TAKEN for rank in self.ranks)

    @property
    def slowest_worker(self) -> RankState:
        return min(self.workers, key=lambda rank: (rank.result is not None, rank.step))

    def has_failed_in_time(self, rank: RankState) -> bool:
        """Return whether the rank had failed before any host ended its ranks because their time was over: the others
        then see closed connections.
        """
        return rank.failed_at is not None and all(
            rank.failed_at < passed - (_SAME_MOMENT_SECONDS if host != rank.place.host else 0.0)
            for host, passed in self.deadlines.items()
        )

    def update(self, received: ReceivedEvent, now: float) -> None:
        match received.event:
            case HostLost() as event:
                self._add_lost_host(event)
            case Deadline() if self.is_measured:
                self.note_stayed_ranks()
            case Deadline():
                self.deadlines.setdefault(received.host if self.hosts > 1 else "", now)
            case End() as event:
                self._add_end(event)
            case MemoryLimit() as event:
                self.machine = replace(self.machine, memory_limit_bytes=event.memory_limit_bytes)
            case EpochEnd() as event:
                self.epochs.append(Epoch(**vars(event)))
        if received.rank is not None and received.rank < len(self.ranks):
            self._update_rank(self.ranks[received.rank], received, now)

    def _update_rank(self, rank: RankState, received: ReceivedEvent, now: float) -> None:
        had_failed = rank.has_failed
        rank.update(received, now)
        if isinstance(received.event, (Result, ServerResult, Exit)):
            self.last_leave = now
        if rank.has_failed and not had_failed:
            if self.is_measured:
                self.notes.append(f"{rank.name} failed after the results of all workers were in")
            else:
                self.failed_ranks.append(rank.rank)
        if isinstance(received.event, Result):
            self._measured_workers.add(rank.rank)
            if len(self._measured_workers) == self.trial.devices and not self.has_failed:
                self.measured_at = now

    def note_stayed_ranks(self) -> None:
        """Note which ranks did not end by themselves after all results were in."""
        stayed = [f"{rank.name} in {rank.position}" for rank in self.ranks if rank.exit_code is None]
        others = len(stayed) - _NAMED_RANKS
        listed = ", ".join(stayed[:_NAMED_RANKS]) + (f" and {others} more" if others > 0 else "")
        note = f"ended by force after all results were in: {listed}"
        if note not in self.notes:  # several hosts may have reported that the time is over
            self.notes.append(note)

    def _add_lost_host(self, lost: HostLost) -> None:
        if self.is_measured:
            self.notes.append(f"{lost.culprit or 'a keeper'} was lost after the results of all workers were in")
        elif self.has_passed_deadline:
            return  # a keeper whose time was over
        elif self.lost_host is None or (self.lost_host.was_ended and not lost.was_ended):
            self.lost_host = lost

    def _add_end(self, end: End) -> None:
        self.kernel_kills += end.kernel_kills
        if end.seconds <= 0:
            return
        other_cores, cpu_pressure = self.machine.other_cores, self.machine.cpu_pressure
        if end.machine_busy_seconds is not None:
            others_seconds = max(0.0, end.machine_busy_seconds - end.own_cpu_seconds)
            other_cores = _choose_larger(other_cores, others_seconds / end.seconds)
        if end.waited_seconds is not None:
            cpu_pressure = _choose_larger(cpu_pressure, end.waited_seconds / end.seconds)
        self.machine = replace(self.machine, other_cores=other_cores, cpu_pressure=cpu_pressure)


def _choose_larger(known: float | None, value: float) -> float:
    """Return the larger value. The busiest host counts, because a synchronous step waits for it."""
    return max(known or 0.0, round(value, 3))
