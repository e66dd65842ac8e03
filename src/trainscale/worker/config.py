"""What a trial trains and how, except on how many devices."""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from .type_aliases import JsonObject

WEAK, STRONG = "weak", "strong"
BESIDE, APART = "beside", "apart"
FILL, ROUND_ROBIN = "fill", "round-robin"
EACH_HOST = -1  # a number of servers: the same number on every host that has workers
AUTO = 0  # a batch: the largest that fits, not known yet

TUNED, SYSTEM = "tuned", "system"
# Variables of the C library's memory allocator, which yield to the host's own. ``tuned`` keeps
# what a step frees. By default large tensors return to the system: 16,000 to 35,000 page faults
# per step of ResNet-18 in Keras on PyTorch.
ALLOCATORS: dict[str, dict[str, str]] = {
    TUNED: {
        "MALLOC_MMAP_THRESHOLD_": "1073741824",
        "MALLOC_TRIM_THRESHOLD_": "2147483647",
        "MALLOC_TOP_PAD_": "67108864",
    },
    SYSTEM: {},
}

CONSTANT, COSINE, STEPS = "constant", "cosine", "step"
SCHEDULES = (CONSTANT, COSINE, STEPS)
_STEP_FACTOR = 0.1

_TRAINING = ("learning_rate", "momentum", "weight_decay", "schedule", "warmup_epochs", "epochs", "until_accuracy")
# Fields that came later: defaults are left out, so that old keys stay valid.
OMITTED_DEFAULTS = ("servers_per_host", "placement", "augment", "loaders", "deterministic", "allocator", *_TRAINING)


@dataclass(frozen=True)
class Config(Mapping[str, Any]):
    """Everything that defines the work, except the number of devices.

    ``batch`` is per device under weak scaling and cluster-wide under strong scaling. A config
    is also a mapping of names to values, for Python programs that tabulate runs.
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
    servers_per_host: int = 0  # 0: spread over the workers' hosts, or one each where apart
    placement: str = FILL
    augment: bool = True
    loaders: int = 0  # loader processes per rank; 0 chooses a number
    deterministic: bool = False
    allocator: str = TUNED  # see ALLOCATORS
    epochs: int = 0  # 0: measure speed, in steps
    until_accuracy: float | None = None
    learning_rate: float = 0.001  # 0.01 makes AlexNet with a batch of 8 overflow
    momentum: float = 0.9
    weight_decay: float = 1e-4
    schedule: str = CONSTANT  # of the learning rate, see compute_learning_rate
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
        """Whether the trial trains to an accuracy instead of measuring speed."""
        return self.epochs > 0

    def reset_training(self) -> Config:
        """Return the network with the default training on random images."""
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
        """Read a config without the fields of a newer version."""
        return cls(**{name: value for name, value in values.items() if name in _DEFAULTS})


_DEFAULTS: JsonObject = {field.name: field.default for field in fields(Config)}


def compute_digest(value: Any) -> str:
    """Return twelve hexadecimal digits that identify a JSON value."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def select_allocator_variables(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that choose or configure the C allocator, sorted by name."""
    others = ("GLIBC_TUNABLES", "LD_PRELOAD")  # which loads jemalloc or tcmalloc
    names = [name for name in environment if name.startswith("MALLOC_") or name in others]
    return {name: environment[name] for name in sorted(names)}


def compute_learning_rate(config: Config, update: int, updates_per_epoch: int) -> float:
    """Return the learning rate of an update; the first update is number 0.

    ``cosine`` lowers it to 0 at the last epoch, ``step:30,60`` divides it by ten after each
    of these epochs, ``step:30,60:0.5`` halves it there. It rises during ``warmup_epochs``.
    """
    epoch = update / updates_per_epoch if updates_per_epoch else 0.0
    if epoch < config.warmup_epochs:
        return config.learning_rate * (update + 1) / (config.warmup_epochs * updates_per_epoch)
    kind, *options = config.schedule.split(":")
    if kind == COSINE and config.epochs:
        return config.learning_rate * 0.5 * (1 + math.cos(math.pi * min(1.0, epoch / config.epochs)))
    if kind == STEPS:
        factor = float(options[1]) if len(options) > 1 else _STEP_FACTOR
        steps_taken = sum(epoch >= float(step) for step in options[0].split(","))
        return config.learning_rate * factor**steps_taken
    return config.learning_rate


def check_schedule(text: str) -> str:
    """Return the schedule as a config stores it. Raises ValueError, with the valid forms."""
    valid = "valid: constant, cosine, step:30,60 (a tenth after epochs 30 and 60), step:30,60:0.5"
    kind, *options = text.strip().lower().split(":")
    valid_counts = (1, 2) if kind == STEPS else (0,)
    if kind not in SCHEDULES or len(options) not in valid_counts:
        raise ValueError(f"{text!r} is not a schedule; {valid}")
    try:
        epochs = [float(epoch) for epoch in options[0].split(",")] if options else []
        factor = float(options[1]) if len(options) > 1 else _STEP_FACTOR
    except ValueError:
        raise ValueError(f"{text!r}: epochs and factor must be numbers; {valid}") from None
    if epochs != sorted(epochs) or any(epoch <= 0 for epoch in epochs) or not 0 < factor < 1:
        raise ValueError(f"{text!r}: epochs must rise from above 0, and the factor lie between 0 and 1; {valid}")
    return text.strip().lower()
