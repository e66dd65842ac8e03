"""What a trial's events add up to: a good record, or a failure with the rank to blame. No I/O; the clock is handed
in.
"""

from __future__ import annotations

import math
import signal
from dataclasses import dataclass, field, fields
from typing import Any

from ...record.decoding import convert
from ...record.trial import (
    CRASH,
    HANG,
    LOST,
    OK,
    OUT_OF_MEMORY,
    TIMEOUT,
    Epoch,
    Failure,
    MachineLoad,
    RankSample,
    ServerSample,
    TrialRecord,
)
from ...spec.config import Trial

PORT_TAKEN = "port"
_TAIL_LINES = 20
_MEETING_PHASES = ("start", "join", "first step")  # in which ranks wait for each other's first word
# Frameworks compile in their first step: a deep network on a slow core for minutes, without a sign of progress.
_FIRST_STEP_PATIENCE = 4
# A rank that failed takes the others with it; their complaints, in these words, only repeat that.
_CONSEQUENCES = ("connection closed", "connection reset", "broken pipe", "left the meeting", "connection refused",
                 "socket closed", "remote process exited", "nccl", "connection was likely closed")  # fmt: skip


@dataclass(eq=False)  # ranks are found by identity: two of them may look alike
class RankState:
    """One rank so far."""

    seen: float
    moved: float
    phase: str = "start"
    step: int = 0
    next_sequence: int = 0
    hello: dict[str, Any] = field(default_factory=dict)
    ready: dict[str, Any] = field(default_factory=dict)
    memory: dict[str, Any] = field(default_factory=dict)
    nvml: dict[str, Any] = field(default_factory=dict)
    resident: dict[str, Any] = field(default_factory=dict)
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    exit_code: int | None = None
    tail: tuple[str, ...] = ()
    step_seconds: list[float] = field(default_factory=list)


class TrialObserver:
    def __init__(
        self, trial: Trial, now: float, stall_seconds: float, processes: int | None = None, hosts: int = 1
    ) -> None:
        self.trial = trial
        self._hosts = hosts
        self._server_count = trial.config.servers_on(hosts)
        count = trial.devices + self._server_count if processes is None else processes
        self.ranks = [RankState(now, now) for _ in range(count)]
        self._stall_seconds = stall_seconds
        self.epochs: list[Epoch] = []  # of a trial that trains to an accuracy, so far
        self._notes: list[str] = []
        self._order_of_failure: list[int] = []
        self._deadline = False
        self._lost: str | None = None
        self._complaints: tuple[str, ...] = ()
        self._hang: Failure | None = None
        self._machine: dict[str, float] = {}
        self._kernel_kills = 0

    @property
    def workers(self) -> list[RankState]:
        return self.ranks[: self.trial.devices]

    @property
    def _servers(self) -> list[RankState]:
        first = self.trial.devices
        return self.ranks[first : first + self._server_count]

    @property
    def finished(self) -> bool:
        """Every rank has said its result and ended."""
        return all(rank.result is not None and rank.exit_code is not None for rank in self.ranks)

    @property
    def measured(self) -> bool:
        """Every rank has said its result; some may still be on their way out."""
        return all(rank.result is not None for rank in self.ranks)

    @property
    def failed(self) -> bool:
        return bool(self._order_of_failure) or self._deadline or self._lost is not None or self._hang is not None

    @property
    def port_taken(self) -> bool:
        """Somebody else took the port between its choice and its use: worth another try, not a row."""
        return any(rank.error is not None and rank.error["error"] == PORT_TAKEN for rank in self.ranks)

    @property
    def step(self) -> tuple[str, int]:
        """Phase and step of the slowest worker, for the live view."""
        slowest = self._slowest()
        return slowest.phase, slowest.step

    def _slowest(self) -> RankState:
        return min(self.workers, key=lambda rank: (rank.result is not None, rank.step))

    def feed(self, event: dict[str, Any], now: float) -> None:
        kind = event["kind"]
        if kind == "end":
            self._end(event)
        elif kind == "deadline":
            self._deadline = True
        elif isinstance(event.get("rank"), int) and event["rank"] < len(self.ranks):
            rank = self.ranks[event["rank"]]
            rank.seen = now
            self._sequence(event, rank)
            # A kind that this version does not know (a newer worker) still shows that the rank lives.
            getattr(self, f"_on_{kind}", lambda *_: None)(event, rank, now)

    def lose(self, host: str, complaints: tuple[str, ...] = ()) -> None:
        """The keeper of a host is gone without its last word; ``complaints`` is what it printed otherwise."""
        if self._lost is None:
            self._lost, self._complaints = host, complaints[-_TAIL_LINES:]

    def look_for_hang(self, now: float) -> None:
        """A rank hangs when it is silent, or when no worker has moved, for too long."""
        for number, rank in enumerate(self.ranks):
            if rank.exit_code is None and now - rank.seen > self._stall_seconds:
                self._hang = Failure(
                    HANG,
                    f"rank {number} was silent for {now - rank.seen:.0f} s in {self._place(rank)}{self._hint(rank)}",
                    number,
                )
                return
        waiting = [rank for rank in self.workers if rank.result is None]
        if not waiting or any(now - rank.moved <= self._patience(rank) for rank in waiting):
            return
        slowest = min(waiting, key=lambda rank: rank.step)
        number = self.ranks.index(slowest)
        still = now - slowest.moved
        words = f"rank {number} made no progress for {still:.0f} s in {self._place(slowest)}{self._hint(slowest)}"
        self._hang = Failure(HANG, words, number)

    def _patience(self, rank: RankState) -> float:
        return self._stall_seconds * (_FIRST_STEP_PATIENCE if rank.phase == "first step" else 1)

    def failure(self) -> Failure:
        """Why the trial failed, and who is to blame. Called when everything has ended."""
        blamed = self._blamed()
        if self._lost is not None and (blamed is None or self._only_saw_it(self.ranks[blamed])):
            return self._loss(self._lost)
        if blamed is None:
            if self._hang is not None:
                return self._with_tail(self._hang)
            if self._deadline:
                slowest = self._slowest()
                words = f"the trial passed its time limit in {slowest.phase}, step {slowest.step}"
                return Failure(TIMEOUT, words, tail=slowest.tail)
            return Failure(LOST, "all keepers ended before the work was done")
        rank = self.ranks[blamed]
        if rank.error is not None:
            kind = rank.error["error"] if rank.error["error"] in (OUT_OF_MEMORY, CRASH) else CRASH
            return Failure(kind, f"rank {blamed}: {rank.error['message']}", blamed, rank.tail)
        code = rank.exit_code or 0
        if code == -signal.SIGKILL and self._kernel_kills:
            words = f"rank {blamed} was ended by the kernel: out of memory"
            return Failure(OUT_OF_MEMORY, words, blamed, rank.tail)
        limit = self._machine.get("memory_limit_bytes")
        if limit is not None and code:  # some frameworks abort when an allocation fails
            words = f"rank {blamed} {_exit_words(code)} with no more than {limit / 2**30:.1f} GiB to allocate"
            return Failure(OUT_OF_MEMORY, words, blamed, rank.tail)
        return Failure(CRASH, f"rank {blamed} {_exit_words(code)} in {self._place(rank)}", blamed, rank.tail)

    def _loss(self, host: str) -> Failure:
        last = f": {self._complaints[-1]}" if self._complaints else " without a word"
        return Failure(LOST, f"the keeper on {host} ended{last}", tail=self._complaints)

    def record(self, started: str, seconds: float) -> TrialRecord:
        good = self.measured and not self.failed
        failure = None if good else self.failure()
        first = self.workers[0]
        return TrialRecord(
            trial=self.trial,
            status=OK if failure is None else failure.kind,
            started=started,
            seconds=round(seconds, 3),
            hosts=self._hosts,
            warmup=(first.result or {}).get("warmup", 0),
            steps=(first.result or {}).get("steps", 0),
            ranks=tuple(self._sample(n, rank) for n, rank in enumerate(self.workers) if rank.result),
            epochs=tuple(self.epochs),
            servers=tuple(convert(r.result["served"], ServerSample) for r in self._servers if r.result),
            failure=failure,
            versions=first.hello.get("versions", {}),
            parameters=first.ready.get("parameters"),
            machine=convert(self._machine, MachineLoad),
            notes=tuple(self._notes),
        )

    def _on_log(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.tail = (*rank.tail, event["text"])[-_TAIL_LINES:]

    def _on_hello(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.hello = event
        rank.moved = now

    def _on_ready(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.ready = event
        rank.moved = now

    def _on_heartbeat(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        if (event["phase"], event["step"]) != (rank.phase, rank.step):
            rank.phase, rank.step, rank.moved = event["phase"], event["step"], now

    def _on_steps(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.step_seconds += event["seconds"]

    def _on_memory(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.memory = event

    def _on_nvml(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.nvml = event

    def _on_limit(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        self._machine["memory_limit_bytes"] = event["memory_limit_bytes"]

    def _on_epoch(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        values = {**event, "samples": event["images"], "valid_samples": event["valid_images"]}
        self.epochs.append(Epoch(**{f.name: values[f.name] for f in fields(Epoch) if f.name in values}))

    def _on_resident(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.resident = event

    def _on_result(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.result = event

    def _on_error(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        if rank.result is not None:
            self._notes.append(f"rank {event['rank']} failed after its result: {event['message']}")
            return
        rank.error = event
        self._fails(rank)

    def _on_exit(self, event: dict[str, Any], rank: RankState, now: float) -> None:
        rank.exit_code = event["code"]
        rank.tail = tuple(event["tail"].splitlines())
        if rank.result is None:
            self._fails(rank)
        elif rank.exit_code != 0:
            self._notes.append(f"rank {event['rank']} {_exit_words(event['code'])} after its result")

    def _fails(self, rank: RankState) -> None:
        number = self.ranks.index(rank)
        if number not in self._order_of_failure:
            self._order_of_failure.append(number)

    def _end(self, event: dict[str, Any]) -> None:
        self._kernel_kills += event["kernel_kills"]
        if event["machine_busy_seconds"] is not None and event["seconds"] > 0:
            others = max(0.0, event["machine_busy_seconds"] - event["own_cpu_seconds"]) / event["seconds"]
            self._busiest("other_cores", others)
        if event.get("waited_seconds") is not None and event["seconds"] > 0:
            self._busiest("cpu_pressure", event["waited_seconds"] / event["seconds"])

    def _busiest(self, name: str, value: float) -> None:
        """Of several hosts the worst counts: a synchronous step waits for it."""
        self._machine[name] = max(round(value, 3), self._machine.get(name, 0.0))

    def _sequence(self, event: dict[str, Any], rank: RankState) -> None:
        if "seq" not in event:
            return
        lost = event["seq"] - rank.next_sequence
        if lost > 0:
            self._notes.append(f"rank {event['rank']}: {lost} event line{'s' if lost > 1 else ''} lost")
        rank.next_sequence = event["seq"] + 1

    def _blamed(self) -> int | None:
        """The first rank that failed of itself; memory first, then signals, then errors that no other rank caused."""

        def weight(number: int) -> tuple[int, int]:
            rank = self.ranks[number]
            if rank.error and rank.error["error"] == OUT_OF_MEMORY:
                return 0, self._order_of_failure.index(number)
            if rank.error is None and (rank.exit_code or 0) < 0:
                return 1, self._order_of_failure.index(number)
            return 3 if self._only_saw_it(rank) else 2, self._order_of_failure.index(number)

        return min(self._order_of_failure, key=weight, default=None)

    def _only_saw_it(self, rank: RankState) -> bool:
        """Whether what a rank complains of is the end of another."""
        message = rank.error["message"].lower() if rank.error else ""
        return any(words in message for words in _CONSEQUENCES)

    def _with_tail(self, failure: Failure) -> Failure:
        assert failure.rank is not None
        return Failure(failure.kind, failure.message, failure.rank, self.ranks[failure.rank].tail)

    def _hint(self, rank: RankState) -> str:
        """Ranks that never find each other wait without a word: mostly a firewall drops what they send."""
        if self._hosts == 1 or rank.phase not in _MEETING_PHASES:
            return ""
        return "; do the hosts reach each other's ports? see: trainscale check --hosts FILE"

    def _place(self, rank: RankState) -> str:
        return f"{rank.phase}, step {rank.step}" if rank.step else rank.phase

    def _sample(self, number: int, rank: RankState) -> RankSample:
        assert rank.result is not None
        result = rank.result
        if len(rank.step_seconds) != result["steps"]:
            self._notes.append(
                f"rank {number}: {result['steps']} steps taken, times of {len(rank.step_seconds)} arrived"
            )
        nvml_peak, nvml_note = _nvml(rank)
        return RankSample(
            rank=number,
            host=rank.hello.get("host", ""),
            samples=result["images"],
            window_seconds=result["window_seconds"],
            step_seconds=tuple(rank.step_seconds),
            startup_seconds=result["startup_seconds"],
            first_step_seconds=result["first_step_seconds"],
            first_loss=_finite(result["first_loss"]),
            last_loss=_finite(result["last_loss"]),
            weights_digest=result["weights_digest"],
            device_peak_bytes=rank.memory.get("device_peak_bytes"),
            nvml_peak_bytes=nvml_peak,
            nvml_note=nvml_note,
            host_peak_bytes=rank.memory.get("host_peak_bytes"),
            loaders_peak_bytes=rank.memory.get("loaders_peak_bytes"),
            cpu_seconds=result["cpu_seconds"],
            involuntary_switches=result["involuntary_switches"],
            waited_seconds=result.get("waited_seconds"),
            resident_steps=rank.resident.get("steps", 0),
            resident_seconds=rank.resident.get("seconds", 0.0),
        )


def _nvml(rank: RankState) -> tuple[int | None, str]:
    """What the driver counted, or why that is not known."""
    peak, allocated = rank.nvml.get("peak_bytes"), rank.memory.get("device_peak_bytes")
    # Mostly an allocator keeps what it has taken. What it gives back at once (a search for the fastest convolution) the
    # driver, asked five times a second, may not have seen.
    if peak is not None and allocated is not None and peak < allocated:
        return None, f"NVML, asked five times a second, saw {peak} bytes where the allocator once had {allocated}"
    return peak, rank.nvml.get("note", "")


def _finite(value: float) -> float | None:
    """JSON has no NaN; a loss that is not a number becomes no number."""
    return value if math.isfinite(value) else None


def _exit_words(code: int) -> str:
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"was ended by {names.get(-code, f'signal {-code}')}"
    return f"ended with exit code {code}" if code else "ended without a result"
