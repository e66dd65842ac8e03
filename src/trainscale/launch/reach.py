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
from .keepers import HostError


@dataclass(frozen=True)
class Reached:
    launcher: Launcher
    supply: Supply
    machine: Machine  # this one
    hosts: Mapping[str, dict[str, Any]] = field(default_factory=dict)  # what each host said of itself


def reach(place: Place, experiment: Experiment, pythons: Mapping[str, str]) -> Reached:
    """All hosts must answer. ``pythons``: where to look first for each framework."""
    machine = look()
    how = launcher(place.launcher, place.where)
    if place.local:
        return Reached(how, supply(machine, experiment), machine)
    hosts = how.hosts()
    answers = look_at(how, hosts, pythons)
    broken = [answer for answer in answers.values() if isinstance(answer, HostError)]
    if broken:
        how.close()
        words = "\n".join(str(error) for error in broken)
        raise TrainscaleError(f"{words}\n  see: trainscale check --hosts FILE; --hosts-count N uses the first N only")
    good = {name: answer for name, answer in answers.items() if not isinstance(answer, HostError)}
    found = [found_of(host, good[host.name], place.where) for host in hosts]
    return Reached(how, supply_of(found, experiment), machine, good)
