"""``trainscale data get|list|check``: data sets of images on this machine."""

import os
import re
import time
from argparse import Namespace, RawDescriptionHelpFormatter
from pathlib import Path

from rich import progress
from rich.console import Console

from ..cluster.datasets import PUBLISHED, DatasetStatus, download_dataset, inspect_dataset
from ..errors import InputError, explain_unknown
from ..report.numbers import format_rough_duration
from ..spec.data import Dataset, find_dataset, find_datasets_folder, parse_data
from ..worker.data.facts import FOLDER, KNOWN, SYNTHETIC, DataError
from .parser import Parser
from .signals import interrupt_on_signals

_ADDRESS = re.compile(r"https?://([\w.-]+|\[[\da-fA-F:]+\])(:[1-9]\d*)?(/.*)?", re.ASCII)
_EXAMPLES = """examples:
  trainscale data get cifar10                  into the folder where runs look for it
  trainscale data get mnist DIR                into another folder: trainscale run --data mnist:DIR
  trainscale data check imagefolder:DIR        opens every photograph
  trainscale data ACTION --help                every option of an action"""


def main(argv: list[str]) -> int:
    about = "Data sets of images to train on: published ones, and your own folders of photographs."
    parser = Parser("data", about, epilog=_EXAMPLES, formatter_class=RawDescriptionHelpFormatter)
    add = parser.add_action("get", download, "download what is missing of a published data set").add
    add("name", "NAME", ", ".join(PUBLISHED), nargs="?")
    folder = str(find_datasets_folder()).replace(os.path.expanduser("~"), "~", 1)  # noqa: PTH111
    add("directory", "DIR", f"its folder (default: {folder}/NAME)", nargs="?")
    add("--from", "URL", "download from this address, such as a mirror", dest="base")
    parser.add_action("list", list_published, "list the published data sets and check every file")
    check_all = "check every file of a data set, or of a folder of photographs, and count the images"
    add = parser.add_action("check", check, check_all).add
    add("sets", "NAME[:DIR]", "mnist, cifar10, mnist:DIR, imagefolder:DIR", nargs="*")
    options = parser.read(argv)
    return int(options.run(options))


def download(options: Namespace) -> int:
    if options.name is None:
        raise InputError(f"data get: which data set?\n  valid: {', '.join(PUBLISHED)}")
    name = options.name.lower()
    if name == FOLDER:
        layout = "put them into train/ and val/, each with a folder for each class"
        raise InputError(f"data get: photographs are your own: {layout}")
    if name not in PUBLISHED:
        raise explain_unknown("data set", options.name, PUBLISHED)
    if options.base is not None and not _ADDRESS.fullmatch(options.base):
        valid = "http://… or https://…"
        raise InputError(f"--from: {options.base!r} is not an address of a server; valid: {valid}")
    dataset = find_dataset(name if options.directory is None else f"{name}:{options.directory}")
    began, console = time.monotonic(), Console(highlight=False, soft_wrap=True)
    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    disable = not console.is_terminal
    bars = progress.Progress(*columns, console=console, transient=True, disable=disable)
    tasks: dict[str, progress.TaskID] = {}

    def watch(name: str, done: int, size: int) -> None:
        if name not in tasks:
            tasks[name] = bars.add_task(name, total=size, completed=done)
            if not console.is_terminal:
                console.print(f"downloading {name} ({size / 1e6:.1f} MB)", markup=False)
        bars.update(tasks[name], completed=done)

    try:
        with interrupt_on_signals(), bars:
            new_files = download_dataset(name, Path(dataset.directory), options.base, watch)
    except KeyboardInterrupt:
        print(f"{name}: stopped; complete files stay, and the same command gets the others")
        raise
    status, outcome = inspect_dataset(dataset), "already there"
    if new_files:
        outcome = f"{len(new_files)} files in {format_rough_duration(time.monotonic() - began)}"
    print(f"{name}: {outcome}; {_describe_status(status)}")
    print(f"  {status.folder}\n  trainscale run --data {_format_dataset(dataset)} …")
    return 0


def list_published(_: Namespace) -> int:
    for name in KNOWN:
        _print_status(find_dataset(name))
    print(f"each is a folder in {find_datasets_folder()}; trainscale data get NAME downloads one")
    return 0


def check(options: Namespace) -> int:
    try:
        datasets = [find_dataset(parse_data(text)) for text in options.sets]
    except ValueError as error:
        raise InputError(f"data check: {error}") from None
    if not datasets or any(dataset.name == SYNTHETIC for dataset in datasets):
        valid = "mnist, cifar10, mnist:DIR, cifar10:DIR, imagefolder:DIR"
        raise InputError(f"data check: which data set?\n  valid: {valid}")
    with interrupt_on_signals():
        results = [_print_status(dataset) for dataset in datasets]
    return 0 if all(results) else 1


def _print_status(dataset: Dataset) -> bool:
    """Return whether the data set is there and right."""
    console, name = Console(highlight=False, soft_wrap=True), _format_dataset(dataset)

    def show(count: int, total: int) -> None:
        spinner.update(f"{name}: {count:,} of {total:,} photographs")

    try:
        with console.status("") as spinner:
            status = inspect_dataset(dataset, show)
    except DataError as error:
        console.print(f"{name}: {error}", markup=False)
        return False
    console.print(f"{name}: {_describe_status(status)}\n  {status.folder}", markup=False)
    return True


def _describe_status(status: DatasetStatus) -> str:
    facts = status.facts
    text = f"{facts.train:,} + {facts.valid:,} images of {facts.classes} classes"
    if status.sizes:
        (small_width, small_height), (width, height) = status.sizes
        text += f", {small_width}×{small_height} to {width}×{height} pixels, every one can be decoded"
    else:
        checksums = "the published checksums" if status.published else "its own checksums"
        text += f", {facts.image_size}×{facts.image_size} pixels, {checksums} are right"
    return f"{text}, {status.bytes / 1e6:.1f} MB"


def _format_dataset(dataset: Dataset) -> str:
    """Return the data set as a value of ``--data``."""
    kind = dataset.name.partition(":")[0]
    return kind if dataset == find_dataset(kind) else f"{kind}:{dataset.directory}"
