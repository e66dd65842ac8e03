"""``trainscale env create|list|remove``: the environments in which frameworks run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from ..cluster import environments
from ..cluster.environments import DEFINITIONS, OWN, Environment
from ..cluster.installation import Progress, create
from ..errors import InputError, TrainscaleError, unknown
from ..spec.value_types import find_python
from ..worker.inspection.machine import read_machine
from .parser import Parser
from .signals import signals_interrupt
from .wording import disk, time_words

if TYPE_CHECKING:
    from rich.console import Console

ACTIONS = {
    "create": "make environments; continues and updates what is there",
    "list": "which there are, in what state, with which versions",
    "remove": "remove environments",
}
_HELP = f"""usage: trainscale env ACTION [NAME ...]

An environment is a folder with a Python of its own and one or more frameworks in it.

actions:
{chr(10).join(f"  {name:<8} {words}" for name, words in ACTIONS.items())}

  trainscale env create main mxnet      all frameworks there are
  trainscale env ACTION --help          every option of an action

environments:
{chr(10).join(f"  {one.name:<17} {', '.join(one.frameworks)}" for one in DEFINITIONS.values())}"""
_REMEDIES = {
    environments.INCOMPLETE: "incomplete, run env create {name} again",
    environments.OUTDATED: "outdated, run env create {name} to update it",
    environments.BROKEN: "its Python is gone, run env create {name} again",
}
_LARGE = "MB"  # in pip's own words; smaller downloads are not worth a line in a log


def main(words: list[str]) -> int:
    if words and words[0] in ("-h", "--help", "help"):
        print(_HELP)
        return 0
    if not words:
        raise InputError(f"env: what is to be done?\n  valid: {', '.join(f'env {name}' for name in ACTIONS)}")
    if words[0] not in ACTIONS:
        raise unknown("flag" if words[0].startswith("-") else "action", words[0], (*ACTIONS, "--help", "--debug"))
    actions: dict[str, Callable[[list[str]], int]] = {"create": _create, "list": _list, "remove": _remove}
    return actions[words[0]](words[1:])


# ---- create


def _create(words: list[str]) -> int:
    parser = Parser("env create", "Make environments. The same command continues what was interrupted or failed.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(DEFINITIONS))
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--cuda", action="store_true", default=None, help="for NVIDIA GPUs (default: where this machine has any)"
    )
    kind.add_argument("--cpu", dest="cuda", action="store_false", help="for CPUs, smaller")
    parser.add_argument("--base", metavar="PYTHON", help="the Python to make them from (default: this one)")
    options = parser.read(words)
    names = list(dict.fromkeys(options.names))
    _check(names, list(DEFINITIONS), "create")
    base = None if options.base is None else _base(options.base)
    gpus = bool(options.cuda is None and read_machine().gpus)
    failures = []
    with signals_interrupt():
        for name in names:
            try:
                _create_one(name, options.cuda, gpus, base)
            except TrainscaleError as error:
                failures.append(error)
    if failures:
        failures[0].args = ("\n".join(map(str, failures)),)
        raise failures[0]
    return 0


def _create_one(name: str, cuda: bool | None, gpus: bool, base: str | None) -> None:
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    began = time.monotonic()
    try:
        with _view(console) as watch:
            made = create(DEFINITIONS[name], cuda, gpus, base, watch)
    except KeyboardInterrupt:
        console.print(f"{name}: stopped; the same command continues", markup=False)
        raise
    now = environments.read_environment(name)
    versions = _versions(now)
    if made:
        said = f"ready, {versions}, {disk(now.bytes)}, in {time_words(time.monotonic() - began)}"
    else:
        said = f"already there{', your own' if now.state == OWN else f', {versions}'}"
    console.print(f"{name}: {said}", markup=False)


def _base(text: str) -> str:
    try:
        return find_python(text)
    except ValueError as error:
        raise InputError(f"--base: {error}") from None


@contextmanager
def _view(console: Console) -> Iterator[Callable[[Progress], None]]:
    """One line that changes on a terminal; elsewhere a line for each thing that takes its time."""
    if not console.is_terminal:
        yield _lines(console)
        return
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, refresh_per_second=4, transient=True) as live:

        def watch(progress: Progress) -> None:
            live.update(Text(progress_words(progress), no_wrap=True, overflow="ellipsis"))

        yield watch


def progress_words(progress: Progress) -> str:
    minutes, seconds = divmod(int(progress.seconds), 60)
    size = f" · {disk(progress.bytes)} on disk" if progress.bytes else ""
    return f"{progress.name} · {minutes}:{seconds:02d}{size} · {progress.phase} {progress.what}".rstrip()


def _lines(console: Console) -> Callable[[Progress], None]:
    said = set()

    def watch(progress: Progress) -> None:
        what = progress.what if progress.phase == "installing" or _LARGE in progress.what else ""
        line = f"{progress.name}: {progress.phase} {what}".rstrip()
        # Looking up and downloading take turns for every package; only large downloads are told one by one.
        if line not in said and (what or progress.phase != "downloading"):
            said.add(line)
            console.print(line, markup=False)

    return watch


# ---- list


def _list(words: list[str]) -> int:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    Parser("env list", "List the environments: state, frameworks, versions, size, place.").read(words)
    console = Console(highlight=False)
    table = Table(box=None, padding=(0, 2, 0, 0))
    table.add_column("environment", no_wrap=True)
    table.add_column("state", no_wrap=True)
    table.add_column("size", justify="right", no_wrap=True)
    table.add_column("frameworks and packages", overflow="fold")
    found = environments.there()
    for one in found:
        size = "" if one.folder.is_symlink() else disk(one.bytes)
        table.add_row(one.name, one.state, size, Text("\n").join(Text(*line) for line in _about(one)))
    here = {one.name for one in found}
    for definition in DEFINITIONS.values():
        if definition.name not in here:
            table.add_row(definition.name, "not there", "", Text(", ".join(definition.frameworks)))
    console.print(table)
    console.print(f"each is a folder in {environments.home()}", soft_wrap=True, markup=False)
    return 0


def _about(one: Environment) -> list[tuple[str, str]]:
    """What is in it and what can be done about it, each line with its style."""
    lines = [(", ".join(one.frameworks), ""), (_versions(one), "dim")]
    if one.state in _REMEDIES:
        lines.append((_REMEDIES[one.state].format(name=one.name), "yellow"))
    return [line for line in lines if line[0]]


def _versions(one: Environment) -> str:
    words = [f"{name} {version}" for name, version in one.packages.items()]
    if "python" in one.facts and one.usable:
        words.append(f"Python {one.facts['python']}")
    return ", ".join([*words, "for CUDA"] if one.facts.get("cuda") else words)


# ---- remove


def _remove(words: list[str]) -> int:
    parser = Parser("env remove", "Remove environments and all that is in them.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="as env list names them")
    names = list(dict.fromkeys(parser.read(words).names))
    found = {one.name: one for one in environments.there()}
    _check(names, list(found), "remove")
    for name in names:
        one = found[name]
        linked = one.folder.is_symlink()
        size = environments.remove(one)
        print(f"removed {name}: {'a link; what it led to stays' if linked else disk(size)}, {one.folder}")
    return 0


def _check(names: list[str], valid: list[str], action: str) -> None:
    if action == "remove" and not valid:
        raise InputError(f"env remove: there are no environments in {environments.home()}")
    if not names:
        _needs_names(action, valid)
    for name in names:
        if name not in valid and name in DEFINITIONS:
            raise InputError(f"environment {name!r} is not there\n  there: {', '.join(valid)}")
        if name not in valid:
            raise unknown("environment", name, valid)


def _needs_names(action: str, valid: list[str]) -> NoReturn:
    width = max(map(len, valid))
    lines = [
        f"  {name:<{width}}  {', '.join(DEFINITIONS[name].frameworks) if name in DEFINITIONS else ''}".rstrip()
        for name in valid
    ]
    example = "\n  for example: trainscale env create main mxnet" if action == "create" else ""
    raise InputError("\n".join([f"env {action}: which environment?", *lines]) + example)
