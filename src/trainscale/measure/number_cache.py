"""Keeps numbers that processes computed in the user's cache: a file for each set of numbers, as the process sent it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path

from ..folders import find_cache_folder
from ..launch.tasks import EncodedNumbers
from ..record.files import write_atomically
from ..spec.config import compute_digest
from ..worker.job import PluginReference
from ..worker.type_aliases import JsonObject

KEEP_SECONDS = 90 * 24 * 3600.0
_WORKER = Path(__file__).resolve().parent.parent / "worker"

Arrays = Mapping[str, Sequence[float]]


def find_file(
    kind: str, name: str, identity: JsonObject, plugins: Iterable[PluginReference], code: Sequence[str] = ("",)
) -> Path:
    """Return the file of a set of numbers. Its name depends on all that the numbers depend on."""
    hashes = [_compute_code_hash(_WORKER / folder) for folder in code]
    for plugin in plugins:
        package = Path(plugin.folder) / plugin.package
        if package.is_dir():
            hashes.append(_compute_code_hash(package))
        else:
            hashes.append(hashlib.sha256(package.with_suffix(".py").read_bytes()).hexdigest())
    return _prepare_folder(kind) / f"{name}-{compute_digest({**identity, 'code': hashes})}"


def _prepare_folder(kind: str) -> Path:
    """Return the folder of a kind of numbers, without those that were not used for three months.

    A temporary folder stands in where the user's cache cannot be written.
    """
    folder = find_cache_folder() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if time.time() - entry.stat().st_mtime > KEEP_SECONDS:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()  # earlier versions made folders
    except OSError:
        return _make_temporary_folder(kind)
    return folder if os.access(folder, os.W_OK) else _make_temporary_folder(kind)


@cache
def _make_temporary_folder(kind: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"trainscale-{kind}-"))


@cache
def _compute_code_hash(folder: Path) -> str:
    code = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return code.hexdigest()


def read_cached(path: Path) -> tuple[JsonObject, Arrays] | None:
    """Return what describes the numbers, and the numbers by name; None if they cannot be read."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline())
            arrays = read_numbers(file.read(), head["arrays"])
        os.utime(path)
    except (OSError, ValueError, KeyError):
        return None
    return head, arrays


def read_numbers(data: bytes, index: Mapping[str, int]) -> dict[str, Sequence[float]]:
    """Read little-endian float64 arrays; ``index`` has the length of each, in order."""
    values = array("d")
    values.frombytes(data)
    if len(values) != sum(index.values()):
        raise ValueError("the numbers are not complete")
    arrays: dict[str, Sequence[float]] = {}
    start = 0
    for name, count in index.items():
        arrays[name] = values[start : start + count]
        start += count
    return arrays


def write_cached(path: Path, numbers: EncodedNumbers) -> None:
    write_atomically(path, numbers.head + b"\n" + numbers.values)
