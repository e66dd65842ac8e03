"""Proves that frameworks which are compared train the same network: each computes a few steps."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

from ..analyse.parity import ParityNumbers, compare, judge
from ..launch.connected_hosts import ConnectedHosts, wait_for_futures
from ..launch.tasks import (
    BATCH,
    FP32,
    FP64,
    STEPS,
    VERSION,
    NumbersFailed,
    compute_parity_numbers,
)
from ..launch.trial.trial import list_plugins
from ..record.parity import BUILD, UNPROVEN, Check, Verdict
from ..spec.config import Config
from ..worker import models
from ..worker.frameworks.catalog import explain_foreign
from ..worker.job import Device
from .context import RunContext
from .expectations import find_numbers_file, read_cached, write_cached

_AT_ONCE = 2  # each may need some gigabytes: AlexNet in float64, with gradients and momentum

Report = Callable[[str], None]
NumberPair = tuple[ParityNumbers, ParityNumbers]  # in float64 and in float32


def group_comparisons(configs: Iterable[Config]) -> list[list[Config]]:
    """Group the configs that train one network in several frameworks or layouts."""
    groups: dict[tuple[str, int, int, str], dict[tuple[str, str], Config]] = {}
    for config in configs:
        network = (config.model, config.image_size, config.classes, config.device)
        groups.setdefault(network, {}).setdefault((config.framework, config.layout), config)
    return [list(group.values()) for group in groups.values() if len(group) > 1]


def list_unproven(configs: Iterable[Config], reason: str) -> list[Verdict]:
    groups = group_comparisons(configs)
    return [_make_verdict(config, group[0], UNPROVEN, reason) for group in groups for config in group]


def prove(context: RunContext, configs: Iterable[Config], report: Report, fresh: bool = False) -> list[Verdict]:
    """Return a verdict for every config that is compared. The first framework is the reference."""
    verdicts: list[Verdict] = []
    for group in group_comparisons(configs):
        if models.resolve(group[0].model) is None:
            verdicts += list_unproven(group, explain_foreign(group[0].model))
            continue
        numbers, errors = _find_numbers(context, group, report, fresh)
        reference = next((config for config in group if config in numbers), None)
        for config in group:
            if reference is None or config not in numbers:
                reason = f"{config.framework} could not compute it: {errors[config]}"
                verdicts.append(_make_verdict(config, reference or config, UNPROVEN, reason))
            else:
                checks = compare(numbers[reference], numbers[config])
                verdicts.append(_make_verdict(config, reference, *judge(checks), checks))
    return verdicts


def _make_verdict(config: Config, reference: Config, state: str, reason: str, checks: Sequence[Check] = ()) -> Verdict:
    build = {name: getattr(config, name) for name in BUILD}
    expected = f"{reference.framework} {reference.layout}"
    return Verdict(**build, reference=expected, state=state, checks=tuple(checks), reason=reason)


def _find_numbers(
    context: RunContext, group: Sequence[Config], report: Report, fresh: bool
) -> tuple[dict[Config, NumberPair], dict[Config, str]]:
    """Return the numbers of each config, and of the others why there are none."""
    files = {(c, precision): _find_file(context, c, precision) for c in group for precision in (FP64, FP32)}
    numbers = {key: None if fresh else _read(path) for key, path in files.items()}
    to_compute = {key: files[key] for key, known in numbers.items() if known is None}
    errors: dict[Config, str] = {}
    if to_compute:
        frameworks = dict.fromkeys(config.framework for config, _ in to_compute)
        report(f"parity of {group[0].model}: {', '.join(frameworks)}")
        errors = _compute_all(context, to_compute, report)
        numbers.update({key: _read(path) for key, path in to_compute.items()})
    pairs: dict[Config, NumberPair] = {}
    for config in group:
        double, single = numbers[config, FP64], numbers[config, FP32]
        if double and single:
            pairs[config] = double, single
        else:
            errors.setdefault(config, "its numbers are gone")
    return pairs, errors


def _find_file(context: RunContext, config: Config, precision: str) -> Path:
    supply = context.plan.available
    identity = {
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
    }
    name = f"{config.framework}-{config.model}-{precision}"
    return find_numbers_file("parity", name, identity, list_plugins(config))


def _read(path: Path) -> ParityNumbers | None:
    cached = read_cached(path)
    if cached is None or not {"parameters", "macs"} <= cached[0].keys():
        return None
    head, arrays = cached
    return ParityNumbers(head["parameters"], head["macs"], arrays)


def _compute_all(context: RunContext, files: Mapping[tuple[Config, str], Path], report: Report) -> dict[Config, str]:
    """Compute numbers into their files, each on a device of its own. Return the errors."""
    launcher, available = context.launcher, context.plan.available
    host = available.hosts[0]
    # On other machines one at a time: some launchers have one keeper for each host.
    at_once = _AT_ONCE if available.kind == "cpu" and launcher.local else 1
    free_devices: SimpleQueue[Device] = SimpleQueue()
    for device in host.devices[:at_once]:
        free_devices.put(device)
    connections: list[ConnectedHosts] = []
    errors: dict[Config, str] = {}

    def compute_one(config: Config, precision: str, path: Path) -> None:
        if config in errors:
            return
        name = f"  {config.framework} {config.layout} {precision}"
        device = free_devices.get()
        try:
            numbers = compute_parity_numbers(
                launcher,
                host,
                context.pythons[config.framework],
                replace(config, precision=precision),
                device,
                context.plan.experiment.work.seed,
                connections.append,
            )
            write_cached(path, numbers)
            report(f"{name}: {numbers.seconds:.0f} s")
        except NumbersFailed as error:
            errors[config] = str(error)
            report(f"{name}: {error}")
        finally:
            free_devices.put(device)

    with ThreadPoolExecutor(free_devices.qsize()) as pool:
        try:
            wait_for_futures([pool.submit(compute_one, *key, path) for key, path in files.items()])
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            for connection in tuple(connections):
                connection.request_end()
            raise
    return errors
