"""The experiment: what a person asked for, by flags, by a TOML file, or both (flags win). Checked, not yet planned."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InputError, unknown
from .settings import BY_KEY

MOST_EPOCHS = 100  # where only an accuracy is asked for
_TRAINING_SECONDS = 7 * 86400.0

Below = Callable[[Mapping[str, Any]], Mapping[str, Any]]

_EXCLUSIVE = {
    ("budget", "repeats"): "a budget decides by itself how often to repeat",
    ("devices", "max_devices"): "an explicit ladder has its own maximum",
    ("budget", "epochs"): "a budget cuts a window short, an epoch is not cut",
    ("budget", "until_accuracy"): "a budget cuts a window short, an epoch is not cut",
}


@dataclass(frozen=True)
class Experiment:
    """Unset (None) means: the default, which may depend on the machine. fields.py says what each setting is."""

    models: tuple[str, ...] = ("alexnet", "inceptionv3")
    frameworks: tuple[str, ...] = ("torch",)
    strategies: tuple[str, ...] | None = None
    batch: int | None = None  # or AUTO
    max_batch: int | None = None
    image_size: int | None = None
    classes: int | None = None
    precision: str = "fp32"
    layout: str | None = None
    compile: bool = False
    data: str = "synthetic"
    augment: bool = True
    seed: int = 1337
    epochs: int | None = None
    until_accuracy: float | None = None
    learning_rate: float | None = None
    momentum: float = 0.9
    weight_decay: float | None = None
    schedule: str | None = None
    warmup_epochs: float = 0.0
    deterministic: bool = False
    device: str = "auto"
    launcher: str | None = None
    max_devices: int | None = None
    devices: tuple[int, ...] | None = None
    gpus_per_host: int | None = None
    cores_per_device: int | None = None
    ranks_per_gpu: int = 1
    loaders: int | None = None
    python: tuple[tuple[str, str], ...] | None = None
    servers: int | None = None
    server_placement: str = "beside"
    servers_per_host: int | None = None
    placement: str = "fill"
    hosts: str | None = None
    hosts_count: int | None = None
    remote_dir: str = "/tmp"
    remote_python: str | None = None
    setup: tuple[str, ...] = ()
    interface: str | None = None
    controller_address: str | None = None
    ssh_config: str | None = None
    forward_agent: bool = False
    nodes: int | None = None
    partition: str | None = None
    time: str | None = None
    account: str | None = None
    gres: str | None = None
    sbatch: tuple[str, ...] = ()
    queue: str | None = None
    yarn: tuple[str, ...] = ()
    ray_address: str | None = None
    scaling: str = "weak"
    warmup: int = 10
    steps: int = 100
    repeats: int = 5
    budget: float | None = None
    parity: bool = True
    timeout: float = 1800.0
    stall_timeout: float = 180.0

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def make(flags: dict[str, Any], file: Path | None = None, below: Below = lambda _: {}) -> Experiment:
    """From values that the flags gave (already read), over those of an experiment file, over those that ``below`` gives
    when it is told all of these, over the defaults.
    """
    values = read_file(file) if file else {}
    _check_exclusive(values)
    _check_exclusive(flags)
    for pair in _EXCLUSIVE:
        if any(key in flags for key in pair):  # a flag wins over the file, also over what it excludes
            values = {key: value for key, value in values.items() if key not in pair}
    values = {**values, **flags}
    if "until_accuracy" in values:
        values.setdefault("epochs", MOST_EPOCHS)
    if "epochs" in values:  # hours of training are not repeated, nor given up, unasked
        values = {"repeats": 1, "timeout": _TRAINING_SECONDS, **values}
    return replace(Experiment(), **{**below(values), **values})


def _check_exclusive(values: dict[str, Any]) -> None:
    for pair, why in _EXCLUSIVE.items():
        if all(key in values for key in pair):
            raise InputError(f"{' and '.join(pair).replace('_', ' ')} exclude each other: {why}")


def read_file(path: Path) -> dict[str, Any]:
    """The settings of an experiment file. Wrong ones are named with file and line."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"{path}: cannot read this experiment file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: this experiment file is not UTF-8 text") from None
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {error}") from None
    values = {}
    for key, value in document.items():
        where = f"{path}:{_line_of(key, text)}"
        name = key.replace("-", "_")
        if name not in BY_KEY:
            raise unknown("key", key, BY_KEY, where)
        values[name] = BY_KEY[name].read_toml(value, where)
    return values


def _line_of(key: str, text: str) -> int:
    """The line in which a top-level key, or a table of that name, begins."""
    begins = re.compile(rf"""\s*(\[+\s*)?["']?{re.escape(key)}["']?\s*[=.\]]""")
    return next((number for number, line in enumerate(text.splitlines(), 1) if begins.match(line)), 1)
