"""Data sets of images on this machine: downloads the published ones, and inspects what is there."""

import hashlib
import http.client
import os
import ssl
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from signal import SIG_IGN, SIGINT, signal
from typing import IO

from .. import __version__
from ..errors import InputError, TrainscaleError
from ..spec.data import Dataset
from ..worker.data import folder, published_files
from ..worker.data.facts import (
    CIFAR10,
    FOLDER,
    MNIST,
    TRAIN,
    VALID,
    DataError,
    DatasetFacts,
    parse_data_kind,
    read_facts,
)
from ..worker.data.published_files import CHECKSUMS, EDITIONS, PublishedFile

_TIMEOUT_SECONDS = 30.0  # without a byte
_NETWORK_ERRORS = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError, ssl.SSLError)

# Called with the name of a file, the number of its bytes that are here, and its size.
Watch = Callable[[str, int, int], None]


# The servers of each data set, and the archive in which they have its files, if any.
PUBLISHED: dict[str, tuple[tuple[str, ...], PublishedFile | None]] = {
    MNIST: (
        ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
        None,
    ),
    CIFAR10: (
        ("https://www.cs.toronto.edu/~kriz/",),
        PublishedFile("cifar-10-binary.tar.gz", 170_052_171, "c32a1d4ab5d03f1284b67883e8d87530"),
    ),
}


# ---- download


def download_dataset(name: str, directory: Path, base: str | None, watch: Watch) -> list[Path]:
    """Complete a data set in ``directory``. Return the new files: none if all were there.

    ``base`` is an address to use instead of the published servers.
    """
    try:  # the published checksums count, or those in the folder
        published_files.check_files(name, str(directory))
        return []
    except DataError as error:
        for folder in {directory, *(directory / edition.folder for edition in EDITIONS[name])}:
            if (folder / CHECKSUMS).exists():
                raise InputError(
                    f"{folder} has its own {CHECKSUMS}, so the published files do not belong there; {error}\n"
                    f"  name another folder: trainscale data get {name} DIR"
                ) from None
    edition, (servers, archived) = EDITIONS[name][0], PUBLISHED[name]
    is_flat = any((directory / file.name).exists() for file in edition.files)
    target = directory if is_flat else directory / edition.folder
    missing = [file for file in edition.files if not _is_right(target, file)]
    servers = (f"{base.rstrip('/')}/",) if base else servers
    try:
        target.mkdir(parents=True, exist_ok=True)
        if archived is None:
            for file in missing:
                _download(file, [f"{server}{file.name}" for server in servers], target / file.name, watch)
        else:
            archive = directory / archived.name
            if not _is_right(directory, archived):
                _download(archived, [f"{server}{archive.name}" for server in servers], archive, watch)
            _unpack(archive, {f"{edition.folder}/{file.name}": file for file in missing}, target)
            archive.unlink()
    except (PermissionError, FileExistsError, NotADirectoryError, IsADirectoryError) as error:
        raise InputError(f"{target} cannot be written: {error.strerror}; name another folder") from None
    except OSError as error:
        raise TrainscaleError(f"{target} cannot be written: {error.strerror}") from None
    return [target / file.name for file in missing]


def _is_right(folder: Path, file: PublishedFile) -> bool:
    try:
        published_files.verify_path(str(folder), file, None)
    except DataError:
        return False
    return True


def _download(file: PublishedFile, addresses: Sequence[str], target: Path, watch: Watch) -> None:
    reasons = []
    for address in addresses:
        request = urllib.request.Request(address, headers={"User-Agent": f"trainscale/{__version__}"})
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS) as response:
                md5 = _store(response, file, target, watch)
        except urllib.error.HTTPError as error:
            reasons.append(f"{address}: {error.code} {error.reason}")
        except _NETWORK_ERRORS as error:
            reason = getattr(error, "reason", error)
            text = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
            reasons.append(f"{address}: {text}")
        else:
            if md5 == file.md5:
                return
            reasons.append(f"{address}: it sends another file than the published one: MD5 {md5}, not {file.md5}")
    lines = "\n".join(f"  {reason}" for reason in reasons)
    raise TrainscaleError(f"{file.name} could not be downloaded\n{lines}\n  --from URL names another server")


def _unpack(archive: Path, files: dict[str, PublishedFile], target: Path) -> None:
    """Other members, and paths and links of the archive, are ignored."""
    missing = dict(files)
    try:
        with tarfile.open(archive, "r:gz") as members:
            for member in members:
                file = missing.pop(member.name.removeprefix("./"), None)
                content = members.extractfile(member) if file and member.isfile() else None
                if file and content:
                    md5 = _store(content, file, target / file.name, lambda *_: None)
                    if md5 != file.md5:
                        damage = f"its MD5 is {md5}, not {file.md5}"
                        raise TrainscaleError(f"{file.name} of the archive is damaged: {damage}")
    except (tarfile.TarError, EOFError) as error:
        raise TrainscaleError(f"{archive} is damaged: {error}; remove it and download it again") from None
    if missing:
        raise TrainscaleError(f"{archive} lacks {', '.join(missing)}")


def _store(content: IO[bytes], file: PublishedFile, target: Path, watch: Watch) -> str:
    """Write a file, and name it if its checksum is right. Return its MD5."""
    part = target.with_name(f"{target.name}.{os.getpid()}.part")
    digest, done = hashlib.md5(usedforsecurity=False), 0
    try:
        with part.open("wb") as out:
            watch(file.name, done, file.size)
            while (block := content.read(1 << 18)) and done <= file.size:
                out.write(block)
                digest.update(block)
                done += len(block)
                watch(file.name, done, file.size)
        if digest.hexdigest() == file.md5:
            part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    return digest.hexdigest()


# ---- inspection


@dataclass(frozen=True)
class DatasetStatus:
    """A data set without damage. ``sizes`` are those of the smallest and the largest photograph."""

    facts: DatasetFacts
    folder: str
    bytes: int
    published: bool = True  # whether the published checksums were used, and not those in the folder
    sizes: tuple[tuple[int, int], tuple[int, int]] | None = None


def inspect_dataset(dataset: Dataset, watch: Callable[[int, int], None] = lambda _, __: None) -> DatasetStatus:
    """Check every file. ``watch`` gets the photographs seen and in all."""
    facts = read_facts(dataset.name, dataset.directory)
    kind, directory = parse_data_kind(dataset.name), dataset.directory
    if kind != FOLDER:
        edition, path = published_files.find_edition(kind, directory)
        published_files.check_files(kind, directory)
        size = sum((Path(path) / file.name).stat().st_size for file in edition.files)
        return DatasetStatus(facts, path, size, published_files.read_checksums(path) is None)
    paths = [path for split in (TRAIN, VALID) for path in folder.list_photographs(directory, split).paths]
    sizes, total_bytes = [], 0
    workers = min(len(os.sched_getaffinity(0)), 1 + len(paths) // 500)
    # Spawned, because this process may have threads. Only this process handles Ctrl-C.
    with ProcessPoolExecutor(workers, get_context("spawn"), signal, (SIGINT, SIG_IGN)) as pool:
        try:
            photographs = pool.map(folder.inspect_photograph, paths, chunksize=16)
            for number, (width, height, length) in enumerate(photographs, start=1):
                sizes.append((width, height))
                total_bytes += length
                watch(number, len(paths))
        except BaseException:
            pool.shutdown(cancel_futures=True)
            raise
    sizes.sort(key=lambda size: size[0] * size[1])
    return DatasetStatus(facts, directory, total_bytes, sizes=(sizes[0], sizes[-1]))
