"""How weights are changed: the same SGD with momentum in every framework, and the learning rate of every update.

Read from a trial's config, in which values that were never asked for are left out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any

CONSTANT, COSINE, STEPS = "constant", "cosine", "step"
SCHEDULES = (CONSTANT, COSINE, STEPS)


@dataclass(frozen=True)
class Training:
    """``epochs`` is 0 where only speed is measured.

    ``schedule`` is ``constant``, ``cosine`` (down to 0 at the last epoch), or ``step:30,60``: a tenth after each of
    these epochs, ``step:30,60:0.5`` half. During ``warmup_epochs`` the rate rises from nothing in a straight line.
    """

    # Ten times this rate makes AlexNet on a batch of 8 overflow within seven steps.
    learning_rate: float = 0.001
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = CONSTANT
    warmup_epochs: float = 0.0
    epochs: int = 0
    until_accuracy: float | None = None

    @classmethod
    def of(cls, config: dict[str, Any]) -> Training:
        return cls(**{field.name: config[field.name] for field in fields(cls) if field.name in config})

    def rate(self, update: int, updates_per_epoch: int) -> float:
        """The learning rate of an update; the first is number 0."""
        epoch = update / updates_per_epoch if updates_per_epoch else 0.0
        if epoch < self.warmup_epochs:
            return self.learning_rate * (update + 1) / (self.warmup_epochs * updates_per_epoch)
        kind, *rest = self.schedule.split(":")
        if kind == COSINE and self.epochs:
            return self.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, epoch / self.epochs)))
        if kind == STEPS:
            factor = float(rest[1]) if len(rest) > 1 else 0.1
            return self.learning_rate * factor ** sum(epoch >= float(at) for at in rest[0].split(","))
        return self.learning_rate


def check_schedule(text: str) -> str:
    """The schedule as it is written in a config. Raises ValueError with what is valid."""
    valid = "valid: constant, cosine, step:30,60 (a tenth after epochs 30 and 60), step:30,60:0.5"
    kind, *rest = text.strip().lower().split(":")
    if kind not in SCHEDULES or (kind != STEPS and rest) or (kind == STEPS and len(rest) not in (1, 2)):
        raise ValueError(f"{text!r} is not a schedule; {valid}")
    try:
        epochs = [float(part) for part in rest[0].split(",")] if rest else []
        factor = float(rest[1]) if len(rest) > 1 else 0.1
    except ValueError:
        raise ValueError(f"{text!r}: epochs and factor must be numbers; {valid}") from None
    if epochs != sorted(epochs) or any(epoch <= 0 for epoch in epochs) or not 0 < factor < 1:
        raise ValueError(f"{text!r}: epochs must rise from above 0, and the factor lie between 0 and 1; {valid}")
    return text.strip().lower()
