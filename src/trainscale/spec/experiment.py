"""The experiment: the settings from flags, from a TOML file, or from both. They are checked here, not yet planned."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypeVar

from ..errors import InputError, explain_unknown, shorten, shorten_path
from ..worker.regular_files import read_regular
from ..worker.type_aliases import JsonObject
from .groups import (
    GROUPS,
    MOST_EPOCHS,
    ClusterSettings,
    MeasurementSettings,
    ResourceSettings,
    SafetySettings,
    TrainingSettings,
    WorkSettings,
    collect_settings,
)
from .settings import SettingGroup, SettingValues

_TRAINING_SECONDS = 7 * 86400.0
_MOST_BYTES = 1 << 20  # of an experiment file
_LONGEST_REASON, _REASON_END = 300, 40  # characters
_LONG_NUMBER = re.compile(r"[0-9_]{1000,}")

FurtherValues = Callable[[Mapping[str, Any]], Mapping[str, Any]]
LauncherGroups = Sequence[type[SettingGroup]]
Group = TypeVar("Group", bound=SettingGroup)

_EXCLUSIVE = {
    ("budget", "repeats"): "a budget decides by itself how often to repeat",
    ("devices", "max_devices"): "an explicit ladder has its own maximum",
    ("budget", "epochs"): "a budget cuts a window short, an epoch is not cut",
    ("budget", "until_accuracy"): "a budget cuts a window short, an epoch is not cut",
    ("budget", "search"): "a search decides by itself how often to repeat",
    ("until_interval", "repeats"): "the intervals decide how often to repeat",
    ("until_interval", "epochs"): "training to an accuracy is not repeated until its speed is known",
    ("until_interval", "until_accuracy"): "training to an accuracy is not repeated until its speed is known",
    ("until_interval", "search"): "a search decides by itself how often to repeat",
    ("search", "epochs"): "a search compares speeds, in short trials",
    ("search", "until_accuracy"): "a search compares speeds, in short trials",
    ("study", "scaling"): "a study measures weak and strong scaling",
    ("study", "budget"): "a study repeats every point equally often",
    ("study", "until_interval"): "a study repeats every point equally often",
    ("study", "search"): "a search compares configurations, a study measures them",
    ("study", "epochs"): "a study measures speed; trainscale study --epochs computes the time of a training",
    ("study", "until_accuracy"): "a study measures speed; trainscale study --epochs computes the time of a training",
}


@dataclass(frozen=True)
class Experiment:
    """What a person asked for, in groups of settings. groups/ declares them."""

    work: WorkSettings = field(default_factory=WorkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    resources: ResourceSettings = field(default_factory=ResourceSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    measurement: MeasurementSettings = field(default_factory=MeasurementSettings)
    safety: SafetySettings = field(default_factory=SafetySettings)
    launcher_groups: tuple[SettingGroup, ...] = ()

    @classmethod
    def of(cls, launcher_groups: LauncherGroups = (), **values: Any) -> Self:
        """Make an experiment from values by the keys of their settings."""
        wrong = values.keys() - collect_settings(launcher_groups).keys()
        if wrong:
            raise TypeError(f"no such setting: {', '.join(sorted(wrong))}")
        return cls(
            WorkSettings.of(values),
            TrainingSettings.of(values),
            ResourceSettings.of(values),
            ClusterSettings.of(values),
            MeasurementSettings.of(values),
            SafetySettings.of(values),
            tuple(group.of(values) for group in launcher_groups),
        )

    def select_settings(self, group: type[Group]) -> Group:
        """Return the settings that a launcher declares."""
        return next((item for item in self.launcher_groups if isinstance(item, group)), group())

    def replace_values(self, **values: Any) -> Self:
        """Return a copy with other values for some settings."""
        launcher_groups = tuple(type(group) for group in self.launcher_groups)
        return self.of(launcher_groups, **{**self.to_dict(), **values})

    def to_dict(self) -> SettingValues:
        """Return all values by the keys of their settings, without groups."""
        return {key: value for group in self.groups for key, value in vars(group).items()}

    @property
    def groups(self) -> tuple[SettingGroup, ...]:
        return (*(getattr(self, group.table) for group in GROUPS), *self.launcher_groups)


def make_experiment(
    flags: Mapping[str, Any],
    file: Path | None = None,
    further: FurtherValues = lambda _: {},
    launcher_groups: LauncherGroups = (),
) -> Experiment:
    """Make an experiment from the values of the flags. Where they give none, the value comes from the experiment file,
    then from ``further``, which is called with all of these, then from the default.
    """
    values = read_experiment_file(file, launcher_groups) if file else {}
    _check_exclusive(values)
    _check_exclusive(flags)
    for pair in _EXCLUSIVE:
        if any(_is_set(flags, key) for key in pair):  # a flag also wins over the keys of the file that it excludes
            values = {key: value for key, value in values.items() if key not in pair}
    values = {**values, **flags}
    if "until_accuracy" in values:
        values.setdefault("epochs", MOST_EPOCHS)
    if "epochs" in values:  # training may take hours: it is not repeated, and not ended, unless a setting says so
        values = {"repeats": 1, "timeout": _TRAINING_SECONDS, **values}
    return Experiment.of(launcher_groups, **{**further(values), **values})


def _is_set(values: Mapping[str, Any], key: str) -> bool:
    """Return whether a setting is given and not switched off, as by --no-study."""
    return key in values and values[key] is not False


def _check_exclusive(values: Mapping[str, Any]) -> None:
    for pair, reason in _EXCLUSIVE.items():
        if all(_is_set(values, key) for key in pair):
            raise InputError(f"{' and '.join(pair).replace('_', ' ')} exclude each other: {reason}")


def read_experiment_file(path: Path, launcher_groups: LauncherGroups = ()) -> SettingValues:
    """Read the settings of an experiment file: flat, or in tables named after their groups. A wrong one is named with
    file and line.
    """
    text = _read_text(path)
    document = _parse_toml(path, text)
    settings = collect_settings(launcher_groups)
    groups = {group.table: group for group in (*GROUPS, *launcher_groups)}
    values: SettingValues = {}
    for name, content in document.items():
        group = groups.get(name) if isinstance(content, dict) else None
        valid = {setting.key: setting for setting in group.settings()} if group else settings
        for key, value in content.items() if group else [(name, content)]:
            where = f"{path}:{_find_line(key, text, name if group else '')}"
            setting = valid.get(key.replace("-", "_"))
            if setting is None:
                raise explain_unknown(f"key of [{shorten(name)}]" if group else "key", key, valid, where)
            if setting.key in values:
                raise InputError(f"{where}: {setting.key} is set twice")
            values[setting.key] = setting.read_toml(value, where)
    return values


def _read_text(path: Path) -> str:
    try:
        return read_regular(path, _MOST_BYTES, pipes=True).decode("utf-8").replace("\r\n", "\n")
    except OSError as error:
        raise InputError(f"{shorten_path(path)}: cannot read this experiment file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: this experiment file is not UTF-8 text") from None


def _parse_toml(path: Path, text: str) -> JsonObject:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path}: not TOML: {_shorten_reason(str(error))}") from None
    except RecursionError:
        raise InputError(f"{path}: not usable: its lists or tables are nested too deeply") from None
    except ValueError as error:  # Python refuses to read whole numbers of thousands of digits, and dates such as day 40
        match = _LONG_NUMBER.search(text)
        where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}" if match else str(path)
        reason = f"a number of {len(match[0])} digits is too large" if match else f"not TOML: {error}"
        raise InputError(f"{where}: {reason}") from None


def _shorten_reason(reason: str) -> str:
    """Shorten a message of the TOML reader, which may repeat a long key. Its end says the line."""
    return reason if len(reason) <= _LONGEST_REASON else f"{shorten(reason)} … {reason[-_REASON_END:]}"


def _find_line(key: str, text: str, table: str = "") -> int:
    """Return the line in which a key, or a table of that name, begins; with ``table``, a key of that table."""
    first = _find_line(table, text) if table else 1
    prefix = rf"""(["']?{re.escape(table)}["']?\s*\.\s*)?""" if table else ""
    begins = re.compile(rf"""\s*(\[+\s*)?{prefix}["']?{re.escape(key)}["']?\s*[=.\]]""")
    lines = enumerate(text.splitlines()[first - 1 :], first)
    return next((number for number, line in lines if begins.match(line)), first)
