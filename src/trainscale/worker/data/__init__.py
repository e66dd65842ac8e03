"""Where batches come from. A source is a module here with a function ``batches(job, place)``: an endless iterator of
batches that ``place`` has put where the framework wants them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from typing import Any

from ..job import Job

SOURCES: dict[str, str] = {"synthetic": "random images, resident on the device"}


def batches(job: Job, place: Callable[[Any, Any], Any]) -> Iterator[Any]:
    """The batches of this rank, from the source that the config names."""
    source = importlib.import_module(f".{job.config['data']}", __package__)
    found: Iterator[Any] = source.batches(job, place)
    return found
