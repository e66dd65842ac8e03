"""Connects to the target of a run: its launcher, the facts of its hosts, and the devices that they have together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...cluster.devices import find_devices, find_local_devices
from ...errors import TrainscaleError
from ...spec.devices import AvailableDevices
from ...spec.experiment import Experiment
from ...worker.inspection.host_facts import HostFacts
from ...worker.inspection.machine import Machine, read_machine
from ..connections.keeper import HostError, causes
from ..launchers.base import Launcher
from ..launchers.target import Target
from .host_facts import make_usable_host, read_host_facts


@dataclass(frozen=True)
class Cluster:
    launcher: Launcher
    supply: AvailableDevices
    machine: Machine  # this one
    hosts: Mapping[str, HostFacts] = field(default_factory=dict)  # none if this machine is the only host


def connect_cluster(
    place: Target, experiment: Experiment, pythons: Mapping[str, str], how: Launcher | None = None
) -> Cluster:
    """Connect to all hosts; each must answer. ``pythons``: where to look first for each framework. ``how``: a launcher
    that has its hosts already.
    """
    machine = read_machine()
    how = how or place.make_launcher()
    if place.local:
        return Cluster(how, find_local_devices(machine, experiment), machine)
    try:
        return _reach(how, place, experiment, pythons, machine)
    except BaseException:
        how.close()  # the cluster may have its hosts back
        raise


def _reach(
    how: Launcher, place: Target, experiment: Experiment, pythons: Mapping[str, str], machine: Machine
) -> Cluster:
    hosts = how.hosts()
    answers = read_host_facts(how, hosts, pythons)
    broken = causes(answer for answer in answers.values() if isinstance(answer, HostError))
    if broken:
        words = "\n".join(str(error) for error in broken)
        hint = (
            "\n  see: trainscale check --hosts FILE; --hosts-count N uses the first N only"
            if place.access.hosts
            else ""
        )
        raise TrainscaleError(f"{words}{hint}")
    good = {name: answer for name, answer in answers.items() if not isinstance(answer, HostError)}
    found = [make_usable_host(host, good[host.name], place.access) for host in hosts]
    return Cluster(how, find_devices(found, experiment), machine, good)
