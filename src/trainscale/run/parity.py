"""Proves that frameworks which are compared train the same network: has each compute a few steps, lays their numbers
side by side, and remembers the numbers, so that a framework is asked once for each of its versions.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from ..analyse.parity import ParityNumbers, compare, judge, read_numbers
from ..folders import cache_folder
from ..launch.connections.keeper import KeeperConnection
from ..launch.inspection.parity import BATCH, FP32, FP64, STEPS, ParityFailed, compute
from ..launch.launchers.base import Launcher
from ..launch.launchers.local import LocalLauncher
from ..launch.trial.placement import plugins_of
from ..record.files import write_whole
from ..record.parity import UNPROVEN, Verdict
from ..spec.config import Config, digest
from ..spec.devices import Devices
from ..worker import models
from ..worker.job import Device

COUNTS, VALUES = "parity.json", "parity.f64"
_AT_ONCE = 2  # each may need some gigabytes: AlexNet in float64, with gradients and momentum
_KEEP_SECONDS = 90 * 24 * 3600.0

Say = Callable[[str], None]


@dataclass
class ParityRequest:
    """How to ask: which interpreters, versions (of each framework, by name), devices, seed."""

    pythons: Mapping[str, str]
    versions: Mapping[str, Mapping[str, str]]
    supply: Devices
    seed: int
    fresh: bool = False
    launcher: Launcher = field(default_factory=LocalLauncher)


def subjects(configs: Iterable[Config]) -> list[list[Config]]:
    """The comparisons among these configs: networks that more than one framework, or one in two layouts, trains."""
    groups: dict[tuple[Any, ...], dict[tuple[str, str], Config]] = {}
    for config in configs:
        network = (config.model, config.image_size, config.classes, config.device)
        groups.setdefault(network, {}).setdefault((config.framework, config.layout), config)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def unproven(configs: Iterable[Config], reason: str) -> list[Verdict]:
    """Verdicts for comparisons that nobody checked."""
    return [_verdict(config, group[0], UNPROVEN, reason) for group in subjects(configs) for config in group]


def prove(configs: Iterable[Config], asked: ParityRequest, say: Say) -> list[Verdict]:
    """A verdict for every framework's build of every network that is compared. The first of each is the reference."""
    verdicts: list[Verdict] = []
    for group in subjects(configs):
        if models.resolve(group[0].model) is None:
            verdicts += unproven(group, "it is a network of its own library, not one that is defined here")
            continue
        numbers = _numbers(group, asked, say)
        reference = next((config for config in group if not isinstance(numbers[config], ParityFailed)), None)
        for config in group:
            verdicts.append(_judge(config, reference, numbers))
    return verdicts


def _judge(config: Config, reference: Config | None, numbers: Mapping[Config, Any]) -> Verdict:
    own = numbers[config]
    if isinstance(own, ParityFailed) or reference is None:
        return _verdict(config, reference or config, UNPROVEN, f"{config.framework} could not compute it: {own}")
    checks = compare(numbers[reference], own)
    state, reason = judge(checks)
    return _verdict(config, reference, state, reason, checks)


def _verdict(config: Config, reference: Config, state: str, reason: str, checks: Sequence[Any] = ()) -> Verdict:
    return Verdict(
        framework=config.framework,
        model=config.model,
        image_size=config.image_size,
        classes=config.classes,
        layout=config.layout,
        device=config.device,
        reference=f"{reference.framework} {reference.layout}",
        state=state,
        checks=tuple(checks),
        reason=reason,
    )


def _numbers(group: Sequence[Config], asked: ParityRequest, say: Say) -> dict[Config, Any]:
    """(float64, float32) numbers of each config, or a Broken. What is not remembered is computed, two at a time."""
    folders = {(c, precision): _folder(c, precision, asked) for c in group for precision in (FP64, FP32)}
    found = {key: None if asked.fresh else _read(folder) for key, folder in folders.items()}
    todo = [key for key, numbers in found.items() if numbers is None]
    errors: dict[Config, str] = {}
    if todo:
        say(f"parity of {group[0].model}: {', '.join(dict.fromkeys(c.framework for c, _ in todo))}")
        errors = _compute_all(todo, folders, asked, say)
        found.update({key: _read(folders[key]) for key in todo})
    pairs = {config: (found[config, FP64], found[config, FP32]) for config in group}
    return {c: pair if all(pair) else ParityFailed(errors.get(c, "its numbers are gone")) for c, pair in pairs.items()}


def _compute_all(
    todo: Sequence[tuple[Config, str]], folders: Mapping[tuple[Config, str], Path], asked: ParityRequest, say: Say
) -> dict[Config, str]:
    devices: SimpleQueue[Device] = SimpleQueue()
    # On the first host. On other machines one at a time: some launchers have one keeper a host.
    at_once = _AT_ONCE if asked.supply.kind == "cpu" and asked.launcher.local else 1
    for device in asked.supply.sites[0].devices[:at_once]:
        devices.put(device)
    running: list[KeeperConnection] = []
    stopped = threading.Event()
    errors: dict[Config, str] = {}

    def one(key: tuple[Config, str]) -> None:
        config, precision = key
        if stopped.is_set() or config in errors:
            return
        device = devices.get()
        try:
            seconds = _compute_one(config, precision, device, folders[key], asked, running.append)
            say(f"  {config.framework} {config.layout} {precision}: {seconds:.0f} s")
        except ParityFailed as error:
            errors[config] = str(error)
            say(f"  {config.framework} {config.layout} {precision}: {error}")
        finally:
            devices.put(device)

    with ThreadPoolExecutor(devices.qsize()) as pool:
        try:
            list(pool.map(one, todo))
        except BaseException:
            stopped.set()
            for keeper in tuple(running):
                keeper.close()
            raise
    return errors


def _compute_one(
    config: Config,
    precision: str,
    device: Device,
    folder: Path,
    asked: ParityRequest,
    started: Callable[[KeeperConnection], None],
) -> float:
    """Seconds it took. Its files are written whole, the index last: what has an index is complete."""
    site, python = asked.supply.sites[0], asked.pythons[config.framework]
    numbers = compute(asked.launcher, site, python, config, precision, device, asked.seed, started)
    folder.mkdir(exist_ok=True)
    write_whole(folder / VALUES, numbers.values)
    write_whole(folder / COUNTS, numbers.head)
    return numbers.seconds


def _read(folder: Path) -> ParityNumbers | None:
    """None where nothing is remembered, or nothing that can be read: it is computed anew."""
    try:
        facts = json.loads((folder / COUNTS).read_text())
        data = (folder / VALUES).read_bytes()
        if len(data) != 8 * sum(facts["arrays"].values()):
            return None
        os.utime(folder)
        return ParityNumbers(facts["parameters"], facts["macs"], read_numbers(data, facts["arrays"]))
    except (OSError, ValueError, KeyError):
        return None


def _folder(config: Config, precision: str, asked: ParityRequest) -> Path:
    """By everything that the numbers depend on: versions, network, sizes, layout, device, seed, our own code."""
    key = digest(
        {
            "framework": config.framework,
            "versions": dict(asked.versions[config.framework]),
            "network": [config.model, config.image_size, config.classes, config.channels],
            "layout": config.layout,
            "device": [asked.supply.kind, asked.supply.device_name],
            "precision": precision,
            "seed": asked.seed,
            "batch": BATCH,
            "steps": STEPS,
            "code": [_code(Path(__file__).resolve().parent.parent / "worker"), *map(_plugin_code, plugins_of(config))],
        }
    )
    return _cache() / f"{config.framework}-{config.model}-{precision}-{key}"


def _cache() -> Path:
    """The user's cache, without what nobody has used for three months; a temporary folder where it cannot be had."""
    folder = cache_folder() / "parity"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if time.time() - entry.stat().st_mtime > _KEEP_SECONDS:
                shutil.rmtree(entry, ignore_errors=True)
    except OSError:
        return _substitute()
    return folder if os.access(folder, os.W_OK) else _substitute()


@cache
def _substitute() -> Path:
    return Path(tempfile.mkdtemp(prefix="trainscale-parity-"))


@cache
def _code(folder: Path) -> str:
    whole = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        whole.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return whole.hexdigest()


def _plugin_code(plugin: Mapping[str, str]) -> str:
    top = Path(plugin["folder"]) / plugin["reference"].partition(":")[0].partition(".")[0]
    return _code(top) if top.is_dir() else hashlib.sha256(top.with_suffix(".py").read_bytes()).hexdigest()
