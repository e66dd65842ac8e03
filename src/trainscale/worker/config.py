"""What a trial trains and how, except on how many devices. The controller and every rank read this one dataclass."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .allocator import TUNED
from .type_aliases import JsonObject

WEAK, STRONG = "weak", "strong"
BESIDE, APART = "beside", "apart"
FILL, ROUND_ROBIN = "fill", "round-robin"
EACH_HOST = -1  # a number of servers: the same number on every host that has workers
AUTO = 0  # a batch: the largest that fits, not known yet

_TRAINING = ("learning_rate", "momentum", "weight_decay", "schedule", "warmup_epochs", "epochs", "until_accuracy")
# Fields that came after the first journals. Where one has its default it is left out, so that old keys stay valid.
OMITTED_DEFAULTS = ("servers_per_host", "placement", "augment", "loaders", "deterministic", "allocator", *_TRAINING)


@dataclass(frozen=True)
class Config(Mapping[str, Any]):
    """Everything that defines the work, except the number of devices.

    ``batch`` is per device under weak scaling and cluster-wide under strong scaling. Use ``batch_per_device`` and
    ``global_batch`` to read it. It is also a mapping of names to values, for Python programs that tabulate runs.
    """

    framework: str
    model: str
    batch: int
    strategy: str
    image_size: int
    classes: int
    channels: int = 3
    servers: int = 0  # or EACH_HOST
    server_placement: str = BESIDE
    precision: str = "fp32"
    layout: str = "nchw"
    compile: bool = False
    scaling: str = WEAK
    data: str = "synthetic"
    device: str = "cpu"
    cores_per_device: int = 1
    ranks_per_gpu: int = 1
    servers_per_host: int = 0  # 0: spread over the workers' hosts, or one per host where servers are apart
    placement: str = FILL
    augment: bool = True
    loaders: int = 0  # loader processes per rank; 0 chooses a number
    deterministic: bool = False
    allocator: str = TUNED  # the C library's memory allocator, see allocator.py
    epochs: int = 0  # 0: measure speed, in steps
    until_accuracy: float | None = None
    learning_rate: float = 0.001  # ten times this makes AlexNet with a batch of 8 overflow within seven steps
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = "constant"  # see training/learning_rate.py
    warmup_epochs: float = 0.0

    def __getitem__(self, name: str) -> Any:
        if name not in _DEFAULTS:
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.to_dict())

    def __len__(self) -> int:
        return len(self.to_dict())

    @property
    def trains_epochs(self) -> bool:
        """Whether the trial trains to an accuracy, in epochs, instead of measuring speed in steps."""
        return self.epochs > 0

    def reset_training(self) -> Config:
        """Return the same network with the default training on random images, as a parity check computes it."""
        names = ("data", "augment", "loaders", "deterministic", "allocator", *_TRAINING)
        return replace(self, **{name: _DEFAULTS[name] for name in names})

    def batch_per_device(self, devices: int) -> int:
        return self.batch if self.scaling == WEAK else self.batch // devices

    def global_batch(self, devices: int) -> int:
        return self.batch * devices if self.scaling == WEAK else self.batch

    @property
    def strategy_label(self) -> str:
        """The strategy as a person types it: ``ps:2`` means two parameter servers."""
        if self.servers == EACH_HOST:
            return f"{self.strategy}:each"
        return f"{self.strategy}:{self.servers}" if self.servers else self.strategy

    def count_servers(self, hosts: int) -> int:
        """Return the number of servers when the workers are on this many hosts."""
        return (self.servers_per_host or 1) * hosts if self.servers == EACH_HOST else self.servers

    @functools.cached_property
    def key(self) -> str:
        return compute_digest(self.to_dict())

    def to_dict(self) -> JsonObject:
        """Return the fields as the journal stores them, without ``OMITTED_DEFAULTS``."""
        values = asdict(self)
        for name in OMITTED_DEFAULTS:
            if values[name] == _DEFAULTS[name]:
                del values[name]
        return values

    @classmethod
    def from_dict(cls, values: JsonObject) -> Config:
        """Read a config. Fields that this version does not know, from a newer journal, are dropped."""
        return cls(**{name: value for name, value in values.items() if name in _DEFAULTS})


_DEFAULTS: JsonObject = {field.name: field.default for field in fields(Config)}


def compute_digest(value: Any) -> str:
    """Return twelve hexadecimal digits that identify a JSON value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
