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
{chr(10).join(f"  {name:<11} {words}" for name, words in COMMANDS.items())}

  trainscale run --budget 5m                        a first answer in five minutes
  trainscale run --models "Inceptionv3:16,Alexnet:256" -x 8
  trainscale COMMAND --help                         every option of a command
  trainscale --version

Exit codes: 0 done, 1 measured but something failed, 2 wrong input, 130 interrupted."""


def main(arguments: list[str] | None = None) -> int:
    """The entry point; returns the exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    if not words or words[0] in ("-h", "--help", "help"):
        print(_HELP)
        return 0
    if words[0] in ("-V", "--version"):
        print(f"trainscale {__version__}")
        return 0
    return guard(words, lambda: _command(words[0], words[1:]))


def _command(name: str, words: list[str]) -> int:
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS)
    module = importlib.import_module(f".{name.replace('-', '_')}", __package__)
    # A program to launch may have a flag of that name itself.
    return int(module.main(words if name == "launch" else [word for word in words if word != "--debug"]))


def guard(words: list[str], command: Callable[[], int]) -> int:
    """The exit code of a command. What it cannot do is told in a message, not by a traceback."""
    debug = "--debug" in words
    try:
        from ..launch import plugins  # the tables must be complete before a command reads them

        plugins.load_plugins()
        return command()
    except TrainscaleError as error:
        if debug:
            traceback.print_exc()
        else:
            print(f"trainscale: {error}{_about_plugins(words)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("trainscale: interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        if isinstance(error, BrokenPipeError):
            # The reader of our output (a pager, head) had enough. Nothing is wrong, but Python would complain at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        return _surprise(error, debug)
    except Exception as error:
        return _surprise(error, debug)


def _about_plugins(words: list[str]) -> str:
    """What is wrong with a plug-in that was asked for by name: without it, that name is only unknown."""
    from ..launch import plugins

    typed = {part for word in words for part in re.split("[,:=]", word)}
    return "".join(f"\n  plug-in {p.name!r}: {p.error}" for p in plugins.load_plugins() if p.error and p.name in typed)


def _surprise(error: Exception, debug: bool) -> int:
    """A mistake of ours, or a disk that is full: still one message."""
    if debug:
        traceback.print_exc()
    else:
        print(f"trainscale: {type(error).__name__}: {error}\n  --debug shows where", file=sys.stderr)
    return 1
