"""Keeps numbers that processes computed in the user's cache: a folder for each set of numbers."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..folders import find_cache_folder
from ..launch.inspection.numbers import EncodedNumbers
from ..record.files import write_atomically
from ..worker.job import PluginReference
from ..worker.type_aliases import JsonObject

KEEP_SECONDS = 90 * 24 * 3600.0


@dataclass(frozen=True)
class CachedNumbers:
    """What a process computed: values of JSON by name, and arrays by name."""

    counts: JsonObject
    arrays: Mapping[str, Sequence[float]]


def prepare_numbers_root(kind: str) -> Path:
    """Return the folder of all numbers of a kind, after removing those that were not used for three months.

    A temporary folder stands in where the user's cache cannot be written.
    """
    folder = find_cache_folder() / kind
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if time.time() - entry.stat().st_mtime > KEEP_SECONDS:
                shutil.rmtree(entry, ignore_errors=True)
    except OSError:
        return _make_temporary_root(kind)
    return folder if os.access(folder, os.W_OK) else _make_temporary_root(kind)


def read_cached(folder: Path, kind: str) -> CachedNumbers | None:
    """Return None if nothing is cached, or nothing that can be read: then the numbers are computed anew."""
    try:
        counts = json.loads((folder / f"{kind}.json").read_text())
        data = (folder / f"{kind}.f64").read_bytes()
        if len(data) != 8 * sum(counts["arrays"].values()):
            return None
        os.utime(folder)
        return CachedNumbers(counts, read_numbers(data, counts["arrays"]))
    except (OSError, ValueError, KeyError):
        return None


def read_numbers(data: bytes, index: Mapping[str, int]) -> dict[str, Sequence[float]]:
    """Read little-endian float64 arrays that follow each other; ``index`` has the length of each, in order."""
    values = array("d")
    values.frombytes(data)
    arrays: dict[str, Sequence[float]] = {}
    start = 0
    for name, count in index.items():
        arrays[name] = values[start : start + count]
        start += count
    return arrays


def write_cached(folder: Path, kind: str, numbers: EncodedNumbers) -> None:
    """Write the counts last: where they are, the values are complete."""
    folder.mkdir(exist_ok=True)
    write_atomically(folder / f"{kind}.f64", numbers.values)
    write_atomically(folder / f"{kind}.json", numbers.head)


def find_worker_folder() -> Path:
    return Path(__file__).resolve().parent.parent / "worker"


@cache
def compute_code_hash(folder: Path) -> str:
    code = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return code.hexdigest()


def compute_plugin_hash(plugin: PluginReference) -> str:
    package = Path(plugin.folder) / plugin.package
    if package.is_dir():
        return compute_code_hash(package)
    return hashlib.sha256(package.with_suffix(".py").read_bytes()).hexdigest()


@cache
def _make_temporary_root(kind: str) -> Path:
    return Path(tempfile.mkdtemp(prefix=f"trainscale-{kind}-"))
