"""Contract 6, the launcher: how keepers get onto hosts. A launcher is one small file that says with which command.

``command`` is pure, so that it can be tested to the letter. Starting, stopping and reading are the same for every
launcher that runs a command which speaks on its standard streams, and live here.
"""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path

from ..worker.job import Job

START = Path(__file__).resolve().parent.parent / "worker" / "start.py"


@dataclass(frozen=True)
class Process:
    """One rank: where, by which interpreter, to do what."""

    host: str
    python: str
    job: Job
    environment: dict[str, str]


class Launcher(ABC):
    name: str

    @abstractmethod
    def command(self, host: str) -> list[str]:
        """What starts a keeper on that host."""

    @abstractmethod
    def rank_command(self, process: Process) -> list[str]:
        """What the keeper on that host runs for a rank."""

    def start(self, processes: list[Process], deadline_seconds: float) -> list[Keeper]:
        """One keeper on every host."""
        hosts = list(dict.fromkeys(process.host for process in processes))
        keepers: list[Keeper] = []
        try:
            for host in hosts:
                here = [process for process in processes if process.host == host]
                keepers.append(Keeper(host, self.command(host), self._plan(here, deadline_seconds)))
        except BaseException:
            for keeper in keepers:
                keeper.stop()
            raise
        return keepers

    def _plan(self, processes: list[Process], deadline_seconds: float) -> str:
        return json.dumps(
            {
                "deadline_seconds": deadline_seconds,
                "processes": [
                    {
                        "rank": process.job.rank,
                        "command": self.rank_command(process),
                        "job": process.job.to_json(),
                        "environment": process.environment,
                    }
                    for process in processes
                ],
            }
        )


class Keeper:
    """A running keeper as the controller holds it. Closing its input ends it and all that it started."""

    def __init__(self, host: str, command: list[str], plan: str) -> None:
        self.host = host
        # A session of its own: Ctrl-C in the terminal reaches the controller alone, which then ends things in order.
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
        )
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.output = self._popen.stdout
        self.complaints = self._popen.stderr  # of the keeper itself, or of what was to start it
        try:
            self._popen.stdin.write(plan.encode() + b"\n")
        except BrokenPipeError:
            pass  # it ended at once: whoever reads its output sees the end

    @property
    def pid(self) -> int:
        return self._popen.pid

    def close(self) -> None:
        """Ask for the end; the keeper's last words can still be read from ``output``."""
        assert self._popen.stdin is not None
        if not self._popen.stdin.closed:
            self._popen.stdin.close()

    def stop(self, patience_seconds: float = 10.0) -> int:
        """End it and wait for it."""
        self.close()
        try:
            return self._popen.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()  # its ranks are told by the system to die with it
            return self._popen.wait()
        finally:
            self.output.close()
            self.complaints.close()
