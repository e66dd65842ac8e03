"""Flags from the table of settings, and messages that teach when one is wrong."""

from __future__ import annotations

import argparse
from collections.abc import Container
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError, unknown
from ..spec.experiment import Below, Experiment, make
from ..spec.settings import BY_KEY, SETTINGS, SWITCH


class Parser(argparse.ArgumentParser):
    """argparse with this project's exit code and words."""

    def __init__(self, command: str, description: str, **options: Any) -> None:
        options = {"prog": f"trainscale {command}", **options}
        super().__init__(description=description, allow_abbrev=False, **options)
        # main() takes it out of any command line before a parser sees it.
        self.add_argument("--debug", action="store_true", help="show tracebacks")

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}\n  see: {self.prog} --help")

    def read(self, words: list[str]) -> argparse.Namespace:
        options, extra = self.parse_known_args(words)
        if extra and extra[0].startswith("-"):
            flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            raise unknown("flag", extra[0].partition("=")[0], flags)
        if extra:
            raise InputError(f"do not know what to do with {extra[0]!r}\n  see: {self.prog} --help")
        return options


def add_experiment(parser: Parser, only: Container[str] | None = None) -> None:
    """Every setting of an experiment, or only some, and the file that may hold them."""
    parser.add_argument("file", nargs="?", type=Path, help="an experiment file (TOML); flags win over it")
    add_settings(parser, only)


def add_settings(parser: Parser, only: Container[str] | None = None) -> None:
    """Those of the command line alone."""
    groups: dict[str, Any] = {}
    for field in SETTINGS:
        if only is not None and field.key not in only:
            continue
        group = groups.setdefault(field.group, None) or parser.add_argument_group(field.group)
        groups[field.group] = group
        help_text = field.help.replace("%", "%%")
        if field.kind is SWITCH:
            group.add_argument(
                *field.flags,
                dest=field.key,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=help_text,
            )
        else:
            group.add_argument(*field.flags, dest=field.key, action="append", metavar=field.metavar, help=help_text)


def read_experiment(options: argparse.Namespace, below: Below = lambda _: {}) -> Experiment:
    """``below``: where else a setting may come from that neither flag nor file gives."""
    return make(_given(options), getattr(options, "file", None), below)


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """The settings that were typed, read. Lists may be given in one flag or in several."""
    given = {}
    for key, field in BY_KEY.items():
        value = getattr(options, key, None)
        if value is None:
            continue
        if isinstance(value, bool):
            given[key] = value
            continue
        flag = next(flag for flag in field.flags if flag.startswith("--"))
        if len(value) > 1 and not field.kind.plural:
            raise InputError(f"{flag}: given {len(value)} times, with {' and '.join(value)}; valid: once")
        given[key] = field.read_text(field.kind.joint.join(value), flag)
    return given
