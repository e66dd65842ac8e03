"""The learning rate of every update, by the schedule in a config. All frameworks follow the same schedule."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..config import Config

CONSTANT, COSINE, STEPS = "constant", "cosine", "step"
SCHEDULES = (CONSTANT, COSINE, STEPS)
_STEP_FACTOR = 0.1


def compute_learning_rate(config: Config, update: int, updates_per_epoch: int) -> float:
    """Return the learning rate of an update; the first update is number 0.

    ``constant`` keeps the rate, ``cosine`` lowers it to 0 at the last epoch, ``step:30,60`` divides it by ten after
    each of these epochs, and ``step:30,60:0.5`` halves it there. During ``warmup_epochs`` the rate rises linearly
    from 0.
    """
    epoch = update / updates_per_epoch if updates_per_epoch else 0.0
    if epoch < config.warmup_epochs:
        return config.learning_rate * (update + 1) / (config.warmup_epochs * updates_per_epoch)
    kind, *options = config.schedule.split(":")
    if kind == COSINE and config.epochs:
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, epoch / config.epochs)))
    if kind == STEPS:
        factor = float(options[1]) if len(options) > 1 else _STEP_FACTOR
        return config.learning_rate * factor ** sum(epoch >= float(step) for step in options[0].split(","))
    return config.learning_rate


def check_schedule(text: str) -> str:
    """Return the schedule as a config stores it. Raise ValueError, naming the valid forms, if it is not one."""
    valid = "valid: constant, cosine, step:30,60 (a tenth after epochs 30 and 60), step:30,60:0.5"
    kind, *options = text.strip().lower().split(":")
    if kind not in SCHEDULES or (kind != STEPS and options) or (kind == STEPS and len(options) not in (1, 2)):
        raise ValueError(f"{text!r} is not a schedule; {valid}")
    try:
        epochs = [float(epoch) for epoch in options[0].split(",")] if options else []
        factor = float(options[1]) if len(options) > 1 else _STEP_FACTOR
    except ValueError:
        raise ValueError(f"{text!r}: epochs and factor must be numbers; {valid}") from None
    if epochs != sorted(epochs) or any(epoch <= 0 for epoch in epochs) or not 0 < factor < 1:
        raise ValueError(f"{text!r}: epochs must rise from above 0, and the factor lie between 0 and 1; {valid}")
    return text.strip().lower()
