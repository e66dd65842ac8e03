"""The strong ladders of a study: the same work as its weak ladders, with a fixed batch of all devices together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from ..errors import InputError
from .config import AUTO, STRONG, Config
from .devices import AvailableDevices
from .experiment import Experiment
from .ladder import choose_ladder


def make_strong_configs(configs: Sequence[Config], available: AvailableDevices, experiment: Experiment) -> list[Config]:
    """Return a config under strong scaling for every config that runs on several devices, each once."""
    strong: dict[Config, None] = {}
    for config in configs:
        if config.batch == AUTO:
            raise InputError("batch auto: a study has a weak and a strong ladder; valid with --study: a number")
        ladder = choose_ladder(config, available, experiment.resources)
        if ladder[-1] > 1:
            batch = experiment.measurement.strong_batch or compute_even_batch(config.batch, ladder)
            strong[replace(config, scaling=STRONG, batch=batch)] = None
    if not strong:
        raise InputError("study: only one device would be used, so nothing scales; valid: more devices, not local")
    return list(strong)


def compute_even_batch(batch: int, ladder: Sequence[int]) -> int:
    """Return the largest multiple of every device count that is at most the batch, or else the smallest multiple.

    A batch that fits on one device under weak scaling then fits under strong scaling too, unless it had to be raised.
    """
    step = math.lcm(*ladder)
    return max(step, batch // step * step)
