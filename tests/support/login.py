"""A person at the login node of a Slurm cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from processes import until

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

    def trials(self, output: str = "out") -> list[dict[str, Any]]:
        path = self.folder / output / "trials.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


class Followed:
    """A command in the background, with what it prints."""

    def __init__(self, login: Login, *argv: str) -> None:
        self._path = login.folder / f"output-{len(list(login.folder.iterdir()))}"
        with self._path.open("wb") as out:
            self.popen = login.lab.popen(
                argv, cwd=login.folder, env=login.environment, stdin=subprocess.DEVNULL, stdout=out,
                stderr=subprocess.STDOUT,
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self._path.read_text()

    @property
    def has_ended(self) -> bool:
        return self.popen.poll() is not None

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.output or self.has_ended, text, 120)
        assert text in self.output, self.output

    def finish(self, seconds: float = 240) -> int:
        return self.popen.wait(seconds)


class LabSshLauncher(SshLauncher):
    """ssh to all hosts of the lab, as its controller runs it."""

    def __init__(self, lab: Lab, settings: SshSettings | None = None, **access: Any) -> None:
        hosts = tuple(Host(lab.address(name), name) for name in lab.hosts)
        super().__init__(HostAccess(hosts, **access), settings)
        self._lab = lab

    def command(self, host: str) -> list[str]:
        return [*self._lab.controller, *super().command(host)]
