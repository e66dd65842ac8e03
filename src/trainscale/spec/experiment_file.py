"""Writes an experiment as TOML: the inverse of reading an experiment file."""

from __future__ import annotations

import json
from typing import Any

from .config import AUTO
from .experiment import Experiment


def format_experiment(experiment: Experiment) -> str:
    """Return a file that is read back as the same experiment. Settings without a value are left out."""
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
                text = _format(dict(value) if setting.value_type.is_table else value)
                lines.append(f"{setting.key} = {text}\n")
        if lines:
            tables.append("".join([f"[{group.table}]\n", *lines]))
    return "\n".join(tables)


def _format(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{json.dumps(key)} = {_format(item)}' for key, item in value.items())} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format, value))}]"
    # JSON and TOML write strings, numbers and booleans alike, but TOML does not allow a bare DEL.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
