"""Sets of images on this machine: getting the published ones, and looking at what is there."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import IO, Any

from ..errors import InputError, TrainscaleError
from ..spec.data import Dataset
from ..worker.data import folder, published_files
from ..worker.data.facts import CIFAR10, FOLDER, MNIST, TRAIN, VALID, DataError, DatasetFacts, kind_of, read_facts
from ..worker.data.published_files import CHECKSUMS, EDITIONS, Edition, PublishedFile
from .download import Watch, fetch, writing


@dataclass(frozen=True)
class Published:
    """Where the first edition of a set can be got: its files one by one, or in an archive."""

    places: tuple[str, ...]
    archive: PublishedFile | None = None


PUBLISHED = {
    MNIST: Published(
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/")
    ),
    CIFAR10: Published(
        ("https://www.cs.toronto.edu/~kriz/",),
        PublishedFile("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
}


# ---- getting


def download_dataset(name: str, directory: Path, base: str | None, watch: Watch) -> list[Path]:
    """The files of a set that were got, now whole and right in ``directory``; none where they were there already.
    ``base``: an address to get them from, instead of the published ones.
    """
    with _folder(directory), _alone(directory):
        if _right(name, directory):
            return []
        edition, source = EDITIONS[name][0], PUBLISHED[name]
        flat = any((directory / file.name).exists() for file in edition.all_files)
        place = directory if flat else directory / edition.folder
        lacking = [file for file in edition.all_files if not _is_right(place, file)]
        places = (f"{base.rstrip('/')}/",) if base else source.places
        if source.archive is None:
            for file in lacking:
                fetch(file, [f"{at}{file.name}" for at in places], place / file.name, watch)
        else:
            whole = directory / source.archive.name
            if not _is_right(directory, source.archive):
                fetch(source.archive, [f"{at}{source.archive.name}" for at in places], whole, watch)
            with _folder(place):
                _unpack(whole, edition, lacking, place)
            whole.unlink()
        return [place / file.name for file in lacking]


@contextmanager
def _folder(directory: Path) -> Iterator[None]:
    """Made, and where nothing came into it, not left behind."""
    made = not directory.exists()
    with writing(directory):
        directory.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        if made and not any(directory.iterdir()):
            directory.rmdir()


def _right(name: str, directory: Path) -> bool:
    """Whether all is there, by the published checksums or by the folder's own."""
    try:
        published_files.check_files(name, str(directory))
    except DataError as error:
        for place in {directory, *(directory / edition.folder for edition in EDITIONS[name])}:
            if (place / CHECKSUMS).exists():
                raise InputError(
                    f"{place} has a {CHECKSUMS} of its own, so the published files do not belong there; {error}\n"
                    f"  name another folder: trainscale data get {name} DIR"
                ) from None
        return False
    return True


def _is_right(place: Path, file: PublishedFile) -> bool:
    try:
        published_files.verified_path(str(place), file, None)
    except DataError:
        return False
    return True


def _unpack(archive: Path, edition: Edition, wanted: list[PublishedFile], place: Path) -> None:
    """These files and nothing else: what an archive says of names, owners and links is not followed."""
    names = {f"{edition.folder}/{file.name}": file for file in wanted}
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                file = names.pop(member.name.removeprefix("./"), None)
                content = members.extractfile(member) if file and member.isfile() else None
                if file and content:
                    _write(place, file, content)
    except (tarfile.TarError, EOFError) as error:
        raise TrainscaleError(f"{archive} is damaged: {error}; remove it and get it again") from None
    if names:
        raise TrainscaleError(f"{archive} lacks {', '.join(names)}")


def _write(place: Path, file: PublishedFile, content: IO[bytes]) -> None:
    part = place / f"{file.name}.part"
    try:
        with writing(part), part.open("wb") as out:
            shutil.copyfileobj(content, out)
        found = published_files.md5_of(str(part))
        if found != file.md5:
            raise TrainscaleError(f"{file.name} of the archive is damaged: its MD5 is {found}, not {file.md5}")
        with writing(place):
            part.replace(place / file.name)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _alone(directory: Path) -> Iterator[None]:
    """Two that write to one file would spoil it. The folder itself is locked: no file is left behind."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno == errno.EWOULDBLOCK:
            os.close(descriptor)
            raise TrainscaleError(f"another trainscale is getting images to {directory}; wait for it") from None
        # Some clusters' file systems have no locks; then the user must take care.
    try:
        yield
    finally:
        os.close(descriptor)


# ---- looking


@dataclass(frozen=True)
class DatasetStatus:
    """A set that is there, every file of it right. ``sizes``: the smallest and the largest photograph by area."""

    facts: DatasetFacts
    folder: str
    bytes: int
    published: bool = True
    sizes: tuple[tuple[int, int], tuple[int, int]] | None = None


def inspect_dataset(images: Dataset, watch: Callable[[int, int], None] = lambda _, __: None) -> DatasetStatus:
    """Looks at every file; ``watch`` gets how many of how many photographs were seen. Raises DataError."""
    facts = read_facts(images.name, images.directory)
    kind = kind_of(images.name)
    if kind == FOLDER:
        return _examine_folder(facts, images.directory, watch)
    edition, place = published_files.find_edition(kind, images.directory)
    published_files.check_files(kind, images.directory)
    size = sum((Path(place) / file.name).stat().st_size for file in edition.all_files)
    return DatasetStatus(facts, place, size, published_files.read_checksums(place) is None)


def _examine_folder(facts: DatasetFacts, directory: str, watch: Callable[[int, int], None]) -> DatasetStatus:
    paths = [path for split in (TRAIN, VALID) for path in folder.list_photographs(directory, split).paths]
    sizes, size = [], 0
    # Not forked: whoever watches may have threads. A Ctrl-C is this process' affair.
    ways: dict[str, Any] = {"mp_context": get_context("spawn"), "initializer": signal, "initargs": (SIGINT, SIG_IGN)}
    with ProcessPoolExecutor(min(len(os.sched_getaffinity(0)), 1 + len(paths) // 500), **ways) as pool:
        try:
            for number, (wide, high, length) in enumerate(pool.map(folder.inspect_photograph, paths, chunksize=16), 1):
                sizes.append((wide, high))
                size += length
                watch(number, len(paths))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    by_area = sorted(sizes, key=lambda one: one[0] * one[1])
    return DatasetStatus(facts, directory, size, sizes=(by_area[0], by_area[-1]))
