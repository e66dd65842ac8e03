"""Keeps the numbers of parity checks in the user's cache, so that a framework computes them once for each version."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from functools import cache
from pathlib import Path

from ..analyse.parity import ParityNumbers, read_numbers
from ..folders import cache_folder
from ..launch.inspection.parity import BATCH, STEPS, EncodedNumbers
from ..launch.trial.placement import plugins_of
from ..record.files import write_atomically
from ..spec.config import Config, digest
from ..worker.plugin_reference import PluginReference
from .context import RunContext

_COUNTS, _VALUES = "parity.json", "parity.f64"
_KEEP_SECONDS = 90 * 24 * 3600.0


def numbers_folder(context: RunContext, config: Config, precision: str) -> Path:
    """Return the folder of a config's numbers. Its name is made from everything that the numbers depend on."""
    supply = context.plan.available
    key = digest(
        {
            "framework": config.framework,
            "versions": context.frameworks[config.framework].versions,
            "network": [config.model, config.image_size, config.classes, config.channels],
            "layout": config.layout,
            "device": [supply.kind, supply.device_name],
            "precision": precision,
            "seed": context.plan.experiment.work.seed,
            "batch": BATCH,
            "steps": STEPS,
            "code": [_code_hash(_worker_folder()), *map(_plugin_hash, plugins_of(config))],
        }
    )
    return _root() / f"{config.framework}-{config.model}-{precision}-{key}"


def read_cached(folder: Path) -> ParityNumbers | None:
    """Return None if nothing is cached, or nothing that can be read: then the numbers are computed anew."""
    try:
        counts = json.loads((folder / _COUNTS).read_text())
        data = (folder / _VALUES).read_bytes()
        if len(data) != 8 * sum(counts["arrays"].values()):
            return None
        os.utime(folder)
        return ParityNumbers(counts["parameters"], counts["macs"], read_numbers(data, counts["arrays"]))
    except (OSError, ValueError, KeyError):
        return None


def write_cached(folder: Path, numbers: EncodedNumbers) -> None:
    """Write the counts last: where they are, the values are complete."""
    folder.mkdir(exist_ok=True)
    write_atomically(folder / _VALUES, numbers.values)
    write_atomically(folder / _COUNTS, numbers.head)


def _root() -> Path:
    """Return the folder of all numbers, after removing those that were not used for three months.

    A temporary folder stands in where the user's cache cannot be written.
    """
    folder = cache_folder() / "parity"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if time.time() - entry.stat().st_mtime > _KEEP_SECONDS:
                shutil.rmtree(entry, ignore_errors=True)
    except OSError:
        return _temporary_root()
    return folder if os.access(folder, os.W_OK) else _temporary_root()


@cache
def _temporary_root() -> Path:
    return Path(tempfile.mkdtemp(prefix="trainscale-parity-"))


def _worker_folder() -> Path:
    return Path(__file__).resolve().parent.parent / "worker"


@cache
def _code_hash(folder: Path) -> str:
    code = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return code.hexdigest()


def _plugin_hash(plugin: PluginReference) -> str:
    package = Path(plugin.folder) / plugin.package
    if package.is_dir():
        return _code_hash(package)
    return hashlib.sha256(package.with_suffix(".py").read_bytes()).hexdigest()
