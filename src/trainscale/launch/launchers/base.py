"""Contract 6, the launcher: how keepers get onto hosts. A launcher is one small file that says with which command.

``command`` is pure, so that it can be tested to the letter. Two kinds of launcher differ in who calls whom: here one
command for every host, connected by pipes; in callback.py one command for all hosts, whose keepers call back.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from ...cluster.allocation import find_allocated_hosts
from ...cluster.hosts import Host, HostAccess, HostList, read_hosts
from ...errors import InputError
from ...spec.experiment import Experiment
from ...spec.settings import SettingGroup
from ...worker.job import Job
from ..connections.keeper import KeeperConnection, PipeConnection, stop_all

START = Path(__file__).resolve().parents[2] / "worker" / "start.py"

# In a command for a keeper: its host's own copy of start.py, and the interpreter that runs the keeper itself.
ITS_START, ITS_PYTHON = "START", "PYTHON"


@dataclass(frozen=True)
class Process:
    """One rank: where, by which interpreter, to do what."""

    host: str
    python: str
    job: Job
    environment: dict[str, str]


class Launcher(ABC):
    """Made for the hosts of one run; used for all its trials."""

    name: str
    local = False  # whether "hosts" are this machine, which needs no worker carried to it

    settings_type: ClassVar[type[SettingGroup]] = SettingGroup  # a launcher's own settings; this one has none
    settings: SettingGroup
    no_hosts = "no hosts; name a file by --hosts, or run inside an allocation"  # said where there are none

    def __init__(self, access: HostAccess | None = None, settings: SettingGroup | None = None) -> None:
        self.access = access or HostAccess()
        self.settings = settings or self.settings_type()

    @classmethod
    def find_hosts(cls, experiment: Experiment, environment: Mapping[str, str]) -> HostList:
        """Return the hosts of an experiment: those of its hosts file, else those of the allocation."""
        path = experiment.cluster.hosts
        found = HostList(read_hosts(Path(path).expanduser()), path) if path else find_allocated_hosts(environment)
        if found is None:
            raise InputError(f"launcher {cls.name}: {cls.no_hosts}")
        return found

    def hosts(self) -> tuple[Host, ...]:
        """Those of the run. A launcher whose cluster chooses them asks the cluster."""
        return self.access.hosts

    @abstractmethod
    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        """Begin to start a keeper on every host, at once, without waiting for any; in the order of the hosts."""

    def rank_command(self, process: Process) -> list[str]:
        """What the keeper on that host runs for a rank."""
        return [process.python, ITS_START, "rank"]

    def close(self) -> None:  # noqa: B027 - most have nothing to give back
        """Called once, when the run is over."""


class PipeLauncher(Launcher):
    """One command for every host."""

    @abstractmethod
    def command(self, host: str) -> list[str]:
        """What starts a keeper on that host, connected to standard input and output."""

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        keepers: list[KeeperConnection] = []
        try:
            for host in hosts:
                keepers.append(PipeConnection(host, self.command(host), None if self.local else self.access.remote_dir))
        except BaseException:
            stop_all(keepers)
            raise
        return keepers


@dataclass(frozen=True)
class Task:
    """One process that a keeper shall run."""

    rank: int
    command: list[str]
    job: str = ""
    environment: dict[str, str] | None = None
    folder: str | None = None


def plan(tasks: Sequence[Task], deadline_seconds: float, silence_seconds: float | None = None) -> bytes:
    """The line that tells a keeper what to run. After ``silence_seconds`` without a word from the controller it takes
    it for dead.
    """
    entries = [
        {"rank": t.rank, "command": t.command, "job": t.job, "environment": t.environment or {}, "folder": t.folder}
        for t in tasks
    ]
    asked = {"deadline_seconds": deadline_seconds, "silence_seconds": silence_seconds, "processes": entries}
    return json.dumps(asked).encode() + b"\n"
