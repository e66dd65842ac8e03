"""What was seen in one trial: raw per-rank samples, never statistics. One of these is one line of the journal.

Schema history
    1  first version
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields
from typing import Any, TypeVar

from ..spec.config import Config, Trial

SCHEMA = 1
Kind = TypeVar("Kind")

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
    device_peak_bytes: int | None = None  # by the framework's allocator
    nvml_peak_bytes: int | None = None  # by the driver, of this rank's own processes
    nvml_note: str = ""  # why there is none on a GPU
    host_peak_bytes: int | None = None
    loaders_peak_bytes: int | None = None  # of the processes that prepare its images, added up
    cpu_seconds: float | None = None
    involuntary_switches: int | None = None
    waited_seconds: float | None = None  # of the window: for images that were not ready
    resident_steps: int = 0  # steps on one batch that stayed on the device, after the window
    resident_seconds: float = 0.0


@dataclass(frozen=True)
class Epoch:
    """One epoch of training to an accuracy, of all ranks together. ``seconds`` and ``images`` are of the steps alone,
    without the trial's very first one; the validation is not in them.
    """

    epoch: int  # from 1
    seconds: float
    images: int
    train_loss: float | None
    train_accuracy: float
    valid_loss: float | None
    valid_accuracy: float
    valid_images: int
    waited_seconds: float = 0.0
    evaluation_seconds: float = 0.0


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
    epochs: tuple[Epoch, ...] = ()
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
        known = {f.name for f in fields(cls)} - {"trial", "ranks", "epochs", "failure", "servers", "notes"}
        failure = values.get("failure")
        return cls(
            trial=Trial(Config.from_dict(values["config"]), values["devices"], values["repeat"]),
            ranks=tuple(_rank(rank) for rank in values.get("ranks", ())),
            epochs=tuple(_known(Epoch, epoch) for epoch in values.get("epochs", ())),
            servers=tuple(values.get("servers", ())),
            failure=_failure(failure) if failure else None,
            notes=tuple(values.get("notes", ())),
            **{name: value for name, value in values.items() if name in known},
        )


def _failure(values: dict[str, Any]) -> Failure:
    return _known(Failure, {**values, "tail": tuple(values.get("tail", ()))})


def _rank(values: dict[str, Any]) -> RankSample:
    return _known(RankSample, {**values, "step_seconds": tuple(values["step_seconds"])})


def _known(kind: type[Kind], values: dict[str, Any]) -> Kind:
    """Without what this version does not know: a newer one wrote it."""
    names = {one.name for one in fields(kind)}  # type: ignore[arg-type]
    return kind(**{name: value for name, value in values.items() if name in names})
