"""The space of an experiment: every combination of the settings that are lists, and the default space of a search."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from ..errors import InputError
from ..worker.frameworks.catalog import WITH_SERVERS, Framework
from .choices import NetworkChoice, StrategyChoice, choose_strategies
from .config import AUTO, BESIDE, STRONG
from .devices import AvailableDevices
from .experiment import Experiment
from .value_types import SEARCH_DEFAULT

_PRECISIONS = ("fp32", "tf32", "bf16")  # of the default space: fp16 skips steps
_NO_CANDIDATES = ("independent", "ps-async")  # nothing is exchanged; an image teaches less
_SERVERS = (1, 2)


@dataclass(frozen=True)
class Combination:
    """One value of every setting that may be a list, for one framework and network."""

    strategy: StrategyChoice
    batch: int
    precision: str
    layout: str
    compile: bool
    server_placement: str
    placement: str


def choose_combinations(
    experiment: Experiment, framework: Framework, network: NetworkChoice, available: AvailableDevices, usual_batch: int
) -> list[Combination]:
    """Return all combinations, the strategies outermost. Settings that are not given have one value each, or, in the
    default space of a search, all values that the framework offers on this kind of device.
    """
    work, search = experiment.work, experiment.measurement.search
    batches = (network.batch,) if network.batch is not None else work.batch or (usual_batch,)
    strategies = choose_strategies(experiment, framework)
    layouts = work.layout or (framework.choose_layout(available.kind),)
    precisions, compiles = work.precision or ("fp32",), work.compile or (False,)
    if search == SEARCH_DEFAULT:
        batches = (
            batches if network.batch is not None or work.batch else _choose_default_batches(experiment, usual_batch)
        )
        strategies = strategies if work.strategies else _choose_default_strategies(framework)
        layouts = work.layout or framework.layouts.get(available.kind, layouts)
        precisions = work.precision or tuple(name for name in _PRECISIONS if name in framework.precisions)
        compiles = work.compile or ((False, True) if framework.compiles and available.kind == "cuda" else (False,))
    if search and any(strategy.name == "independent" for strategy in strategies):
        raise InputError("strategy 'independent': nothing is exchanged, so it cannot be the best; leave --search out")
    if search and AUTO in batches:
        raise InputError("batch auto: a search compares batches by speed; valid with --search: numbers")
    resources = experiment.resources
    return [
        Combination(*values)
        for strategy in strategies
        for values in product(
            (strategy,), batches, precisions, layouts, compiles,
            resources.server_placement if strategy.servers else (BESIDE,), resources.placement,
        )
    ]  # fmt: skip


def _choose_default_batches(experiment: Experiment, usual: int) -> tuple[int, ...]:
    """Return half, once and twice the usual batch. Under strong scaling the batch is part of the work."""
    if experiment.measurement.scaling == STRONG:
        return (usual,)
    return tuple(dict.fromkeys((max(1, usual // 2), usual, 2 * usual)))


def _choose_default_strategies(framework: Framework) -> list[StrategyChoice]:
    names = [name for name in framework.strategies if name not in _NO_CANDIDATES]
    return [StrategyChoice(name, count) for name in names for count in (_SERVERS if name in WITH_SERVERS else (0,))]
