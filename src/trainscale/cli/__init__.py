"""The command line. It only parses and prints; the module of a command is imported when that command is called."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable

from .. import __version__
from ..errors import InputError, TrainscaleError, explain_unknown, shorten_path
from .output_streams import ReaderGone, outlive_readers

_ENDING_WITH_READER = (["watch"], ["launch"])  # others go on, because they write files or are over soon
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
COMMANDS = {
    "run": "measure a scaling curve and draw its plots",
    "watch": "show a run that another process measures, here or on another host",
    "plan": "show what a run would do, in what order, and about how long it would take",
    "report": "write the tables and plots of a run again, from its journal",
    "explain": "explain where the efficiency of a run went, from its journal",
    "best": "show the best configuration that was measured for every device count",
    "predict": "predict the speed on more devices, with an interval, or explain why that would be a guess",
    "study": "write the scaling study of a proposal: tables, efficiency, cost, method",
    "export": "export runs as one table, or to MLflow or Weights & Biases",
    "notebook": "write a notebook that repeats the analysis of a run",
    "compare": "compare two runs: faster, slower or the same; can be a gate in CI and in acceptance tests",
    "published": "list scaling results that others have published, and compare a run with them",
    "parse-log": "make tables from logs of trainscale, MXNet or tf_cnn_benchmarks",
    "check": "check this machine, or every host of --hosts, and report problems",
    "parity": "prove that frameworks train the same network",
    "models": "list the networks with their parameters, operations and sizes",
    "data": "get, list and check data sets",
    "env": "create, list and remove environments with frameworks",
    "frameworks": "list the frameworks and the strategies that each offers",
    "launch": "run your own program on many hosts, with the variables of its framework",
    "cluster": "create, show and delete a cluster on AWS",
    "completion": "print a script that completes commands and options in bash, zsh or fish",
}
# What a path that a person gave can cause: it is too long, or a loop of links.
_NAME_ERRORS = (errno.ENAMETOOLONG, errno.ELOOP)
_HELP = f"""usage: trainscale COMMAND [options]

trainscale measures how deep-learning training scales from one device to many hosts.

commands:
{chr(10).join(f"  {name:<11} {description}" for name, description in COMMANDS.items())}

examples:
  trainscale run --budget 5m                        a first answer in five minutes
  trainscale run --models "Inceptionv3:16,Alexnet:256" -x 8
  trainscale COMMAND --help                         all options of a command
  trainscale --version

Exit codes: 0 done, 1 measured but something failed, 2 wrong input, 130 interrupted."""


def main(argv: list[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    if "_ARGCOMPLETE" in os.environ and argv is None:  # a shell wants to complete a line
        return guard([], _complete_line)
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("-h", "--help", "help", "-V", "--version"):
        with outlive_readers(goes_on=True):
            print(f"trainscale {__version__}" if argv and argv[0] in ("-V", "--version") else _HELP)
        return 0
    return guard(argv, lambda: _run_command(argv[0], argv[1:]))


def _complete_line() -> int:
    from .completion import complete_line

    complete_line()
    return 0


def _run_command(name: str, argv: list[str]) -> int:
    if name not in COMMANDS:
        raise explain_unknown("command", name, COMMANDS)
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    # The program that `launch` starts may have a flag --debug of its own, without a -- before it.
    return int(module.main(argv if name == "launch" else split_debug(argv)[0]))


def split_debug(argv: list[str]) -> tuple[list[str], bool]:
    """Return the arguments without --debug, and whether it was there. What follows -- is not ours and stays."""
    end = argv.index("--") if "--" in argv else len(argv)
    own = [argument for argument in argv[:end] if argument != "--debug"]
    return [*own, *argv[end:]], len(own) < end


def _wants_debug(argv: list[str]) -> bool:
    if argv[:1] == ["launch"]:
        from .launch import select_own_arguments

        argv = select_own_arguments(argv[1:])
    return split_debug(argv)[1]


def guard(argv: list[str], command: Callable[[], int]) -> int:
    """Return the exit code of a command. An error is printed as a message; --debug adds a traceback."""
    try:
        with outlive_readers(goes_on=argv[:1] not in _ENDING_WITH_READER):
            return _guard(argv, command)
    except ReaderGone:
        return 0


def _guard(argv: list[str], command: Callable[[], int]) -> int:
    try:
        from ..launch import plugins  # the tables must be complete before a command reads them

        plugins.load_plugins()
        return command()
    except TrainscaleError as error:
        if _wants_debug(argv):
            traceback.print_exc()
        else:
            print(f"trainscale: {error}{_describe_broken_plugins(argv)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("trainscale: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output, such as head, has closed it. Python would otherwise complain when it exits.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        if _wants_debug(argv) or error.errno not in _NAME_ERRORS or error.filename is None:
            return _report_exception(argv, error)
        print(f"trainscale: {shorten_path(error.filename)}: {error.strerror}", file=sys.stderr)
        return InputError.exit_code
    except Exception as error:  # a mistake of ours, or a full disk
        return _report_exception(argv, error)


def _report_exception(argv: list[str], error: Exception) -> int:
    if _wants_debug(argv):
        traceback.print_exc()
    elif isinstance(error, OSError) and error.errno in _FULL and error.filename:
        print(f"trainscale: {error.filename}: {error.strerror}", file=sys.stderr)
    else:
        print(f"trainscale: {type(error).__name__}: {error}\n  --debug shows where", file=sys.stderr)
    return 1


def _describe_broken_plugins(argv: list[str]) -> str:
    """Say why a plug-in that the command line names cannot be used: without it, its name is merely unknown."""
    from ..launch import plugins

    names = {part for argument in argv for part in re.split("[,:=]", argument)}
    broken = [plugin for plugin in plugins.load_plugins() if plugin.error and plugin.name in names]
    return "".join(f"\n  plug-in {plugin.name!r}: {plugin.error}" for plugin in broken)
