"""What can be typed after ``trainscale``: commands, flags and values, read from the parsers of the commands.

Nothing is listed here that a parser knows. Only names that a parser does not know are added: networks, frameworks,
strategies, launchers.
"""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from ...analyse.best.criteria import CRITERIA
from ...analyse.comparison.differences import NAMES
from ...analyse.comparison.sides import EFFICIENCY, SPEED
from ...cluster.datasets import PUBLISHED
from ...cluster.environments import DEFINITIONS
from ...export.base import list_exporter_names
from ...launch.launchers.catalog import LAUNCHERS, list_launcher_groups
from ...published.selection import NORMALISATIONS
from ...report import chart_files
from ...spec.groups import collect_settings
from ...worker import models
from ...worker.data import SOURCES
from ...worker.data.facts import SYNTHETIC
from ...worker.frameworks.catalog import FRAMEWORKS, STRATEGIES
from .. import COMMANDS
from ..parser import Parser, find_parser
from ..study import FORMATS, PURPOSES
from . import SHELLS

# Kinds of values. A list is typed with commas between its words.
WORDS, LIST, RUNS, FOLDERS, FILES, OTHER = "words", "list", "runs", "folders", "files", "other"
_KINDS_BY_METAVAR = {"DIR": FOLDERS, "FILE": FILES, "PATH": FILES, "PYTHON": FILES}
_RUN_ARGUMENTS = ("directories", "directory", "a", "b", "like")  # the names under which parsers hold runs


@dataclass(frozen=True)
class Values:
    """What may follow a flag, or be an argument. ``words`` are those of WORDS and LIST."""

    kind: str
    words: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return the form that the scripts use: the kind, then the words."""
        return " ".join((self.kind, *self.words))


@dataclass(frozen=True)
class Flag:
    """The spellings of a flag. ``values`` is None if nothing follows it."""

    names: tuple[str, ...]
    help: str
    values: Values | None


@dataclass(frozen=True)
class Argument:
    values: Values
    is_repeated: bool


@dataclass(frozen=True)
class CommandLine:
    """A command, or an action of one, with what may follow it. ``name`` is what is typed: ``run``, ``env create``."""

    name: str
    help: str
    flags: tuple[Flag, ...] = ()
    arguments: tuple[Argument, ...] = ()
    actions: tuple[CommandLine, ...] = ()


def describe_commands() -> tuple[CommandLine, ...]:
    return tuple(_describe_command(name, description) for name, description in COMMANDS.items())


def flatten(commands: tuple[CommandLine, ...]) -> Iterator[CommandLine]:
    """Yield every command that reads flags: a command without actions, or the actions of one."""
    for command in commands:
        yield from command.actions or (command,)


def _describe_command(name: str, description: str) -> CommandLine:
    package = __package__.rpartition(".")[0]
    module = importlib.import_module(f".{name.replace('-', '_')}", package)
    actions: dict[str, str] = getattr(module, "ACTIONS", {})
    if actions:
        of_actions = [
            _describe_parser(f"{name} {action}", text, find_parser(partial(module.main, [action])))
            for action, text in actions.items()
        ]
        return CommandLine(name, description, actions=tuple(of_actions))
    return _describe_parser(name, description, find_parser(partial(module.main, [])))


def _describe_parser(name: str, description: str, parser: Parser) -> CommandLine:
    flags = [action for action in parser.actions if action.option_strings]
    arguments = [action for action in parser.actions if not action.option_strings]
    return CommandLine(
        name,
        description,
        tuple(
            Flag(tuple(action.option_strings), _shorten_help(action), _find_values(name, action)) for action in flags
        ),
        tuple(
            Argument(_find_values(name, action) or Values(OTHER), action.nargs not in (None, "?"))
            for action in arguments
        ),
    )


def _shorten_help(action: argparse.Action) -> str:
    """Return the first clause of a help text, because a shell shows one line."""
    text = (action.help or "").replace("%%", "%")
    return text.partition(" (default")[0].partition(";")[0].partition(": ")[0]


def _find_values(command: str, action: argparse.Action) -> Values | None:
    if action.nargs == 0:
        return None
    if action.choices is not None:
        return Values(WORDS, tuple(map(str, action.choices)))
    named = _find_named_values(command, action.dest)
    if named:
        return named
    if action.dest in _RUN_ARGUMENTS and not command.startswith("data "):
        return Values(RUNS)
    if action.dest in ("file", "files"):
        return Values(FILES)
    setting = collect_settings(list_launcher_groups()).get(action.dest)
    if setting and setting.value_type.choices:
        return Values(LIST if setting.value_type.is_plural else WORDS, setting.value_type.choices)
    return Values(_KINDS_BY_METAVAR.get(str(action.metavar), OTHER))


def _find_named_values(command: str, dest: str) -> Values | None:
    """Return the names that an argument or a flag takes, where its parser does not hold them."""
    sources = tuple(name for name in SOURCES if ":" not in name)
    named = {
        "models": Values(LIST, tuple(models.list_names())),
        "frameworks": Values(LIST, tuple(FRAMEWORKS)),
        "strategies": Values(LIST, tuple(STRATEGIES)),
        "launcher": Values(WORDS, tuple(LAUNCHERS)),
        "data": Values(WORDS, sources),
        "normalise": Values(WORDS, tuple(NORMALISATIONS)),
        "despite": Values(LIST, tuple(NAMES)),
        "shell": Values(WORDS, SHELLS),
        "purpose": Values(WORDS, PURPOSES),
    }
    of_command = {
        ("env create", "names"): Values(WORDS, tuple(DEFINITIONS)),
        ("env remove", "names"): Values(WORDS, tuple(DEFINITIONS)),
        ("best", "by"): Values(WORDS, tuple(CRITERIA)),
        ("compare", "by"): Values(WORDS, (EFFICIENCY, SPEED)),
        ("export", "to"): Values(WORDS, tuple(list_exporter_names())),
        ("report", "format"): Values(LIST, chart_files.FORMATS),
        ("study", "format"): Values(WORDS, FORMATS),
        ("data get", "name"): Values(WORDS, tuple(PUBLISHED)),
        ("data check", "sets"): Values(WORDS, tuple(name for name in sources if name != SYNTHETIC)),
    }
    return of_command.get((command, dest)) or named.get(dest)
