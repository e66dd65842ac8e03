"""The commands people type. Parsing and printing only; a command's module is imported when that command is called."""

from __future__ import annotations

import importlib
import os
import re
import sys
import traceback
from collections.abc import Callable

from .. import __version__
from ..errors import TrainscaleError, unknown

COMMANDS = {
    "run": "measure a scaling curve, from one command to the plots",
    "plan": "what a run would do, in what order, about how long; runs nothing",
    "report": "write a run's tables and plots again, from its journal",
    "parse-log": "tables from logs: trainscale's, MXNet's, tf_cnn_benchmarks'",
    "check": "this machine, or every host of --hosts: what is there, what is wrong",
    "parity": "prove that frameworks train the same network",
    "models": "the networks: parameters, operations, sizes",
    "data": "get, list, check: images to train on",
    "env": "create, list, remove: environments with frameworks in them",
    "frameworks": "the frameworks and the strategies each offers",
    "launch": "run your own program on many hosts, with its framework's variables set",
    "cluster": "bring up, look at and take down a cluster on AWS",
}
_HELP = f"""usage: trainscale COMMAND [options]

trainscale measures how deep-learning training scales from one device to many hosts.

commands:
{chr(10).join(f"  {name:<11} {description}" for name, description in COMMANDS.items())}

  trainscale run --budget 5m                        a first answer in five minutes
  trainscale run --models "Inceptionv3:16,Alexnet:256" -x 8
  trainscale COMMAND --help                         every option of a command
  trainscale --version

Exit codes: 0 done, 1 measured but something failed, 2 wrong input, 130 interrupted."""


def main(arguments: list[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    argv = sys.argv[1:] if arguments is None else arguments
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(_HELP)
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"trainscale {__version__}")
        return 0
    return guard(argv, lambda: _run_command(argv[0], argv[1:]))


def _run_command(name: str, argv: list[str]) -> int:
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    return int(module.main(argv if name == "launch" else _without_debug(argv)))


def _without_debug(argv: list[str]) -> list[str]:
    """Remove ``--debug``, which may stand anywhere. What follows ``--`` is the user's own command and stays."""
    end = argv.index("--") if "--" in argv else len(argv)
    return [argument for argument in argv[:end] if argument != "--debug"] + argv[end:]


def _wants_debug(argv: list[str]) -> bool:
    """Tell whether ``--debug`` is among trainscale's own arguments, and not among those of a user's command."""
    own = argv[: argv.index("--")] if "--" in argv else argv
    if own[:1] == ["launch"]:
        from .launch import own_arguments

        own = own_arguments(own[1:])
    return "--debug" in own


def guard(argv: list[str], command: Callable[[], int]) -> int:
    """Run a command and return its exit code. Failures are printed as a message, with ``--debug`` as a traceback."""
    try:
        from ..launch import plugins  # the tables must be complete before a command reads them

        plugins.load_plugins()
        return command()
    except KeyboardInterrupt:
        print("trainscale: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of our output (a pager, head) has ended. Without this, Python would complain at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if _wants_debug(argv):
            traceback.print_exc()
        elif isinstance(error, TrainscaleError):
            print(f"trainscale: {error}{_plugin_errors(argv)}", file=sys.stderr)
        else:  # a mistake of ours, or a full disk
            print(f"trainscale: {type(error).__name__}: {error}\n  --debug shows where", file=sys.stderr)
        return error.exit_code if isinstance(error, TrainscaleError) else 1


def _plugin_errors(argv: list[str]) -> str:
    """Return why a plug-in that the command line names could not be loaded; otherwise its name is just unknown."""
    from ..launch import plugins

    names = {part for argument in argv for part in re.split("[,:=]", argument)}
    return "".join(f"\n  plug-in {p.name!r}: {p.error}" for p in plugins.load_plugins() if p.error and p.name in names)
