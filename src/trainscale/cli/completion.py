"""``trainscale completion bash|zsh|fish``, and what a shell offers then.

At every TAB the shell calls trainscale, and argcomplete asks the parser of the command. Words
that it does not know, such as names of networks, are added here.
"""

import argparse
import importlib
import os
from argparse import RawDescriptionHelpFormatter
from collections.abc import Callable, Iterable
from pathlib import Path

import argcomplete
from argcomplete.completers import ChoicesCompleter, DirectoriesCompleter, FilesCompleter
from argcomplete.lexers import split_line
from argcomplete.shell_integration import shellcode

from ..spec.groups import collect_settings
from . import COMMANDS, find_command
from .parser import Parser

Completer = Callable[..., Iterable[str]]

SHELLS = ("bash", "zsh", "fish")
_HELP = """Print a script that completes commands, flags and values. For this shell only:
  bash: eval "$(trainscale completion bash)"
  zsh: eval "$(trainscale completion zsh)"
  fish: trainscale completion fish | source"""
# Words, or where they are, of flags and arguments whose parser and setting have none.
NAMES: dict[str, str | tuple[str, ...]] = {
    "models": "worker.models.list_names",
    "frameworks": "worker.frameworks.catalog.FRAMEWORKS",
    "strategies": "worker.frameworks.catalog.STRATEGIES",
    "launcher": "launch.launchers.target.LAUNCHERS",
    "data": "worker.data.facts.SOURCES",
    "despite": "questions.compare.compare.NAMES",
    "env create names": "cluster.environments.DEFINITIONS",
    "env remove names": "cluster.environments.DEFINITIONS",
    "export to": "export.base.list_exporters",
    "report format": "report.options.FORMATS",
    "data get name": "cluster.datasets.PUBLISHED",
    "data check sets": ("mnist", "cifar10", "imagefolder"),
}
_RUN_ARGUMENTS = ("directories", "directory", "a", "b", "like")  # names of runs in parsers


def main(argv: list[str]) -> int:
    parser = Parser("completion", _HELP, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=", ".join(SHELLS))
    shell = parser.read(argv).shell
    # Without bash's own defaults: they would offer files where a number is to be typed.
    print(shellcode(["trainscale"], shell=shell, complete_arguments=["-o", "nospace"]), end="")
    return 0


def complete_line() -> int:
    """Offer commands, or let the parser of the typed command answer."""
    typed = split_line(os.environ["COMP_LINE"], int(os.environ["COMP_POINT"]))[3][1:]
    if not typed or typed[0] not in COMMANDS:
        parser = argparse.ArgumentParser(add_help=False)
        subparsers = parser.add_subparsers()
        for name, text in COMMANDS.items() if not typed else ():
            subparsers.add_parser(name, help=text)
        os.environ["_ARGCOMPLETE"] = "1"
        argcomplete.autocomplete(parser, always_complete_options=False)
    command = find_command(typed[0])
    os.environ["_ARGCOMPLETE"] = "2"  # one more than the words before the parser's own
    return command([])  # reads its arguments first, which ends in offer_arguments


def offer_arguments(parser: Parser) -> None:
    """Offer the flags, values and arguments of a parser, and end the process."""
    for own in (parser, *parser.by_action.values()):
        command = own.prog.removeprefix("trainscale ")
        for action in own.actions:
            if action.nargs != 0 and not action.choices:
                action.completer = find_completer(command, action)  # type: ignore[attr-defined]
    argcomplete.autocomplete(parser, always_complete_options=False)


def find_completer(command: str, action: argparse.Action) -> Completer:
    setting = collect_settings().get(action.dest)
    words = NAMES.get(f"{command} {action.dest}") or NAMES.get(action.dest)
    if isinstance(words, str):
        module, _, name = words.rpartition(".")
        names = getattr(importlib.import_module(f"trainscale.{module}"), name)
        words = tuple(names() if callable(names) else names)
    elif words is None:
        words = setting.value_type.choices if setting else ()
    is_list = action.dest == "despite" or command == "report"
    if setting:
        is_list = bool(setting.value_type.separator)
    if words and is_list:  # the last item of a list with commas
        return lambda prefix, **_: [prefix[: prefix.rfind(",") + 1] + word for word in words]
    if words:
        return ChoicesCompleter(words)  # type: ignore[no-any-return]
    if action.dest in _RUN_ARGUMENTS and not command.startswith("data "):
        return _offer_runs
    if action.dest in ("file", "files") or action.metavar in ("FILE", "PATH", "PYTHON"):
        return FilesCompleter()  # type: ignore[no-any-return]
    return _offer_folders if action.metavar == "DIR" else ChoicesCompleter(())


def _offer_runs(prefix: str, **_: object) -> Iterable[str]:
    """Offer runs in the typed folder or in the folders there, else all directories."""
    folder, start = prefix.rpartition("/")[::2]
    root = Path(f"{folder}/" if "/" in prefix else ".")
    files = [*root.glob(f"{start}*/run.json"), *root.glob(f"{start}*/*/run.json")]
    return sorted(str(file.parent) for file in files) or _offer_folders(prefix)


def _offer_folders(prefix: str, **_: object) -> Iterable[str]:
    return list(DirectoriesCompleter()(prefix))
