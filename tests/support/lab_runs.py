"""Commands that run in a lab, or at the login node of its Slurm: how they start, what they measure and leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import until

from lab import Lab
from trainscale.cluster.hosts import HostAccess
from trainscale.launch.launchers.ssh import SshLauncher
from trainscale.spec.devices import Host
from trainscale.spec.groups import SshSettings

_SMALL = ("--models", "mnist:8", "--warmup", "2", "-o", "out")
QUICK = (*_SMALL, "--steps", "3", "--repeats", "1")
LONG = (*_SMALL, "--steps", "1000000", "--devices", "2")


def list_trials(folder: Path, output: str = "out") -> list[dict[str, Any]]:
    path = folder / output / "trials.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def list_ranks(lab: Lab, host: str) -> list[str]:
    return [line for line in lab.processes(host) if line.endswith(" rank")]


def list_left(lab: Lab, controller: str = "controller") -> dict[str, list[str]]:
    """Return the processes that are left on hosts with power, and at the controller."""
    names = [controller, *(name for name in lab.hosts if lab.has_power(name))]
    processes = {name: lab.processes(name) for name in names if name}
    return {name: lines for name, lines in processes.items() if lines}


class Followed:
    """A command in the background, the leader of its group as at a terminal, and what it prints."""

    def __init__(self, lab: Lab, folder: Path, argv: Sequence[str], environment: Mapping[str, str]) -> None:
        self.log = folder / f"log-{len(list(folder.iterdir()))}"
        with self.log.open("w") as file:
            self.popen = lab.popen(
                argv, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip

    @property
    def output(self) -> str:
        return self.log.read_text()

    @property
    def has_ended(self) -> bool:
        return self.popen.poll() is not None

    def wait_for(self, text: str) -> None:
        until(lambda: text in self.output or self.has_ended, text, 120)
        assert text in self.output, self.output

    def finish(self, seconds: float = 240) -> int:
        return self.popen.wait(seconds)


class Login:
    """Runs commands at the controller, mostly in a folder that the hosts share, and reads what they wrote."""

    def __init__(self, lab: Lab, folder: Path, **variables: str) -> None:
        self.lab, self.folder = lab, folder
        self.environment = {**os.environ, "COLUMNS": "160", **variables}

    def run(self, *argv: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.lab.run(argv, cwd=self.folder, env={**self.environment, **variables}, timeout=240)

    def trainscale(self, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "trainscale", *arguments, **variables)

    def begin(self, *argv: str) -> Followed:
        return Followed(self.lab, self.folder, argv, self.environment)

    def begin_ranks(self, *argv: str) -> Followed:
        """Start a command; return once two hosts have ranks."""
        run = self.begin(*argv)
        until(lambda: list_ranks(self.lab, "node1") and list_ranks(self.lab, "node2"), "ranks on both hosts", 120)
        return run

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
