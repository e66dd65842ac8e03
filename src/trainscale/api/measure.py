"""Measures from Python, with the settings of an experiment file."""

from __future__ import annotations

import os
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import TrainscaleError, explain_unknown
from ..runs import Run, load

if TYPE_CHECKING:
    from ..spec.settings import SettingValues


def run(
    file: str | Path | None = None,
    *,
    output: str | Path | None = None,
    fresh: bool = False,
    retry_failed: bool = False,
    quiet: bool = False,
    **settings: Any,
) -> Run:
    """Measure a scaling curve, as ``trainscale run`` does, and return the run.

    ``settings`` are those of an experiment file, such as ``models=["resnet50:8"]``, ``devices=[1, 2]``, ``steps=50``;
    they win over ``file``. The same call again continues the run, and returns at once if it is complete. ``output`` is
    its directory, ``fresh`` measures everything anew, ``retry_failed`` tries failed points again, ``quiet`` prints
    nothing. Failed points are part of the run. Raises ``InputError`` for wrong settings, before anything starts, and
    ``KeyboardInterrupt`` if it is interrupted.
    """
    from ..cli.run import main
    from ..launch.plugins import load_plugins

    load_plugins()
    arguments = [
        *([str(file)] if file is not None else []),
        *([f"--output={output}"] if output is not None else []),
        *(["--fresh"] if fresh else []),
        *(["--retry-failed"] if retry_failed else []),
        *make_flags(settings),
    ]
    directories: list[Path] = [] if output is None or fresh else [Path(output)]
    with ExitStack() as stack:
        if quiet:
            stack.enter_context(redirect_stdout(stack.enter_context(open(os.devnull, "w"))))  # noqa: PTH123
        code = main(arguments, after_run=lambda journal: directories.append(journal.directory), is_command=False)
    if code == KEYBOARD_INTERRUPT:
        raise KeyboardInterrupt
    if not directories:
        raise TrainscaleError("the run was submitted to Slurm; load its directory, or name one: run(…, output=DIR)")
    return load(directories[-1])


KEYBOARD_INTERRUPT = 130  # the exit code of a run that was interrupted


def make_flags(settings: SettingValues) -> list[str]:
    """Return the flags that mean the same as values of an experiment file. An InputError names a wrong one."""
    from ..launch.launchers.target import list_launcher_groups
    from ..spec.groups import collect_settings
    from ..spec.value_types import SWITCH

    declared = collect_settings(list_launcher_groups())
    flags = []
    for key, value in settings.items():
        if key not in declared:
            raise explain_unknown("setting", key, declared, "run()")
        setting, plain = declared[key], _simplify(value)
        setting.read_value(plain, "run()")
        if setting.value_type is SWITCH:
            flags.append(setting.flag if plain else f"--no-{setting.flag[2:]}")
        else:
            flags += [f"{setting.flag}={text}" for text in _list_texts(plain)]
    return flags


def _simplify(value: Any) -> Any:
    """Return a value as an experiment file could hold it: tuples are lists, paths are text."""
    if isinstance(value, dict):
        return {str(key): _simplify(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range | set | frozenset):
        return [_simplify(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _list_texts(value: Any) -> list[str]:
    if isinstance(value, dict):
        return [f"{key}={item}" for key, item in value.items()]
    items = value if isinstance(value, list) else [value]
    return [str(item).lower() if isinstance(item, bool) else str(item) for item in items]
