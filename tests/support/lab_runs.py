"""Commands that run in a lab: how they are started, the trials that they finish, and what they leave running."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from processes import until

from lab import Lab

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

    def __init__(
        self, lab: Lab, folder: Path, argv: Sequence[str], environment: Mapping[str, str] | None = None
    ) -> None:
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


def begin(
    lab: Lab, folder: Path, argv: Sequence[str], environment: Mapping[str, str] | None = None
) -> tuple[subprocess.Popen[Any], Path]:
    """Start a command; return it and its log once two hosts have ranks."""
    run = Followed(lab, folder, argv, environment)
    until(lambda: list_ranks(lab, "node1") and list_ranks(lab, "node2"), "ranks on both hosts", 120)
    return run.popen, run.log
