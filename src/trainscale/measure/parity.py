"""Proves that frameworks which are compared train the same network: each computes a few steps, and the numbers are
compared."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from ..analyse.parity import ParityNumbers, compare, judge
from ..interruptible import wait_for_futures
from ..launch.connected_hosts import ConnectedHosts
from ..launch.inspection.numbers import EncodedNumbers, NumbersFailed
from ..launch.inspection.parity import BATCH, FP32, FP64, STEPS, VERSION, ParityTask, compute
from ..launch.trial.jobs import list_plugins
from ..record.parity import UNPROVEN, Check, Verdict
from ..spec.config import Config, compute_digest
from ..worker import models
from ..worker.frameworks.catalog import explain_foreign
from ..worker.job import Device
from . import number_cache
from .context import RunContext

_AT_ONCE = 2  # each may need some gigabytes: AlexNet in float64, with gradients and momentum

Report = Callable[[str], None]
NumberPair = tuple[ParityNumbers, ParityNumbers]  # in float64 and in float32


def check_parity(context: RunContext, report: Report) -> list[Verdict]:
    """Return the verdicts on what a run compares. ``report`` is given a line for each computation."""
    configs = context.usable_plan.configs
    if not context.plan.experiment.safety.parity:
        return list_unproven(configs, "--no-parity left the check out")
    return prove(context, configs, report)


def group_comparisons(configs: Iterable[Config]) -> list[list[Config]]:
    """Group the configs that are compared: those that train one network in several frameworks or layouts."""
    groups: dict[tuple[str, int, int, str], dict[tuple[str, str], Config]] = {}
    for config in configs:
        network = (config.model, config.image_size, config.classes, config.device)
        groups.setdefault(network, {}).setdefault((config.framework, config.layout), config)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def list_unproven(configs: Iterable[Config], reason: str) -> list[Verdict]:
    """Return verdicts for comparisons that are not checked."""
    return [
        _make_verdict(config, group[0], UNPROVEN, reason) for group in group_comparisons(configs) for config in group
    ]


def prove(context: RunContext, configs: Iterable[Config], report: Report, fresh: bool = False) -> list[Verdict]:
    """Return a verdict for every config that is compared. The first framework of each network is the reference.

    With ``fresh`` all numbers are computed anew, even those in the cache.
    """
    verdicts: list[Verdict] = []
    for group in group_comparisons(configs):
        if models.resolve(group[0].model) is None:
            verdicts += list_unproven(group, explain_foreign(group[0].model))
            continue
        numbers = _find_numbers(context, group, report, fresh)
        reference = next((config for config in group if not isinstance(numbers[config], NumbersFailed)), None)
        verdicts += [_judge(config, reference, numbers) for config in group]
    return verdicts


def _judge(config: Config, reference: Config | None, numbers: Mapping[Config, NumberPair | NumbersFailed]) -> Verdict:
    own = numbers[config]
    expected = numbers[reference] if reference else own
    if reference is None or isinstance(own, NumbersFailed) or isinstance(expected, NumbersFailed):
        return _make_verdict(config, reference or config, UNPROVEN, f"{config.framework} could not compute it: {own}")
    checks = compare(expected, own)
    state, reason = judge(checks)
    return _make_verdict(config, reference, state, reason, checks)


def _make_verdict(config: Config, reference: Config, state: str, reason: str, checks: Sequence[Check] = ()) -> Verdict:
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


def _find_numbers(
    context: RunContext, group: Sequence[Config], report: Report, fresh: bool
) -> dict[Config, NumberPair | NumbersFailed]:
    """Return the numbers of each config, or why there are none. What is not in the cache is computed."""
    folders = {(c, precision): find_numbers_folder(context, c, precision) for c in group for precision in (FP64, FP32)}
    numbers = {key: None if fresh else read_cached(folder) for key, folder in folders.items()}
    to_compute = {key: folders[key] for key, known in numbers.items() if known is None}
    errors: dict[Config, str] = {}
    if to_compute:
        frameworks = dict.fromkeys(config.framework for config, _ in to_compute)
        report(f"parity of {group[0].model}: {', '.join(frameworks)}")
        errors = _Computation(context, report).compute_all(to_compute)
        numbers.update({key: read_cached(folder) for key, folder in to_compute.items()})
    results: dict[Config, NumberPair | NumbersFailed] = {}
    for config in group:
        double, single = numbers[config, FP64], numbers[config, FP32]
        missing = NumbersFailed(errors.get(config, "its numbers are gone"))
        results[config] = (double, single) if double and single else missing
    return results


@dataclass
class _Computation:
    """Has frameworks compute their numbers, a few at a time, each on a device of its own."""

    context: RunContext
    report: Report
    _free_devices: SimpleQueue[Device] = field(default_factory=SimpleQueue)
    _connected: list[ConnectedHosts] = field(default_factory=list)
    _stopped: threading.Event = field(default_factory=threading.Event)
    _errors: dict[Config, str] = field(default_factory=dict)

    def compute_all(self, folders: Mapping[tuple[Config, str], Path]) -> dict[Config, str]:
        """Write the numbers of each config and precision into its folder. Return the errors."""
        available, launcher = self.context.plan.available, self.context.launcher
        # On the first host. On other machines one at a time: some launchers have one keeper for each host.
        at_once = _AT_ONCE if available.kind == "cpu" and launcher.local else 1
        for device in available.hosts[0].devices[:at_once]:
            self._free_devices.put(device)
        with ThreadPoolExecutor(self._free_devices.qsize()) as pool:
            try:
                wait_for_futures([pool.submit(self._compute, *key, folder) for key, folder in folders.items()])
            except BaseException:
                self._stopped.set()
                for connected in tuple(self._connected):
                    connected.request_end()
                raise
        return self._errors

    def _compute(self, config: Config, precision: str, folder: Path) -> None:
        if self._stopped.is_set() or config in self._errors:
            return
        plan, launcher = self.context.plan, self.context.launcher
        host, python = plan.available.hosts[0], self.context.pythons[config.framework]
        name = f"  {config.framework} {config.layout} {precision}"
        device = self._free_devices.get()
        try:
            task = ParityTask(config, precision, device, plan.experiment.work.seed)
            numbers = compute(launcher, host, python, task, self._connected.append)
            write_cached(folder, numbers)
            self.report(f"{name}: {numbers.seconds:.0f} s")
        except NumbersFailed as error:
            self._errors[config] = str(error)
            self.report(f"{name}: {error}")
        finally:
            self._free_devices.put(device)


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
