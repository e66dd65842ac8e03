"""batches.json: which batches were tried to find the largest that fits.

Schema history
    1  first version
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from ..spec.config import Config
from ..worker.type_aliases import JsonObject
from .decoding import convert, read_document
from .files import write_atomically

FILE = "batches.json"
SCHEMA = 1


@dataclass(frozen=True)
class Attempt:
    batch: int
    fits: bool
    seconds: float
    message: str = ""  # why it does not fit
    device_peak_bytes: int | None = None
    nvml_peak_bytes: int | None = None
    host_peak_bytes: int | None = None
    memory_limit_bytes: int | None = None  # on a CPU: the limit set on the process

    @property
    def memory_bytes(self) -> int | None:
        """The first known count: of the driver, of the framework, of the host."""
        return self.nvml_peak_bytes or self.device_peak_bytes or self.host_peak_bytes


@dataclass(frozen=True)
class Search:
    """``config`` has the batch AUTO. ``bound`` says why ``most`` is not larger."""

    config: Config
    most: int
    bound: str
    attempts: tuple[Attempt, ...] = ()
    done: bool = False

    @property
    def largest(self) -> Attempt | None:
        """The largest batch known to fit, from this or an earlier run."""
        failed = {attempt.batch for attempt in self.attempts if not attempt.fits}
        fitting = [attempt for attempt in self.attempts if attempt.batch not in failed]
        return max(fitting, key=lambda attempt: (attempt.batch, attempt.memory_bytes or 0), default=None)

    @property
    def smallest_failing(self) -> Attempt | None:
        failed = [attempt for attempt in self.attempts if not attempt.fits]
        return min(failed, key=lambda attempt: attempt.batch, default=None)


def write_batches(directory: Path, searches: Mapping[str, Search]) -> None:
    values = [{**asdict(search), "config": search.config.to_dict()} for search in searches.values()]
    write_atomically(directory / FILE, json.dumps({"schema": SCHEMA, "searches": values}, indent=2) + "\n")


def read_batches(directory: Path) -> dict[str, Search]:
    """Return the searches of a run by the key of their config."""

    def decode(values: JsonObject) -> list[Search]:
        return convert(values.get("searches"), list[Search])

    searches = read_document(directory / FILE, SCHEMA, "batches that were searched", decode)
    return {search.config.key: search for search in searches or ()}
