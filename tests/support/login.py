"""A person at the login node of a Slurm cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from lab_runs import Followed, list_trials

from lab import Lab, Slurm
from trainscale.cluster.hosts import HostAccess
from trainscale.launch.launchers.ssh import SshLauncher, SshSettings
from trainscale.spec.devices import Host


class Login:
    """Runs commands at the login node, in a folder that the nodes share, and reads what they wrote."""

    def __init__(self, lab: Lab, slurm: Slurm, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.environment = {**os.environ, **slurm.environment, "COLUMNS": "160"}

    def run(self, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.lab.run(argv, cwd=self.folder, env={**self.environment, **variables}, timeout=240)

    def trainscale(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "trainscale", *arguments, **variables)

    def begin(self, *argv: str) -> Followed:
        return Followed(self.lab, self.folder, argv, self.environment)

    def trials(self, output: str = "out") -> list[dict[str, Any]]:
        return list_trials(self.folder, output)


class LabSshLauncher(SshLauncher):
    """ssh to all hosts of the lab, as its controller runs it."""

    reuses_keepers = False  # tests do not close it

    def __init__(self, lab: Lab, settings: SshSettings | None = None, **access: Any) -> None:
        hosts = tuple(Host(lab.address(name), name) for name in lab.hosts)
        super().__init__(HostAccess(hosts, **access), settings)
        self._lab = lab

    def command(self, host: str) -> list[str]:
        return [*self._lab.controller, *super().command(host)]
