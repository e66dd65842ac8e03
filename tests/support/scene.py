"""A trial as its observer sees it: ranks that speak in order, the events made by hand, the clock a number."""

from __future__ import annotations

import json
from typing import Any

from trainscale.launch.trial.observer import TrialObserver
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Config, Trial

STALL = 30.0


class Scene:
    """An observer, and ranks that speak to it in order."""

    def __init__(self, devices: int = 2, servers: int = 0) -> None:
        strategy = "ps" if servers else "allreduce"
        config = Config("torch", "mnist", 8, strategy, 28, 10, servers=servers)
        self.now = 0.0
        self.observer = TrialObserver(Trial(config, devices, 0), self.now, STALL)
        self._sequence: dict[int, int] = {}

    def says(self, rank: int, kind: str, **values: Any) -> None:
        sequence = self._sequence.get(rank, 0)
        self._sequence[rank] = sequence + 1
        self.hears({"kind": kind, "rank": rank, "seq": sequence, **values})

    def loses_a_line(self, rank: int, count: int = 1) -> None:
        self._sequence[rank] = self._sequence.get(rank, 0) + count

    def hears(self, event: dict[str, Any]) -> None:
        """As the controller gets it: through JSON."""
        self.observer.feed(json.loads(json.dumps(event)), self.now)

    def begins(self, rank: int) -> None:
        self.says(rank, "hello", host="here", pid=rank, role="worker", versions={"torch": "2.9"})
        self.says(rank, "ready", parameters=100)

    def moves(self, rank: int, phase: str = "measure", step: int = 1) -> None:
        self.says(rank, "heartbeat", phase=phase, step=step)

    def measures(self, rank: int, **changes: Any) -> None:
        """Everything that a rank says after its window."""
        steps = [0.5, 0.25, 0.25]
        self.says(rank, "memory", device_peak_bytes=None, host_peak_bytes=1000 + rank)
        self.says(rank, "steps", first=0, seconds=steps)
        result = {
            "images": 24,
            "steps": 3,
            "warmup": 2,
            "window_seconds": 1.0,
            "startup_seconds": 2.0,
            "first_step_seconds": 0.75,
            "first_loss": 2.5,
            "last_loss": 2.25,
            "cpu_seconds": 0.875,
            "involuntary_switches": 3,
            "weights_digest": "abc",
        }
        self.says(rank, "result", **{**result, **changes})

    def fails(self, rank: int, message: str, error: str = "crash") -> None:
        self.says(rank, "error", error=error, message=message)

    def exits(self, rank: int, code: int = 0, tail: str = "") -> None:
        self.hears({"kind": "exit", "rank": rank, "code": code, "tail": tail})

    def prints(self, rank: int, line: str) -> None:
        self.hears({"kind": "log", "rank": rank, "text": line})

    def ends(self, **changes: Any) -> None:
        end = {"seconds": 10.0, "own_cpu_seconds": 15.0, "machine_busy_seconds": 16.0, "kernel_kills": 0}
        self.hears({"kind": "end", **end, **changes})

    def record(self) -> TrialRecord:
        return self.observer.record("2026", 12.34567)


def a_good_scene(devices: int = 2) -> Scene:
    scene = Scene(devices)
    for rank in range(devices):
        scene.begins(rank)
        scene.measures(rank)
        scene.exits(rank)
    scene.ends()
    return scene
