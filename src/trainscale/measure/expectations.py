"""What the first steps of each trial must compute, and the cache of numbers that processes computed."""

import hashlib
import json
import os
import shutil
import tempfile
import time
from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

from ..analyse.witness import Expectation, SampleFacts
from ..folders import find_cache_folder
from ..launch.launchers.base import ITS_START
from ..launch.tasks import EncodedNumbers, NumbersFailed, compute_numbers
from ..launch.trial.trial import TrialSettings, build_jobs, count_ports, list_plugins, place_trial
from ..record.files import write_atomically
from ..spec.config import Trial, compute_digest
from ..spec.plan import Plan
from ..worker import models
from ..worker.config import ALLOCATORS, TUNED
from ..worker.frameworks.catalog import FRAMEWORKS, explain_foreign
from ..worker.job import ASYNCHRONOUS, Measure, PluginReference, Task
from ..worker.type_aliases import JsonObject
from ..worker.witness import count_first_steps
from ..worker.witness.sketch import SIZE
from .context import RunContext

_SECONDS = 3600.0  # that computing an expectation may take
_CODE = ("witness", "models", "data")  # folders of the worker that the numbers come from

# Sustained by the reference in float64; for estimates only.
_CORE_FLOPS, _GPU_FLOPS = 2e10, 5e12
_TRAINING_FLOPS_PER_MAC = 6

KEEP_SECONDS = 90 * 24 * 3600.0  # after the last use
_make_temporary_folder = cache(tempfile.mkdtemp)
_WORKER = Path(__file__).resolve().parent.parent / "worker"

Arrays = dict[str, tuple[float, ...]]
Report = Callable[[str], None]


class Expectations:
    """Computes and remembers expectations. ``report`` gets lines."""

    def __init__(self, context: RunContext, report: Report) -> None:
        self._context, self._report = context, report
        self._known: dict[str, Expectation | str] = {}  # by the name of their file

    def find(self, trial: Trial) -> Expectation | str:
        """Return what a trial must compute, or why that is unknown."""
        if not self._context.plan.experiment.safety.witness:
            return "--no-witness left it out"
        if models.resolve(trial.config.model) is None:
            return explain_foreign(trial.config.model)
        path = find_expectation_file(self._context.plan, trial)
        if path.name not in self._known:
            self._known[path.name] = _read(path, trial.devices) or self._compute(path, trial)
        return self._known[path.name]

    def _compute(self, path: Path, trial: Trial) -> Expectation | str:
        context, config = self._context, trial.config
        workers = "1 worker" if trial.devices == 1 else f"{trial.devices} workers"
        batch = config.batch_per_device(trial.devices)
        sizes = f"batch {batch}, {workers}"
        self._report(f"computing what the first steps of {config.model} ({sizes}) must give")
        slots = place_trial(trial, context.plan.available)
        host, seed = slots[0].host, context.plan.experiment.work.seed
        python = host.pythons.get(config.framework) or context.pythons[config.framework]
        data_dir = context.plan.dataset.directory
        settings = TrialSettings(Measure(), seed, {config.framework: python}, data_dir=data_dir)
        # It connects to no other process.
        no_ports = {host: [0] * count for host, count in count_ports(slots).items()}
        job = replace(build_jobs(trial, slots, no_ports, settings)[0], dropout=False)
        command = [python, ITS_START, "expectation"]
        task = Task(host.name, 0, command, job.to_json(), defaults=ALLOCATORS[TUNED])
        try:
            numbers = compute_numbers(context.launcher, host.name, lambda _: task, _SECONDS)
        except NumbersFailed as error:
            self._report(f"  {error}")
            return str(error)
        write_cached(path, numbers)
        self._report(f"  took {numbers.seconds:.0f} s")
        return _read(path, trial.devices) or "its numbers are gone"


def find_expectation_file(plan: Plan, trial: Trial) -> Path:
    config = trial.config
    exchange = config.strategy if config.strategy in ASYNCHRONOUS else "synchronous"
    pulls = config.strategy == "ps-async" and FRAMEWORKS[config.framework].pulls_before_step
    model = models.resolve(config.model)
    plugins = [plugin for plugin in list_plugins(config) if model and plugin == model.plugin]
    files: list[Any] = []  # what changes when another data set lies in the same place
    if plan.dataset.is_real:
        with suppress(OSError):
            folder = Path(plan.dataset.directory)
            entries = sorted((entry.name, entry.stat()) for entry in folder.iterdir())
            files += [[name, state.st_size, state.st_mtime_ns] for name, state in entries]
        facts = plan.dataset.facts
        files += [plan.dataset.directory, facts.train, facts.valid]
    identity = {
        "network": [config.model, config.image_size, config.classes, config.channels],
        "batch": config.batch_per_device(trial.devices),
        "workers": trial.devices,
        "exchange": [exchange, pulls],
        "precision": config.precision,
        "training": [config.learning_rate, config.momentum, config.weight_decay],
        "schedule": [config.schedule, config.warmup_epochs, config.epochs],
        "data": [config.data, config.augment, *files],
        "seed": plan.experiment.work.seed,
    }
    name = f"{config.model}-n{trial.devices}-{config.precision}"
    return find_numbers_file("witness", name, identity, plugins, _CODE)


def estimate_seconds(plan: Plan) -> float:
    """Estimate the time of a plan's expectations that are not in the cache."""
    seconds: dict[Path, float] = {}
    cores = max(1, plan.available.cores_per_device) * len(plan.available.hosts[0].devices)
    flops = _GPU_FLOPS if plan.available.kind == "cuda" else _CORE_FLOPS * cores
    for config, devices in plan.points:
        if models.resolve(config.model) is None:
            continue
        path = find_expectation_file(plan, Trial(config, devices, 0))
        macs = models.build(config.model, config.image_size, config.classes).macs
        steps = count_first_steps(config) * (devices + 2)  # all ranks; rank 0 twice more
        cost = steps * config.batch_per_device(devices) * macs * _TRAINING_FLOPS_PER_MAC / flops
        seconds[path] = 0.0 if path.exists() else cost
    return sum(seconds.values())


def _read(path: Path, workers: int) -> Expectation | None:
    cached = read_cached(path)
    if cached is None:
        return None
    head, part = cached
    spreads = select_part(part, "spread/")
    tensor_spreads = select_part(part, "gradient_spread/")
    return Expectation(
        losses=_split_rows(part["losses"], workers),
        initial_losses=part["initial_losses"],
        sketches=select_part(part, "sketch/"),
        totals=_split_rows(part["totals"], SIZE),
        loss_spreads=spreads.pop("losses"),
        total_spread=spreads.pop("total")[0],
        gradients=_split_rows(part.get("gradients", ()), SIZE),
        gradient_spread=spreads.pop("gradient", (0.0,))[0],
        head_gradients=_split_rows(part.get("head_gradients", ()), SIZE),
        head_gradient_spread=spreads.pop("head_gradient", (0.0,))[0],
        spreads={name: values[0] for name, values in spreads.items()},
        tensor_gradients=select_part(part, "gradient/"),
        tensor_gradient_spreads={name: values[0] for name, values in tensor_spreads.items()},
        samples=SampleFacts(*part["samples"]),
        arithmetic=head["arithmetic"],
    )


def select_part(arrays: Arrays, prefix: str) -> Arrays:
    """Return the arrays whose names begin with ``prefix``, by the rest of the name, if any."""
    part = {name: values for name, values in arrays.items() if name.startswith(prefix)}
    return {name.removeprefix(prefix) or name: values for name, values in part.items()}


def _split_rows(values: tuple[float, ...], length: int) -> tuple[tuple[float, ...], ...]:
    return tuple(values[start : start + length] for start in range(0, len(values), length))


# ---- the cache: a file for each set of numbers, as the process sent it


def find_numbers_file(
    kind: str, name: str, identity: JsonObject, plugins: Iterable[PluginReference], code: Sequence[str] = ("",)
) -> Path:
    """Return the file of a set of numbers, named by all that they depend on. Old files are deleted."""
    hashes = [_compute_code_hash(_WORKER / folder) for folder in code]
    for plugin in plugins:
        package = Path(plugin.folder) / plugin.package
        if package.is_dir():
            hashes.append(_compute_code_hash(package))
        else:
            hashes.append(hashlib.sha256(package.with_suffix(".py").read_bytes()).hexdigest())
    folder, is_writable = find_cache_folder() / kind, False
    with suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        for entry in folder.iterdir():
            if time.time() - entry.stat().st_mtime > KEEP_SECONDS:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()  # earlier versions made folders
        is_writable = os.access(folder, os.W_OK)
    if not is_writable:
        folder = Path(_make_temporary_folder(prefix=f"trainscale-{kind}-"))
    return folder / f"{name}-{compute_digest({**identity, 'code': hashes})}"


@cache
def _compute_code_hash(folder: Path) -> str:
    code = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        code.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return code.hexdigest()


def read_cached(path: Path) -> tuple[JsonObject, Arrays] | None:
    """Return the head and the numbers by name; None if they cannot be read."""
    try:
        with path.open("rb") as file:
            head = json.loads(file.readline())
            values = array("d", file.read())  # little-endian
        lengths = head["arrays"]
        if len(values) != sum(lengths.values()):
            return None
        os.utime(path)
    except (OSError, ValueError, KeyError):
        return None
    remaining = iter(values)
    return head, {name: tuple(islice(remaining, length)) for name, length in lengths.items()}


def write_cached(path: Path, numbers: EncodedNumbers) -> None:
    write_atomically(path, numbers.head + b"\n" + numbers.values)
