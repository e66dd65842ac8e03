"""The experiment: settings from flags, from a TOML file, or from both."""

import json
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ..errors import InputError, explain_unknown, shorten, shorten_path
from ..worker.regular_files import read_regular
from .config import AUTO
from .groups import (
    GROUPS,
    MOST_EPOCHS,
    PLUGIN_GROUPS,
    ClusterSettings,
    MeasurementSettings,
    RaySettings,
    ResourceSettings,
    SafetySettings,
    SlurmSettings,
    SshSettings,
    TrainingSettings,
    WorkSettings,
    YarnSettings,
    collect_settings,
)
from .settings import SettingGroup, SettingValues

_MOST_BYTES = 1 << 20  # of an experiment file
SEE_SETTINGS = "see: trainscale run --help; a flag --max-devices is the key max_devices"

FurtherValues = Callable[[Mapping[str, Any]], Mapping[str, Any]]

# Settings of which one excludes each of the others, with the reason.
_EXCLUDING = (
    ("budget repeats", "a budget decides by itself how often to repeat"),
    ("devices max_devices", "an explicit ladder has its own maximum"),
    ("budget epochs until_accuracy", "a budget cuts a window short, an epoch is not cut"),
    ("budget search", "a search decides by itself how often to repeat"),
    ("until_interval repeats", "the intervals decide how often to repeat"),
    ("until_interval epochs until_accuracy", "training to an accuracy is not repeated until its speed is known"),
    ("until_interval search", "a search decides by itself how often to repeat"),
    ("search epochs until_accuracy", "a search compares speeds, in short trials"),
    ("study scaling", "a study measures weak and strong scaling"),
    ("study budget until_interval", "a study repeats every point equally often"),
    ("study search", "a search compares configurations, a study measures them"),
    ("study epochs until_accuracy", "a study measures speed; trainscale study --epochs computes training time"),
)
_EXCLUSIVE = {
    (key, other): reason for keys, reason in _EXCLUDING for key, *others in [keys.split()] for other in others
}


@dataclass(frozen=True)
class Experiment:
    """What a person asked for, in groups of settings."""

    work: WorkSettings = field(default_factory=WorkSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    resources: ResourceSettings = field(default_factory=ResourceSettings)
    cluster: ClusterSettings = field(default_factory=ClusterSettings)
    measurement: MeasurementSettings = field(default_factory=MeasurementSettings)
    safety: SafetySettings = field(default_factory=SafetySettings)
    ssh: SshSettings = field(default_factory=SshSettings)
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    yarn: YarnSettings = field(default_factory=YarnSettings)
    ray: RaySettings = field(default_factory=RaySettings)
    plugin_groups: tuple[SettingGroup, ...] = ()

    @classmethod
    def of(cls, **values: Any) -> Self:
        wrong = values.keys() - collect_settings().keys()
        if wrong:
            raise TypeError(f"no such setting: {', '.join(sorted(wrong))}")
        groups: dict[str, Any] = {group.table: group.of(values) for group in GROUPS}
        return cls(**groups, plugin_groups=tuple(group.of(values) for group in PLUGIN_GROUPS))

    def replace_values(self, **values: Any) -> Self:
        return self.of(**{**self.to_dict(), **values})

    def to_dict(self) -> SettingValues:
        return {key: value for group in self.groups for key, value in vars(group).items()}

    @property
    def groups(self) -> tuple[SettingGroup, ...]:
        return (*(getattr(self, group.table) for group in GROUPS), *self.plugin_groups)


def make_experiment(
    flags: Mapping[str, Any],
    file: Path | None = None,
    further: FurtherValues = lambda _: {},
) -> Experiment:
    """Take each setting from flags, else the file, else ``further`` (called with both), else defaults."""
    values = read_experiment_file(file) if file else {}
    for pair, reason in _EXCLUSIVE.items():
        for given in (values, flags):
            if all(_is_set(given, key) for key in pair):
                raise InputError(f"{' and '.join(pair).replace('_', ' ')} exclude each other: {reason}")
    for pair in _EXCLUSIVE:
        if any(_is_set(flags, key) for key in pair):  # a flag wins over keys of the file
            values = {key: value for key, value in values.items() if key not in pair}
    values = {**values, **flags}
    if "until_accuracy" in values:
        values.setdefault("epochs", MOST_EPOCHS)
    if "epochs" in values:  # training may take hours: it is not repeated, and not ended
        values = {"repeats": 1, "timeout": 7 * 86400.0, **values}
    return Experiment.of(**{**further(values), **values})


def _is_set(values: Mapping[str, Any], key: str) -> bool:
    return key in values and values[key] is not False


def read_experiment_file(path: Path) -> SettingValues:
    """Read the settings of an experiment file: flat, or in tables named after their groups."""
    try:
        text = read_regular(path, _MOST_BYTES, pipes=True).decode("utf-8")
        document = tomllib.loads(text.replace("\r\n", "\n"))
    except OSError as error:
        raise InputError(f"{shorten_path(path)}: cannot read this experiment file: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: this experiment file is not UTF-8 text") from None
    except RecursionError:
        raise InputError(f"{path}: not usable: its lists or tables are nested too deeply") from None
    except ValueError as error:  # not TOML, a number of thousands of digits, or day 40
        raise InputError(f"{path}: not TOML: {shorten(str(error), 300)}") from None
    settings = collect_settings()
    groups = {group.table: group for group in (*GROUPS, *PLUGIN_GROUPS)}
    values: SettingValues = {}
    for name, content in document.items():
        group = groups.get(name) if isinstance(content, dict) else None
        valid = {setting.key: setting for setting in group.settings()} if group else settings
        for key, value in content.items() if group else [(name, content)]:
            setting = valid.get(key.replace("-", "_"))
            if setting is None:
                what, see = ("key", SEE_SETTINGS) if group is None else (f"key of [{shorten(name)}]", "")
                raise explain_unknown(what, key, valid, str(path), see)
            if setting.key in values:
                raise InputError(f"{path}: {setting.key} is set twice")
            values[setting.key] = setting.read_value(value, str(path))
    return values


def format_experiment(experiment: Experiment) -> str:
    """Return an experiment file that is read back as the same experiment."""
    values = experiment.to_dict()
    if experiment.measurement.is_sequential:
        del values["repeats"]  # the results decide it, and a file may not hold both
    if experiment.measurement.study:
        del values["scaling"]  # it measures both
    if experiment.work.batch:
        values["batch"] = ["auto" if batch == AUTO else batch for batch in experiment.work.batch]
    tables = []
    for group in experiment.groups:
        lines = []
        for setting in group.settings():
            value = values.get(setting.key)
            if value is not None and value != ():
                text = _format_toml(dict(value) if setting.value_type.is_table else value)
                lines.append(f"{setting.key} = {text}\n")
        if lines:
            tables.append("".join([f"[{group.table}]\n", *lines]))
    return "\n".join(tables)


def _format_toml(value: Any) -> str:
    if isinstance(value, dict):
        items = [f"{json.dumps(key)} = {_format_toml(item)}" for key, item in value.items()]
        return f"{{ {', '.join(items)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_toml, value))}]"
    # JSON and TOML write strings, numbers and booleans alike, but TOML does not allow a bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
