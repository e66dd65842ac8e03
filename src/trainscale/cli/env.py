"""``trainscale env create|list|remove``: the environments in which frameworks run."""

from __future__ import annotations

import time

from ..cluster import environments
from ..cluster.environments import DEFINITIONS, OWN, Environment
from ..errors import InputError, TrainscaleError, explain_unknown
from ..report.numbers import format_decimal_size, format_rough_duration
from ..spec.settings import find_python
from ..worker.inspection.host import read_machine
from .actions import run_action
from .parser import Parser
from .signals import interrupt_on_signals

ACTIONS = {
    "create": "create environments; continues and updates existing ones",
    "list": "list the environments with their states and versions",
    "remove": "remove environments",
}
_HELP = f"""usage: trainscale env ACTION [NAME ...]

An environment is a folder with its own Python and one or more frameworks.

actions:
{chr(10).join(f"  {name:<8} {description}" for name, description in ACTIONS.items())}

  trainscale env create main mxnet      all frameworks
  trainscale env ACTION --help          every option of an action

environments:
{chr(10).join(f"  {definition.name:<17} {', '.join(definition.frameworks)}" for definition in DEFINITIONS.values())}"""
_REMEDIES = {
    environments.INCOMPLETE: "incomplete, run env create {name} again",
    environments.OUTDATED: "outdated, run env create {name} to update it",
    environments.BROKEN: "its Python is gone, run env create {name} again",
}


def main(argv: list[str]) -> int:
    return run_action("env", argv, {"create": _create, "list": _list, "remove": _remove}, _HELP)


# ---- create


def _create(argv: list[str]) -> int:
    parser = Parser("env create", "Create environments. After an interruption or a failure, run it again to continue.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(DEFINITIONS))
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--cuda", action="store_true", default=None, help="packages for NVIDIA GPUs (default: if this machine has any)"
    )
    kind.add_argument("--cpu", dest="cuda", action="store_false", help="packages for CPUs, which are smaller")
    parser.add_argument("--base", metavar="PYTHON", help="the Python to create them from (default: this one)")
    options = parser.read(argv)
    names = list(dict.fromkeys(options.names))
    _check_names(names, list(DEFINITIONS), "create")
    try:
        base = None if options.base is None else find_python(options.base)
    except ValueError as error:
        raise InputError(f"--base: {error}") from None
    has_gpus = bool(options.cuda is None and read_machine().gpus)
    failures = []
    with interrupt_on_signals():
        for name in names:
            try:
                _create_environment(name, options.cuda, has_gpus, base)
            except TrainscaleError as error:
                failures.append(error)
    if failures:
        failures[0].args = ("\n".join(map(str, failures)),)
        raise failures[0]
    return 0


def _create_environment(name: str, cuda: bool | None, has_gpus: bool, base: str | None) -> None:
    began = time.monotonic()
    try:
        is_new = environments.create(DEFINITIONS[name], cuda, has_gpus, base)
    except KeyboardInterrupt:
        print(f"{name}: stopped; the same command continues")
        raise
    environment = environments.read_environment(name)
    versions = _describe_versions(environment)
    if is_new:
        seconds = time.monotonic() - began
        outcome = f"ready, {versions}, {format_decimal_size(environment.bytes)}, in {format_rough_duration(seconds)}"
    else:
        outcome = f"already there{', your own' if environment.state == OWN else f', {versions}'}"
    print(f"{name}: {outcome}", flush=True)


# ---- list


def _list(argv: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    Parser("env list", "List the environments with state, frameworks, versions, size and folder.").read(argv)
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("environment", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("frameworks and packages", overflow="fold")
    existing = environments.list_environments()
    for environment in existing:
        size = "" if environment.folder.is_symlink() else format_decimal_size(environment.bytes)
        lines = Text("\n").join(Text(text, style) for text, style in _describe_environment(environment))
        table.add_row(environment.name, environment.state, size, lines)
    names = {environment.name for environment in existing}
    for definition in DEFINITIONS.values():
        if definition.name not in names:
            table.add_row(definition.name, environments.ABSENT, "", Text(", ".join(definition.frameworks)))
    console.print(table)
    console.print(f"each is a folder in {environments.find_environments_folder()}", soft_wrap=True, markup=False)
    return 0


def _describe_environment(environment: Environment) -> list[tuple[str, str]]:
    """Return the frameworks, the versions and the remedy, each with its style."""
    lines = [(", ".join(environment.frameworks), ""), (_describe_versions(environment), "dim")]
    if environment.state in _REMEDIES:
        lines.append((_REMEDIES[environment.state].format(name=environment.name), "yellow"))
    return [line for line in lines if line[0]]


def _describe_versions(environment: Environment) -> str:
    versions = [f"{name} {version}" for name, version in environment.packages.items()]
    if environment.facts and environment.facts.python and environment.is_usable:
        versions.append(f"Python {environment.facts.python}")
    if environment.facts and environment.facts.cuda:
        versions.append("for CUDA")
    return ", ".join(versions)


# ---- remove


def _remove(argv: list[str]) -> int:
    parser = Parser("env remove", "Remove environments and all that is in them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="as env list names them")
    names = list(dict.fromkeys(parser.read(argv).names))
    existing = {environment.name: environment for environment in environments.list_environments()}
    _check_names(names, list(existing), "remove")
    for name in names:
        folder = existing[name].folder
        is_link = folder.is_symlink()
        size = environments.remove(existing[name])
        print(f"removed {name}: {'a link; its target stays' if is_link else format_decimal_size(size)}, {folder}")
    return 0


def _check_names(names: list[str], valid: list[str], action: str) -> None:
    if action == "remove" and not valid:
        raise InputError(f"env remove: there are no environments in {environments.find_environments_folder()}")
    if not names:
        width = max(map(len, valid))
        lines = [
            f"  {name:<{width}}  {', '.join(DEFINITIONS[name].frameworks) if name in DEFINITIONS else ''}".rstrip()
            for name in valid
        ]
        example = "\n  for example: trainscale env create main mxnet" if action == "create" else ""
        raise InputError("\n".join([f"env {action}: which environment?", *lines]) + example)
    for name in names:
        if name not in valid and name in DEFINITIONS:
            raise InputError(f"environment {name!r} is not there\n  there: {', '.join(valid)}")
        if name not in valid:
            raise explain_unknown("environment", name, valid)
