"""From a place to what can be used there: its launcher, its hosts looked at, and the devices they have together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..cluster.devices import supply, supply_of
from ..cluster.where import Place
from ..errors import TrainscaleError
from ..spec.experiment import Experiment
from ..spec.supply import Supply
from ..worker.machine import Machine, look
from .base import Launcher
from .catalog import launcher
from .contact import found_of, look_at
from .keepers import HostError, causes


@dataclass(frozen=True)
class Reached:
    launcher: Launcher
    supply: Supply
    machine: Machine  # this one
    hosts: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # what each host said of itself


def reach(place: Place, experiment: Experiment, pythons: Mapping[str, str], how: Launcher | None = None) -> Reached:
    """All hosts must answer. ``pythons``: where to look first for each framework. ``how``: a launcher that has its
    hosts already.
    """
    machine = look()
    how = how or launcher(place.launcher, place.where)
    if place.local:
        return Reached(how, supply(machine, experiment), machine)
    try:
        return _reach(how, place, experiment, pythons, machine)
    except BaseException:
        how.close()  # what a cluster gave for this run is not needed now
        raise


def _reach(
    how: Launcher, place: Place, experiment: Experiment, pythons: Mapping[str, str], machine: Machine
) -> Reached:
    hosts = how.hosts()
    answers = look_at(how, hosts, pythons)
    broken = causes(answer for answer in answers.values() if isinstance(answer, HostError))
    if broken:
        words = "\n".join(str(error) for error in broken)
        hint = (
            "\n  see: trainscale check --hosts FILE; --hosts-count N uses the first N only" if place.where.hosts else ""
        )
        raise TrainscaleError(f"{words}{hint}")
    good = {name: answer for name, answer in answers.items() if not isinstance(answer, HostError)}
    found = [found_of(host, good[host.name], place.where) for host in hosts]
    return Reached(how, supply_of(found, experiment), machine, good)
