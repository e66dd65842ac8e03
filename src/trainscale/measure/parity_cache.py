"""Keeps the numbers of parity checks in the user's cache, so that a framework computes them once for each version."""

from __future__ import annotations

from pathlib import Path

from ..analyse.parity import ParityNumbers
from ..launch.inspection.numbers import EncodedNumbers
from ..launch.inspection.parity import BATCH, STEPS, VERSION
from ..launch.trial.jobs import list_plugins
from ..spec.config import Config, compute_digest
from . import number_cache
from .context import RunContext

_KIND = "parity"


def find_numbers_folder(context: RunContext, config: Config, precision: str) -> Path:
    """Return the folder of a config's numbers. Its name is made from everything that the numbers depend on."""
    supply = context.plan.available
    code = number_cache.compute_code_hash(number_cache.find_worker_folder())
    key = compute_digest(
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
            "version": VERSION,
            "code": [code, *map(number_cache.compute_plugin_hash, list_plugins(config))],
        }
    )
    return number_cache.prepare_numbers_root(_KIND) / f"{config.framework}-{config.model}-{precision}-{key}"


def read_cached(folder: Path) -> ParityNumbers | None:
    """Return None if nothing is cached, or nothing that can be read: then the numbers are computed anew."""
    numbers = number_cache.read_cached(folder, _KIND)
    if numbers is None or not {"parameters", "macs"} <= numbers.counts.keys():
        return None
    return ParityNumbers(numbers.counts["parameters"], numbers.counts["macs"], numbers.arrays)


def write_cached(folder: Path, numbers: EncodedNumbers) -> None:
    number_cache.write_cached(folder, _KIND, numbers)
