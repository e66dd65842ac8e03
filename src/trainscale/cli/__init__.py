"""The command line: finds the module of a command; its errors become messages and exit codes."""

import errno
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from .. import __version__
from ..errors import InputError, TrainscaleError, explain_unknown, shorten_path
from .signals import outlive_readers

_ENDING_WITH_READER = (["watch"], ["launch"])  # others write files, or are over soon
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.ELOOP)  # of a path that a person gave
_HELP = Path(__file__).with_name("help.txt").read_text()
COMMANDS = dict(re.findall(r"^  ([a-z][a-z-]+)  +(\w.*)", _HELP, re.MULTILINE))
# Modules of several commands, each a function of its name. Others hold one command, ``main``.
_GROUPS = {
    **dict.fromkeys(("explain", "best", "predict", "study", "compare", "published"), "questions"),
    **dict.fromkeys(("export", "notebook"), "exports"),
    **dict.fromkeys(("check", "parity"), "checks"),
    **dict.fromkeys(("models", "frameworks"), "listings"),
}


class Debug:
    is_wanted = False  # by the flag --debug, which parser.py reads


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    if "_ARGCOMPLETE" in os.environ and argv is None:  # a shell wants to complete a line
        from .completion import complete_line

        return guard([], complete_line)
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help", "-V", "--version"):
        outlive_readers(ends_process=False)
        print(f"trainscale {__version__}" if argv[:1] in (["-V"], ["--version"]) else _HELP.rstrip())
        return 0
    return guard(argv, lambda: find_command(argv[0])(argv[1:]))


def find_command(name: str) -> Callable[[list[str]], int]:
    if name not in COMMANDS:
        raise explain_unknown("command", name, COMMANDS, see="see: trainscale --help")
    own_name = name.replace("-", "_")
    module = importlib.import_module(f".{_GROUPS.get(name, own_name)}", __package__)
    command: Callable[[list[str]], int] = getattr(module, own_name if name in _GROUPS else "main")
    return command


def guard(argv: list[str], command: Callable[[], int]) -> int:
    """Return the exit code of a command. An error is a message, or a traceback with --debug."""
    outlive_readers(ends_process=argv[:1] in _ENDING_WITH_READER)
    Debug.is_wanted = False
    try:
        from ..launch import plugins  # the tables must be complete before a command reads them

        plugins.load_plugins()
        code = command()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("trainscale: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if Debug.is_wanted:
            traceback.print_exc()
        else:
            message = str(error)
            if isinstance(error, OSError) and error.errno in (*_NAME_ERRORS, *_FULL) and error.filename:
                message = f"{shorten_path(error.filename)}: {error.strerror}"
            elif not isinstance(error, TrainscaleError):  # a mistake of ours
                message = f"{type(error).__name__}: {error}\n  --debug shows where"
            else:  # without a plug-in that cannot be used, its name is merely unknown
                names = {part for argument in argv for part in re.split("[,:=]", argument)}
                for plugin in plugins.load_plugins():
                    if plugin.error and plugin.name in names:
                        message += f"\n  plug-in {plugin.name!r}: {plugin.error}"
            print(f"trainscale: {message}", file=sys.stderr)
        if isinstance(error, TrainscaleError):
            return error.exit_code
        return InputError.exit_code if isinstance(error, OSError) and error.errno in _NAME_ERRORS else 1
