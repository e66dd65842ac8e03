"""batches.json: what was tried to find the largest batch that fits, so that nothing is tried twice.

Schema history
    1  first version
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ..errors import InputError
from ..spec.config import Config
from .files import write_whole

FILE = "batches.json"
SCHEMA = 1


@dataclass(frozen=True)
class Attempt:
    """One short trial on one device. Memory is that of the worker, in bytes."""

    batch: int
    fits: bool
    seconds: float
    message: str = ""  # why it does not fit
    device_peak_bytes: int | None = None
    nvml_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None  # what it might allocate, on a CPU

    @property
    def memory_bytes(self) -> int | None:
        """The most telling figure there is: what the GPU gave away, or else the allocator, or else the host."""
        return self.nvml_peak_bytes or self.device_peak_bytes or self.host_peak_bytes


@dataclass(frozen=True)
class Search:
    """``config`` has the batch AUTO. ``most`` is the largest batch to try, ``bound`` says in words what sets it."""

    config: Config
    most: int
    bound: str
    attempts: tuple[Attempt, ...] = ()
    done: bool = False

    @property
    def largest(self) -> Attempt | None:
        """That fits, whenever it was tried."""
        failed = {one.batch for one in self.attempts if not one.fits}
        fitting = [one for one in self.attempts if one.batch not in failed]
        return max(fitting, key=lambda one: (one.batch, one.memory_bytes or 0), default=None)

    @property
    def smallest_failing(self) -> Attempt | None:
        return min((one for one in self.attempts if not one.fits), key=lambda one: one.batch, default=None)


def write_batches(directory: Path, searches: Mapping[str, Search]) -> None:
    """``searches`` by the key of their config."""
    found = [{**asdict(one), "config": one.config.to_dict()} for one in searches.values()]
    write_whole(directory / FILE, json.dumps({"schema": SCHEMA, "searches": found}, indent=2) + "\n")


def read_batches(directory: Path) -> dict[str, Search]:
    """Nothing where no batch was searched."""
    path = directory / FILE
    try:
        document = json.loads(path.read_text())
        if document["schema"] > SCHEMA:
            raise InputError(
                f"{path}: written by a newer trainscale (schema {document['schema']}, this one knows {SCHEMA})"
            )
        found = [_search(values) for values in document["searches"]]
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: cannot be read as batches that were searched: {error}") from None
    return {search.config.key: search for search in found}


def _search(values: dict[str, Any]) -> Search:
    known = {field.name for field in fields(Attempt)}
    attempts = tuple(
        Attempt(**{name: value for name, value in one.items() if name in known}) for one in values["attempts"]
    )
    return Search(Config.from_dict(values["config"]), values["most"], values["bound"], attempts, values["done"])
