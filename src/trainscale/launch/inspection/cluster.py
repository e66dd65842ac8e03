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
from ..connection import HostError, select_causes
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
    target: Target, experiment: Experiment, pythons: Mapping[str, str], launcher: Launcher | None = None
) -> Cluster:
    """Connect to all hosts; each must answer. ``pythons``: where to look first for each framework. ``launcher``: one
    that has its hosts already.
    """
    machine = read_machine()
    launcher = launcher or target.make_launcher()
    if target.is_local:
        return Cluster(launcher, find_local_devices(machine, experiment), machine)
    try:
        facts = _read_all_facts(launcher, target, pythons)
        usable_hosts = [make_usable_host(host, facts[host.name], target.access) for host in launcher.hosts()]
        return Cluster(launcher, find_devices(usable_hosts, experiment), machine, facts)
    except BaseException:
        launcher.close()  # the cluster may have its hosts back
        raise


def _read_all_facts(launcher: Launcher, target: Target, pythons: Mapping[str, str]) -> dict[str, HostFacts]:
    answers = read_host_facts(launcher, launcher.hosts(), pythons)
    errors = select_causes(answer for answer in answers.values() if isinstance(answer, HostError))
    if errors:
        lines = [str(error) for error in errors]
        if target.access.hosts:
            lines.append("  see: trainscale check --hosts FILE; --hosts-count N uses the first N only")
        raise TrainscaleError("\n".join(lines))
    return {name: answer for name, answer in answers.items() if not isinstance(answer, HostError)}
