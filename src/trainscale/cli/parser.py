"""Command lines: flags are made from the declared settings, and messages say what is valid."""

from __future__ import annotations

import argparse
import os
from collections.abc import Container
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError, explain_unknown, shorten
from ..launch.launchers.target import list_launcher_groups
from ..spec.experiment import Experiment, FurtherValues, make_experiment
from ..spec.groups import collect_settings
from ..spec.settings import SettingValues
from ..spec.value_types import SWITCH, ValueType

_MOST_SHOWN = 3  # values of a flag that was given several times
_MANY = ("*", "+", argparse.REMAINDER)  # arguments of any number


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises InputError and names the nearest flags."""

    def __init__(self, command: str, description: str, **options: Any) -> None:
        options = {"prog": f"trainscale {command}", **options}
        super().__init__(description=description, allow_abbrev=False, **options)
        # main() takes it out of any command line before a parser sees it.
        self.add_argument("--debug", action="store_true", help="show tracebacks")
        self.bare_flags: dict[str, ValueType] = {}  # flags that may stand alone

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}\n  see: {self.prog} --help")

    @property
    def actions(self) -> list[argparse.Action]:
        """All flags and arguments, except those that --help does not show."""
        return [action for action in self._actions if action.help != argparse.SUPPRESS]

    def read(self, argv: list[str]) -> argparse.Namespace:
        if "_ARGCOMPLETE" in os.environ:  # a shell wants to complete a line
            from .completion import offer_arguments

            offer_arguments(self)
        self._refuse_double_dashes(argv)
        self._refuse_nul(argv)
        options, extra = self.parse_known_args(self._complete(argv))
        if extra and extra[0].startswith("-"):
            flags = [flag for action in self._actions for flag in action.option_strings if flag.startswith("--")]
            raise explain_unknown("flag", extra[0].partition("=")[0], flags)
        if extra:
            raise InputError(f"unexpected argument {shorten(extra[0])!r}\n  see: {self.prog} --help")
        return options

    def _refuse_double_dashes(self, argv: list[str]) -> None:
        """Refuse ``--`` as a value, which argparse takes for an empty list, and alone where nothing can follow it."""
        end = argv.index("--") if "--" in argv else len(argv)
        if argv[end + 1 :] == [] and end < len(argv) and not any(action.nargs in _MANY for action in self._actions):
            raise InputError(f"unexpected argument '--'\n  see: {self.prog} --help")
        for argument in argv[:end]:
            flag, _, value = argument.partition("=")
            if value == "--" and any(flag in action.option_strings for action in self._actions):
                raise InputError(f"{flag}: '--' is not a value\n  see: {self.prog} --help")

    def _refuse_nul(self, argv: list[str]) -> None:
        """Refuse a NUL character, which no system call takes. Only programs that call main() can pass one."""
        for flag, argument in zip(["", *argv], argv, strict=False):
            if "\0" in argument:
                name = argument.partition("=")[0] if argument.startswith("-") else flag if flag.startswith("-") else ""
                where = f"{name}: " if name and "\0" not in name else ""
                raise InputError(f"{where}{shorten(argument)!r} has a NUL character\n  see: {self.prog} --help")

    def _complete(self, argv: list[str]) -> list[str]:
        """Give flags that stand alone the value that they then mean. What follows them may be an experiment file."""
        complete = list(argv)
        for index, argument in enumerate(argv):
            kind = self.bare_flags.get(argument)
            if kind and not _is_value(kind, argv[index + 1 : index + 2]):
                complete[index] = f"{argument}={kind.bare}"
        return complete


def _is_value(kind: ValueType, arguments: list[str]) -> bool:
    try:
        return bool(arguments) and kind.parse(arguments[0]) is not None
    except ValueError:
        return False


def add_experiment(parser: Parser, only: Container[str] | None = None) -> None:
    """Add an experiment file, and a flag for every setting or only for some."""
    parser.add_argument("file", nargs="?", type=Path, help="an experiment file (TOML); flags override it")
    add_settings(parser, only)


def add_settings(parser: Parser, only: Container[str] | None = None) -> None:
    """Add a flag for every setting, or only for some, in the groups of --help."""
    argument_groups: dict[str, Any] = {}
    for setting in collect_settings(list_launcher_groups()).values():
        if only is not None and setting.key not in only:
            continue
        if setting.group not in argument_groups:
            argument_groups[setting.group] = parser.add_argument_group(setting.group)
        options: dict[str, Any] = {"dest": setting.key, "help": setting.help.replace("%", "%%")}
        if setting.value_type is SWITCH:
            options |= {"action": argparse.BooleanOptionalAction, "default": None}
        else:
            options |= {"action": "append", "metavar": setting.metavar}
        argument_groups[setting.group].add_argument(*setting.flags, **options)
        if setting.value_type.bare:
            parser.bare_flags |= dict.fromkeys(setting.flags, setting.value_type)
        if setting.value_type.negated:
            value = setting.value_type.negated
            options = {"dest": setting.key, "action": "append_const", "const": value}
            options["help"] = f"the same as {setting.flag} {value}"
            argument_groups[setting.group].add_argument(f"--no-{setting.flag[2:]}", **options)


def read_experiment(options: argparse.Namespace, further: FurtherValues = lambda _: {}) -> Experiment:
    """Make the experiment of a command line. ``further`` gives values that neither a flag nor the file gives."""
    return make_experiment(_read_flags(options), getattr(options, "file", None), further, list_launcher_groups())


def _read_flags(options: argparse.Namespace) -> SettingValues:
    """Read the settings of the command line. A list may be given by one flag or by several."""
    values = {}
    for key, setting in collect_settings(list_launcher_groups()).items():
        texts = getattr(options, key, None)
        if texts is None:
            continue
        if isinstance(texts, bool):
            values[key] = texts
            continue
        if len(texts) > 1 and not setting.value_type.is_plural:
            given = " and ".join(map(shorten, texts[:_MOST_SHOWN]))
            raise InputError(f"{setting.flag}: given {len(texts)} times, with {given}; valid: once")
        values[key] = setting.read_text(setting.value_type.separator.join(texts), setting.flag)
    return values
