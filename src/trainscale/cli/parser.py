"""Parsers of the commands. Their flags are made from the declared settings."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Container
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InputError, explain_unknown, shorten
from ..spec.experiment import Experiment, FurtherValues, make_experiment
from ..spec.groups import collect_settings
from ..spec.settings import SWITCH, SettingValues, ValueType
from . import COMMANDS, Debug

_MOST_SHOWN = 3  # values of a flag that was given several times
_MANY = ("*", "+", argparse.REMAINDER)  # arguments of any number


class _Debug(argparse.Action):
    def __call__(self, *_: Any) -> None:
        Debug.is_wanted = True


class _Formatter(argparse.HelpFormatter):
    def add_argument(self, action: argparse.Action) -> None:
        if not getattr(action, "is_rare", False):  # the epilog names those
            super().add_argument(action)


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises InputError and names the nearest flags."""

    def __init__(self, command: str, description: str = "", **options: Any) -> None:
        if not description:
            summary = COMMANDS[command]
            description = f"{summary[0].upper()}{summary[1:]}."
        options = {"prog": f"trainscale {command}", "formatter_class": _Formatter, **options}
        super().__init__(description=description, allow_abbrev=False, **options)
        self.add_argument("--debug", action=_Debug, nargs=0, help="show tracebacks")
        self.bare_flags: dict[str, ValueType] = {}  # flags that may stand alone
        self.by_action: dict[str, Parser] = {}  # the parsers of env create, env list …

    def add(self, flags: str, metavar: str | None, about: str, **options: Any) -> None:
        """Add an argument, or a flag such as ``-o --output``. An empty metavar makes a switch."""
        value = {"action": "store_true"} if metavar == "" else {"metavar": metavar}
        self.add_argument(*flags.split(), help=about, **{**value, **options})

    def add_action(self, name: str, function: Callable[[argparse.Namespace], int], about: str) -> Parser:
        """Add a parser for an action such as ``create``; ``options.run`` is its function."""
        if not self.by_action:
            self.usage = f"{self.prog} ACTION [options]"
            self._names = self.add_subparsers(title="actions", dest="action", metavar="ACTION", help="one of:")
        prog = f"{self.prog} {name}"
        description = f"{about[0].upper()}{about[1:]}."
        parser = self._names.add_parser(name, command="", description=description, prog=prog, help=about)
        parser.set_defaults(run=function)
        self.by_action[name] = parser
        return parser

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message.removeprefix('argument ')}\n  see: {self.prog} --help")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Name the nearest choice."""
        if action.choices is not None and value not in action.choices:
            what = str(action.metavar or "value").lower()
            where = action.option_strings[0] if action.option_strings else ""
            raise explain_unknown(what, str(value), map(str, action.choices), where)

    @property
    def actions(self) -> list[argparse.Action]:
        """Flags and arguments that are not hidden."""
        return [action for action in self._actions if action.help != argparse.SUPPRESS]

    def read(self, argv: list[str]) -> argparse.Namespace:
        if "_ARGCOMPLETE" in os.environ:  # a shell wants to complete a line
            from .completion import offer_arguments

            offer_arguments(self)
        end = argv.index("--") if "--" in argv else len(argv)
        # argparse takes -- for an empty list, as a value and at the end.
        for argument in argv[:end]:
            if argument.startswith("-") and argument.endswith("=--"):
                self.error(f"{shorten(argument[:-3])}: '--' is not a value")
        if argv[end:] == ["--"] and not any(action.nargs in _MANY for action in self._actions):
            self.error("unexpected argument '--'")
        complete = list(argv)
        for index, argument in enumerate(argv):
            if "\0" in argument:  # only a program that calls main() can pass one
                self.error(f"argument {shorten(argument)!r} has a NUL character")
            if kind := self.bare_flags.get(argument):
                try:
                    is_value = kind.read_text(argv[index + 1]) is not None
                except (IndexError, ValueError):  # another flag or an experiment file follows
                    is_value = False
                if not is_value:
                    complete[index] = f"{argument}={kind.bare}"
        if self.by_action and argv[:1] == ["help"]:
            complete = ["--help"]
        options: argparse.Namespace = self.parse_known_args(complete)[0]
        if self.by_action and options.action is None:
            command = self.prog.removeprefix("trainscale ")
            valid = ", ".join(f"{command} {name}" for name in self.by_action)
            raise InputError(f"{command}: no action\n  valid: {valid}")
        return options

    def parse_known_args(self, *arguments: Any, **further: Any) -> Any:
        """Refuse what the parser, or that of an action, does not know."""
        options, extra = super().parse_known_args(*arguments, **further)
        if extra and extra[0].startswith("-"):
            name, see = extra[0].partition("=")[0], f"see: {self.prog} --help"
            flags = [flag for action in self._actions for flag in action.option_strings]
            long_flags = [flag for flag in flags if flag.startswith("--")]
            raise explain_unknown("flag", name, long_flags, see=see)
        if extra:
            self.error(f"unexpected argument {shorten(extra[0])!r}")
        return options, []


def typed(kind: ValueType) -> Callable[[str], Any]:
    """Return an argparse type, whose error says what is valid."""

    def read(text: str) -> Any:
        try:
            return kind.read_text(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return read


def add_run(parser: Parser) -> None:
    parser.add("directory", "DIR", "the directory of a run", type=Path)


def add_formats(parser: Parser) -> None:
    formats = parser.add_mutually_exclusive_group()
    formats.add_argument("--json", action="store_true", help="print JSON")
    formats.add_argument("--markdown", action="store_true", help="print Markdown")


def add_experiment(parser: Parser, only: Container[str] | None = None) -> None:
    """Add an experiment file, and flags as ``add_settings`` does."""
    parser.usage = f"{parser.prog} [FILE] [options]"
    parser.add_argument("file", nargs="?", type=Path, help="an experiment file (TOML); flags override it")
    if only is None:
        parser.add("-o --output", "DIR", "the directory for the results (default: runs/NAME)", type=Path)
    add_settings(parser, only)
    if only is None:  # settings, which users type most, come before flags such as --debug
        parser._action_groups.append(parser._action_groups.pop(1))


def add_settings(parser: Parser, only: Container[str] | None = None) -> None:
    """Add a flag for every setting, or for some. --help only names the rare ones."""
    argument_groups: dict[str, Any] = {}
    rare = []
    for setting in collect_settings().values():
        if only is not None and setting.key not in only:
            continue
        if setting.group not in argument_groups:
            argument_groups[setting.group] = parser.add_argument_group(setting.group)
        add, kind = argument_groups[setting.group].add_argument, setting.value_type
        options: dict[str, Any] = {"dest": setting.key, "help": setting.help.replace("%", "%%")}
        if kind is SWITCH:
            action = add(*setting.flags, action=argparse.BooleanOptionalAction, default=None, **options)
        else:
            action = add(*setting.flags, action="append", metavar=setting.metavar, **options)
        if setting.is_rare and only is None:
            action.is_rare = True
            rare.append(setting.key)
        if kind.bare:
            parser.bare_flags |= dict.fromkeys(setting.flags, kind)
        if kind.negated:
            options["help"] = f"the same as {setting.flag} {kind.negated}"
            add(f"--no-{setting.flag[2:]}", action="append_const", const=kind.negated, **options)
    if rare:
        where = "as keys of an experiment file or as flags (docs/options.md)"
        parser.epilog = f"Rarely set, {where}: {', '.join(rare)}."


def read_experiment(options: argparse.Namespace, further: FurtherValues = lambda _: {}) -> Experiment:
    """``further`` gives values that neither a flag nor the file gives."""
    values: SettingValues = {}
    for key, setting in collect_settings().items():
        texts = getattr(options, key, None)
        if texts is None or isinstance(texts, bool):
            values.update({} if texts is None else {key: texts})
        elif len(texts) > 1 and not setting.value_type.separator:
            given = " and ".join(map(shorten, texts[:_MOST_SHOWN]))
            raise InputError(f"{setting.flag}: given {len(texts)} times, with {given}; valid: once")
        else:
            values[key] = setting.read_text(texts, setting.flag)
    return make_experiment(values, getattr(options, "file", None), further)


def warn_of_damage(message: str) -> None:
    print(f"trainscale: left out: {message}", file=sys.stderr)
