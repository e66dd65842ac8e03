"""Configs and jobs for tests that care about only a few of their fields."""

from __future__ import annotations

import json
from typing import Any

from trainscale.worker.config import Config
from trainscale.worker.events import MARK
from trainscale.worker.job import WORKER, Device, Job


def make_config(strategy: str = "local", **values: Any) -> Config:
    values = {"framework": "torch", "model": "mnist", "batch": 8, "image_size": 28, "classes": 10, **values}
    return Config(strategy=strategy, **values)


def make_job(strategy: str = "local", **values: Any) -> Job:
    """A single worker unless told otherwise."""
    defaults: dict[str, Any] = {
        "role": WORKER,
        "rank": 0,
        "workers": 1,
        "servers": 0,
        "addresses": ("127.0.0.1",),
        "ports": (1,),
        "rendezvous_port": 2,
        "device": Device(),
        "config": make_config(strategy),
        "batch": 8,
    }
    return Job(**{**defaults, **values})


def decode(line: str) -> dict[str, Any] | None:
    """Return the values of an event line, or None for any other line."""
    return dict(json.loads(line[len(MARK) :])) if line.startswith(MARK) else None
