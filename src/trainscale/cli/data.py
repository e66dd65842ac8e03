"""``trainscale data get|list|check``: images to train on, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..cluster.datasets import PUBLISHED, DatasetStatus, examine, get
from ..errors import InputError, unknown
from ..spec.data import Images, home, images, parse
from ..worker.data.facts import FOLDER, KNOWN, SYNTHETIC, DataError
from .actions import run_action
from .parser import Parser
from .signals import signals_interrupt
from .wording import time_words

ACTIONS = {
    "get": "download a published set: mnist, cifar10",
    "list": "which of them are where runs look for them, and whether they are right",
    "check": "look at every file of a set, or of a folder of photographs",
}
_HELP = f"""usage: trainscale data ACTION [NAME[:DIR] ...]

Sets of images to train on: the published ones, and your own folders of photographs.

actions:
{chr(10).join(f"  {name:<6} {words}" for name, words in ACTIONS.items())}

  trainscale data get cifar10                  to where runs look for it
  trainscale data get mnist DIR                to another folder: trainscale run --data mnist:DIR
  trainscale data check imagefolder:DIR        opens every photograph
  trainscale data ACTION --help                every option of an action"""


def main(argv: list[str]) -> int:
    return run_action("data", argv, {"get": _get, "list": _list, "check": _check}, _HELP)


# ---- get


def _get(words: list[str]) -> int:
    parser = Parser("data get", "Download a published set. The same command continues what was cut or stopped.")
    parser.add_argument("name", nargs="?", metavar="NAME", help=", ".join(PUBLISHED))
    parser.add_argument(
        "directory", nargs="?", metavar="DIR", help=f"the folder to put it in (default: {_tilde()}/NAME)"
    )
    parser.add_argument(
        "--from", dest="base", metavar="URL", help="get the files from this address, such as a mirror at your site"
    )
    options = parser.read(words)
    name, directory = _name(options.name), options.directory
    if options.base is not None and not options.base.startswith(("http://", "https://")):
        raise InputError(f"--from: {options.base!r} is no address of a server; valid: http://… or https://…")
    there = images(name if directory is None else f"{name}:{directory}")
    began = time.monotonic()
    try:
        with signals_interrupt(), _view() as watch:
            got = get(name, Path(there.directory), options.base, watch)
    except KeyboardInterrupt:
        print(f"{name}: stopped; what has come is kept, the same command continues")
        raise
    found = examine(there)
    told = f"{len(got)} files in {time_words(time.monotonic() - began)}" if got else "already there"
    print(f"{name}: {told}; {_words(found)}\n  {found.folder}\n  trainscale run --data {_typed(there)} …")
    return 0


def _name(text: str | None) -> str:
    if text is None:
        raise InputError(f"data get: which set?\n  valid: {', '.join(PUBLISHED)}")
    if text.lower() == FOLDER:
        raise InputError("data get: photographs are yours to bring: train/ and val/, in each a folder for each class")
    if text.lower() not in PUBLISHED:
        raise unknown("set", text, PUBLISHED)
    return text.lower()


@contextmanager
def _view() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for each file on a terminal; elsewhere a line for each."""
    from rich import progress
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    tasks: dict[str, progress.TaskID] = {}
    with progress.Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bars:

        def watch(name: str, done: int, size: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=size, completed=done)
                if not console.is_terminal:
                    onwards = f", from {done / 1e6:.1f} MB on" if done else ""
                    console.print(f"getting {name} ({size / 1e6:.1f} MB{onwards})", markup=False)
            bars.update(tasks[name], completed=done)

        yield watch


# ---- list and check


def _list(words: list[str]) -> int:
    Parser("data list", "List the published sets: where they are, and whether every file is right.").read(words)
    for name in KNOWN:
        _say(images(name))
    print(f"each is a folder in {home()}; trainscale data get NAME gets one")
    return 0


def _check(words: list[str]) -> int:
    parser = Parser("data check", "Look at every file of a set: whether it is right, how many images there are.")
    parser.add_argument("sets", nargs="*", metavar="NAME[:DIR]", help="mnist, cifar10, mnist:DIR, imagefolder:DIR")
    options = parser.read(words)
    try:
        wanted = [images(parse(text)) for text in options.sets]
    except ValueError as error:
        raise InputError(f"data check: {error}") from None
    if not wanted or any(one.name == SYNTHETIC for one in wanted):
        raise InputError("data check: which set?\n  valid: mnist, cifar10, mnist:DIR, cifar10:DIR, imagefolder:DIR")
    with signals_interrupt():
        right = [_say(one) for one in wanted]
    return 0 if all(right) else 1


def _say(one: Images) -> bool:
    """A set in a line or two; whether it is there and right."""
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    try:
        with console.status("") as status:
            found = examine(one, lambda n, of: status.update(f"{_typed(one)}: {n:,} of {of:,} photographs"))
    except DataError as error:
        console.print(f"{_typed(one)}: {error}", markup=False)
        return False
    console.print(f"{_typed(one)}: {_words(found)}\n  {found.folder}", markup=False)
    return True


def _words(found: DatasetStatus) -> str:
    facts = found.facts
    many = f"{facts.train:,} + {facts.valid:,} images of {facts.classes} classes"
    if found.sizes:
        (low_wide, low_high), (wide, high) = found.sizes
        many += f", {low_wide}×{low_high} to {wide}×{high} pixels, every one can be decoded"
    else:
        side = f"{facts.image_size}×{facts.image_size}"
        sums = "the published checksums" if found.published else "its own checksums"
        many += f", {side} pixels, {sums} are right"
    return f"{many}, {found.bytes / 1e6:.1f} MB"


def _typed(one: Images) -> str:
    """As ``--data`` takes it."""
    kind = one.name.partition(":")[0]
    return kind if one == images(kind) else f"{kind}:{one.directory}"


def _tilde() -> str:
    return str(home()).replace(os.path.expanduser("~"), "~", 1)  # noqa: PTH111
