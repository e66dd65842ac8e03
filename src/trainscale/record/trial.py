"""What was seen in one trial: raw per-rank samples, never statistics. One of these is one line of the journal.

Schema history
    1  first version
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any

from ..spec.config import Config, Trial

SCHEMA = 1

OK = "ok"
# Why a trial has no result. The order is that of the docs (docs/results.md).
OUT_OF_MEMORY, CRASH, TIMEOUT, HANG, LOST, REFUSED = "oom", "crash", "timeout", "hang", "lost", "refused"
MISSING = "missing"  # its framework cannot be had here; the same command tries again


@dataclass(frozen=True)
class Failure:
    """Why a trial ended without a result. ``tail`` holds the last lines of the log of the rank to blame."""

    kind: str
    message: str
    rank: int | None = None
    tail: tuple[str, ...] = ()


@dataclass(frozen=True)
class RankSample:
    """What one worker measured in its window. All times are seconds, all memory is bytes."""

    rank: int
    host: str
    images: int
    window_seconds: float
    step_seconds: tuple[float, ...]
    startup_seconds: float = 0.0
    first_step_seconds: float = 0.0
    first_loss: float | None = None
    last_loss: float | None = None
    weights_digest: str | None = None
    device_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    cpu_seconds: float | None = None
    involuntary_switches: int | None = None


@dataclass(frozen=True)
class TrialRecord:
    """One finished trial, good or failed."""

    trial: Trial
    status: str
    started: str
    seconds: float
    hosts: int = 1
    warmup: int = 0
    steps: int = 0
    ranks: tuple[RankSample, ...] = ()
    servers: tuple[dict[str, Any], ...] = ()
    failure: Failure | None = None
    versions: dict[str, str] = field(default_factory=dict)
    parameters: int | None = None
    machine: dict[str, float] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.status == OK

    def to_dict(self) -> dict[str, Any]:
        values = asdict(self)
        values.pop("trial")
        return {
            "schema": SCHEMA,
            "key": self.trial.key,
            "config": self.trial.config.to_dict(),
            "devices": self.trial.devices,
            "repeat": self.trial.repeat,
            **values,
        }

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> TrialRecord:
        known = {f.name for f in fields(cls)} - {"trial", "ranks", "failure", "servers", "notes"}
        failure = values.get("failure")
        return cls(
            trial=Trial(Config.from_dict(values["config"]), values["devices"], values["repeat"]),
            ranks=tuple(_rank(rank) for rank in values.get("ranks", ())),
            servers=tuple(values.get("servers", ())),
            failure=_failure(failure) if failure else None,
            notes=tuple(values.get("notes", ())),
            **{name: value for name, value in values.items() if name in known},
        )


def _failure(values: dict[str, Any]) -> Failure:
    known = {f.name for f in fields(Failure)}
    kept = {name: value for name, value in values.items() if name in known}
    return Failure(**{**kept, "tail": tuple(kept.get("tail", ()))})


def _rank(values: dict[str, Any]) -> RankSample:
    known = {f.name for f in fields(RankSample)}
    kept = {name: value for name, value in values.items() if name in known}
    return RankSample(**{**kept, "step_seconds": tuple(kept["step_seconds"])})
