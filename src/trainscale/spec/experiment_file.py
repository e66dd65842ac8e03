"""Writes an experiment as TOML: the inverse of reading an experiment file."""

from __future__ import annotations

import json
from typing import Any

from .config import AUTO
from .experiment import Experiment
from .settings import SETTINGS


def format_experiment(experiment: Experiment) -> str:
    """Return a file that is read back as the same experiment. Settings without a value are left out."""
    values = experiment.to_dict()
    if experiment.budget is not None:
        del values["repeats"]  # a budget decides it: a file may not hold both
    if experiment.batch == AUTO:
        values["batch"] = "auto"
    lines = []
    for setting in SETTINGS:
        value = values.get(setting.key)
        if value is not None and value != ():
            lines.append(f"{setting.key} = {_format(dict(value) if setting.kind.table else value)}")
    return "\n".join([*lines, ""])


def _format(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_format(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format, value))}]"
    # JSON and TOML write strings, numbers and booleans alike, but TOML does not allow a bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
