"""What the controller has seen of a trial so far: its ranks, epochs and hosts. Without I/O; the clock is passed in.

hangs.py finds ranks that hang, failures.py finds why a trial failed, record.py makes the trial's record.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ...record.trial import Epoch, Failure, MachineLoad
from ...spec.config import Trial
from ...worker.events import Deadline, End, EpochEnd, MemoryLimit
from ..connections.decoding import ReceivedEvent
from ..connections.event_reader import HostLost
from .rank_state import RankState

PORT_TAKEN = "port"


@dataclass
class TrialState:
    trial: Trial
    ranks: list[RankState]
    hosts: int = 1
    epochs: list[Epoch] = field(default_factory=list)  # of a trial that trains to an accuracy
    failed_ranks: list[int] = field(default_factory=list)  # in the order in which they failed
    has_passed_deadline: bool = False
    lost_host: HostLost | None = None  # the first one whose keeper was not told to end, or else the first one
    hang: Failure | None = None
    machine: MachineLoad = field(default_factory=MachineLoad)
    kernel_kills: int = 0

    @classmethod
    def begin(cls, trial: Trial, processes: int, hosts: int, now: float) -> TrialState:
        return cls(trial, [RankState(rank, now, now) for rank in range(processes)], hosts)

    @property
    def workers(self) -> list[RankState]:
        return self.ranks[: self.trial.devices]

    @property
    def servers(self) -> list[RankState]:
        first = self.trial.devices
        return self.ranks[first : first + self.trial.config.servers_on(self.hosts)]

    @property
    def is_finished(self) -> bool:
        """Whether every rank has sent its result and exited."""
        return all(rank.result is not None and rank.exit_code is not None for rank in self.ranks)

    @property
    def is_measured(self) -> bool:
        """Whether every rank has sent its result. Some may not have exited yet."""
        return all(rank.result is not None for rank in self.ranks)

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

    def update(self, received: ReceivedEvent, now: float) -> None:
        match received.event:
            case HostLost() as event:
                if self.lost_host is None or (self.lost_host.was_ended and not event.was_ended):
                    self.lost_host = event
            case Deadline():
                self.has_passed_deadline = True
            case End() as event:
                self._add_end(event)
            case MemoryLimit() as event:
                self.machine = replace(self.machine, memory_limit_bytes=event.memory_limit_bytes)
            case EpochEnd() as event:
                self.epochs.append(Epoch(**vars(event)))
        if received.rank is not None and received.rank < len(self.ranks):
            rank = self.ranks[received.rank]
            rank.update(received, now)
            if rank.has_failed and rank.rank not in self.failed_ranks:
                self.failed_ranks.append(rank.rank)

    def _add_end(self, end: End) -> None:
        self.kernel_kills += end.kernel_kills
        if end.seconds <= 0:
            return
        other_cores, cpu_pressure = self.machine.other_cores, self.machine.cpu_pressure
        if end.machine_busy_seconds is not None:
            others_seconds = max(0.0, end.machine_busy_seconds - end.own_cpu_seconds)
            other_cores = _larger(other_cores, others_seconds / end.seconds)
        if end.waited_seconds is not None:
            cpu_pressure = _larger(cpu_pressure, end.waited_seconds / end.seconds)
        self.machine = replace(self.machine, other_cores=other_cores, cpu_pressure=cpu_pressure)


def _larger(known: float | None, value: float) -> float:
    """The busiest host counts, because a synchronous step waits for it."""
    return max(known or 0.0, round(value, 3))
