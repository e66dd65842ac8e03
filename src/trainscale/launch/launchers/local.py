"""The local launcher: this machine."""

import sys
from collections.abc import Mapping
from pathlib import Path

from ...cluster.hosts import HostList
from ...errors import InputError
from ...spec.experiment import Experiment
from .base import START, PipeLauncher


class LocalLauncher(PipeLauncher):
    name = "local"
    local = True

    @classmethod
    def find_hosts(cls, experiment: Experiment, environment: Mapping[str, str]) -> HostList:
        """The experiment must name no hosts, and no Python that is missing here."""
        hosts = experiment.cluster.hosts
        if hosts:
            reason = f"it uses only this machine, and {hosts} names hosts"
            raise InputError(f"launcher {cls.name}: {reason}; valid: --launcher ssh")
        for _, path in experiment.resources.python or ():
            if not Path(path).exists():
                raise InputError(f"--python: there is no Python at {path}")
        return HostList()

    def command(self, host: str) -> list[str]:
        return [sys.executable, str(START), "keeper"]
