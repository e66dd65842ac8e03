"""A trial as the controller sees it, with events that the test creates and a clock that the test sets."""

from __future__ import annotations

import json
from typing import Any

from trainscale.launch.connection import HostLost, ReceivedEvent, decode_line
from trainscale.launch.trial.state import TrialState, find_hang
from trainscale.launch.trial.trial import build_record
from trainscale.record.trial import Failure, TrialRecord
from trainscale.spec.config import Config, Trial
from trainscale.worker.events import MARK

STALL = 30.0


class SimulatedTrial:
    """The state of a trial, and ranks that send it events in order."""

    def __init__(self, devices: int = 2, servers: int = 0, hosts: int = 1) -> None:
        strategy = "ps" if servers else "allreduce"
        config = Config("torch", "mnist", 8, strategy, 28, 10, servers=servers)
        self.now = 0.0
        ranks = devices + servers
        places = [(f"node{rank * hosts // ranks + 1}", f"GPU {rank}") for rank in range(ranks)]
        self.state = TrialState.begin(Trial(config, devices, 0), ranks, hosts, self.now, places)
        self._sequence: dict[int, int] = {}

    def emit(self, rank: int, kind: str, **values: Any) -> None:
        sequence = self._sequence.get(rank, 0)
        self._sequence[rank] = sequence + 1
        self.receive({"kind": kind, "rank": rank, "seq": sequence, **values})

    def lose_lines(self, rank: int, count: int = 1) -> None:
        self._sequence[rank] = self._sequence.get(rank, 0) + count

    def receive(self, event: dict[str, Any], host: str = "") -> None:
        """Decode the event from a line, as the controller does, and update the state."""
        received = decode_line(MARK + json.dumps(event), host)
        assert received is not None
        self.state.update(received, self.now)

    def lose_host(self, host: str, was_ended: bool = False) -> None:
        self.state.update(ReceivedEvent(host, HostLost(host, was_ended=was_ended)), self.now)

    def check_for_hang(self) -> None:
        self.state.hang = find_hang(self.state, STALL, self.now)

    def start_rank(self, rank: int) -> None:
        allocator = {"MALLOC_TOP_PAD_": str(rank)}
        self.emit(rank, "hello", host="here", pid=rank, role="worker", versions={"torch": "2.9"}, allocator=allocator)
        self.emit(rank, "ready", parameters=100)

    def measure_rank(self, rank: int, **changes: Any) -> None:
        """Start a worker and send its report. ``changes`` are to its sample."""
        self.start_rank(rank)
        self.send_result(rank, **changes)

    def send_heartbeat(self, rank: int, phase: str = "measure", step: int = 1, cpu_seconds: float = 0.0) -> None:
        self.emit(rank, "heartbeat", phase=phase, step=step, cpu_seconds=cpu_seconds)

    def send_result(self, rank: int, **changes: Any) -> None:
        """Send the report of a worker, in two pieces. ``changes`` are to its sample."""
        sample = {
            "rank": rank,
            "host": "here",
            "samples": 24,
            "window_seconds": 1.0,
            "step_seconds": [0.5, 0.25, 0.25],
            "startup_seconds": 2.0,
            "first_step_seconds": 0.75,
            "first_loss": 2.5,
            "last_loss": 2.25,
            "host_peak_bytes": 1000 + rank,
            "cpu_seconds": 0.875,
            "involuntary_switches": 3,
            "weights_digest": "abc",
        }
        text = json.dumps({"sample": {**sample, **changes}, "warmup": 2})
        half = len(text) // 2
        self.emit(rank, "report", text=text[:half], start=0)
        self.emit(rank, "report", text=text[half:], start=half, is_last=True, window_began=1.0, window_seconds=1.0)

    def send_error(self, rank: int, message: str, error: str = "crash") -> None:
        self.emit(rank, "error", error=error, message=message)

    def exit_rank(self, rank: int, code: int = 0, tail: str = "") -> None:
        self.receive({"kind": "exit", "rank": rank, "code": code, "tail": tail})

    def print_line(self, rank: int, line: str) -> None:
        self.receive({"kind": "log", "rank": rank, "text": line})

    def end_host(self, **changes: Any) -> None:
        end = {"seconds": 10.0, "own_cpu_seconds": 15.0, "machine_busy_seconds": 16.0, "kernel_kills": 0}
        self.receive({"kind": "end", **end, **changes})

    def record(self) -> TrialRecord:
        return build_record(self.state, "2026", 12.34567)

    @property
    def failure(self) -> Failure:
        record = self.record()
        assert record.failure is not None
        assert record.status == record.failure.kind
        return record.failure


def successful_trial(devices: int = 2) -> SimulatedTrial:
    trial = SimulatedTrial(devices)
    for rank in range(devices):
        trial.measure_rank(rank)
        trial.exit_rank(rank)
    trial.end_host()
    return trial
