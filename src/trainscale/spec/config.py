"""What is measured: a config, and one trial of it. Both are frozen and hash to stable keys."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from ..worker.training.hyperparameters import Training

WEAK, STRONG = "weak", "strong"
BESIDE, APART = "beside", "apart"
FILL, ROUND_ROBIN = "fill", "round-robin"
EACH_HOST = -1  # as a number of servers: some on every host that has workers
AUTO = 0  # as a batch: the largest that fits, which is not known yet

# The usual training: of all trials that measure speed, and of every parity check.
_TRAINING = Training()
_LATER = (
    ("servers_per_host", 0),
    ("placement", FILL),
    ("augment", True),
    ("loaders", 0),
    ("deterministic", False),
    *((field.name, getattr(_TRAINING, field.name)) for field in fields(Training)),
)


@dataclass(frozen=True)
class Config:
    """Everything that says which work is done, except on how many devices.

    ``batch`` is per device under weak scaling and cluster-wide under strong scaling: ask ``batch_per_device``
    and ``global_batch``, which know.
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
    servers_per_host: int = 0  # 0: spread over the hosts of the workers, or one a host where servers are apart
    placement: str = FILL
    augment: bool = True
    loaders: int = 0  # processes of each rank that prepare images; 0: as many as suit
    deterministic: bool = False
    epochs: int = _TRAINING.epochs  # 0: speed is measured, in steps
    until_accuracy: float | None = None
    learning_rate: float = _TRAINING.learning_rate
    momentum: float = _TRAINING.momentum
    weight_decay: float = _TRAINING.weight_decay
    schedule: str = _TRAINING.schedule
    warmup_epochs: float = _TRAINING.warmup_epochs

    def untrained(self) -> Config:
        """The same network with the usual training on random images, as a parity check computes it."""
        usual = {field.name: getattr(_TRAINING, field.name) for field in fields(Training)}
        return replace(self, data="synthetic", augment=True, loaders=0, deterministic=False, **usual)

    def batch_per_device(self, devices: int) -> int:
        return self.batch if self.scaling == WEAK else self.batch // devices

    def global_batch(self, devices: int) -> int:
        return self.batch * devices if self.scaling == WEAK else self.batch

    @property
    def strategy_label(self) -> str:
        """The strategy as a person types it: ``ps:2`` is two parameter servers."""
        if self.servers == EACH_HOST:
            return f"{self.strategy}:each"
        return f"{self.strategy}:{self.servers}" if self.servers else self.strategy

    def servers_on(self, hosts: int) -> int:
        """How many there are when the workers are on so many hosts."""
        return (self.servers_per_host or 1) * hosts if self.servers == EACH_HOST else self.servers

    @property
    def key(self) -> str:
        return digest(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Without what came after the first journals where it says nothing new: keys made then stay as they are."""
        return {name: value for name, value in asdict(self).items() if (name, value) not in _LATER}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Config:
        """Fields that this version does not know (a newer journal) are dropped, not fatal."""
        known = {field.name for field in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


@dataclass(frozen=True)
class Trial:
    """One config on one device count, once, in fresh processes."""

    config: Config
    devices: int
    repeat: int

    @property
    def point(self) -> tuple[Config, int]:
        return self.config, self.devices

    @property
    def key(self) -> str:
        return f"{self.config.key}-n{self.devices}-r{self.repeat}"

    @property
    def label(self) -> str:
        config = self.config
        return (
            f"{config.framework} {config.model} b{config.batch} {config.strategy_label}"
            f" · {self.devices} device{'s' if self.devices > 1 else ''} · repeat {self.repeat + 1}"
        )


def digest(value: Any) -> str:
    """Twelve hexadecimal digits that stand for a JSON value, whatever the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]
