"""Launchers of the lab: what they start runs in the network of its controller, in which the tests are not."""

from __future__ import annotations

from typing import Any

from lab import Lab
from trainscale.cluster.hosts import HostAccess
from trainscale.launch.launchers.ssh import SshLauncher, SshSettings
from trainscale.spec.devices import Host


class LabSshLauncher(SshLauncher):
    """ssh to all hosts of the lab, as its controller runs it."""

    def __init__(self, lab: Lab, settings: SshSettings | None = None, **access: Any) -> None:
        hosts = tuple(Host(lab.address(name), name) for name in lab.hosts)
        super().__init__(HostAccess(hosts, **access), settings)
        self._lab = lab

    def command(self, host: str) -> list[str]:
        return [*self._lab.controller, *super().command(host)]
