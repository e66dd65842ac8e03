"""``trainscale env create|list|remove``: the environments in which frameworks run."""

import time
from argparse import Namespace, RawDescriptionHelpFormatter

from rich.console import Console
from rich.text import Text

from ..cluster import environments
from ..cluster.environments import DEFINITIONS, OWN, Environment
from ..errors import InputError, TrainscaleError, explain_unknown
from ..report.numbers import format_decimal_size, format_rough_duration
from ..spec.settings import find_python
from ..worker.inspection.host import read_machine
from .parser import Parser
from .signals import interrupt_on_signals
from .tables import folded, make_table, number, text

_EPILOG = f"""examples:
  trainscale env create main mxnet      all frameworks
  trainscale env ACTION --help          every option of an action

environments:
{chr(10).join(f"  {name:<17} {', '.join(each.frameworks)}" for name, each in DEFINITIONS.items())}"""
_REMEDIES = {
    environments.INCOMPLETE: "incomplete, run env create {name} again",
    environments.OUTDATED: "outdated, run env create {name} to update it",
    environments.BROKEN: "its Python is gone, run env create {name} again",
}


def main(argv: list[str]) -> int:
    about = "An environment is a folder with its own Python and one or more frameworks."
    parser = Parser("env", about, epilog=_EPILOG, formatter_class=RawDescriptionHelpFormatter)
    creating = parser.add_action("create", create, "create environments; continues and updates those that are there")
    creating.add("names", "NAME", ", ".join(DEFINITIONS), nargs="*")
    add = creating.add_mutually_exclusive_group().add_argument
    cuda = "packages for NVIDIA GPUs (default: if there are any)"
    add("--cuda", action="store_true", default=None, help=cuda)
    add("--cpu", dest="cuda", action="store_false", help="packages for CPUs, which are smaller")
    creating.add("--base", "PYTHON", "the Python to create them from (default: this one)")
    parser.add_action("list", list_all, "list the environments with their states and versions")
    removing = parser.add_action("remove", remove, "remove environments and all that is in them")
    removing.add("names", "NAME", "as env list names them", nargs="*")
    options = parser.read(argv)
    return int(options.run(options))


def create(options: Namespace) -> int:
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
            began = time.monotonic()
            try:
                is_new = environments.create(DEFINITIONS[name], options.cuda, has_gpus, base)
            except KeyboardInterrupt:
                print(f"{name}: stopped; the same command continues")
                raise
            except TrainscaleError as error:
                failures.append(error)
                continue
            environment = environments.read_environment(name)
            versions = _describe_versions(environment)
            if is_new:
                size, seconds = format_decimal_size(environment.bytes), time.monotonic() - began
                outcome = f"ready, {versions}, {size}, in {format_rough_duration(seconds)}"
            else:
                outcome = f"already there, {'your own' if environment.state == OWN else versions}"
            print(f"{name}: {outcome}", flush=True)
    if failures:
        failures[0].args = ("\n".join(map(str, failures)),)
        raise failures[0]
    return 0


def list_all(_: Namespace) -> int:
    console = Console(highlight=False)
    contents = folded("frameworks and packages")
    table = make_table(text("environment"), text("state"), number("size"), contents)
    existing = environments.list_environments()
    for environment in existing:
        size = "" if environment.folder.is_symlink() else format_decimal_size(environment.bytes)
        remedy = _REMEDIES.get(environment.state, "").format(name=environment.name)
        frameworks = ", ".join(environment.frameworks)
        lines = [Text(frameworks), Text(_describe_versions(environment), "dim"), Text(remedy, "yellow")]
        cell = Text("\n").join(line for line in lines if line.plain)
        table.add_row(environment.name, environment.state, size, cell)
    names = {environment.name for environment in existing}
    for name, definition in DEFINITIONS.items():
        if name not in names:
            frameworks = ", ".join(definition.frameworks)
            table.add_row(name, environments.ABSENT, "", Text(frameworks))
    console.print(table)
    folder = environments.find_environments_folder()
    console.print(f"each is a folder in {folder}", soft_wrap=True, markup=False)
    return 0


def _describe_versions(environment: Environment) -> str:
    versions = [f"{name} {version}" for name, version in environment.packages.items()]
    if environment.facts and environment.facts.python and environment.is_usable:
        versions.append(f"Python {environment.facts.python}")
    if environment.facts and environment.facts.cuda:
        versions.append("for CUDA")
    return ", ".join(versions)


def remove(options: Namespace) -> int:
    names = list(dict.fromkeys(options.names))
    existing = {environment.name: environment for environment in environments.list_environments()}
    if not existing:
        folder = environments.find_environments_folder()
        raise InputError(f"env remove: there are no environments in {folder}")
    _check_names(names, list(existing), "remove")
    for name in names:
        folder = existing[name].folder
        is_link = folder.is_symlink()
        size = environments.remove(existing[name])
        outcome = "a link; its target stays" if is_link else format_decimal_size(size)
        print(f"removed {name}: {outcome}, {folder}")
    return 0


def _check_names(names: list[str], valid: list[str], action: str) -> None:
    if not names:
        raise InputError(f"env {action}: which environment?\n  valid: {', '.join(valid)}")
    for name in names:
        if name not in valid and name in DEFINITIONS:
            raise InputError(f"environment {name!r} is not there\n  there: {', '.join(valid)}")
        if name not in valid:
            raise explain_unknown("environment", name, valid)
