"""The Ray launcher, for those who have a Ray cluster. The controller never imports Ray: a program (ray_client.py) that
runs on a Python which has it asks the cluster for nodes and puts an actor on each; those call back and stand by.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ...errors import InputError, TrainscaleError
from ...worker.events import decode
from ..connections.launcher_process import LauncherProcess
from .callback import CallbackEndpoint
from .leased import LeasedHostsLauncher, leased_host_program

CREW = Path(__file__).resolve().parent / "ray_client.py"
# What ray_client.py tells the program that an actor starts, which ends with the actor.
_WHICH = (
    'int(os.environ.pop("TRAINSCALE_NUMBER"))',
    "socket.gethostname()",
    'os.environ.pop("TRAINSCALE_ADDRESS")',
    "True",
)


class RayLauncher(LeasedHostsLauncher):
    name = "ray"

    @cached_property
    def python(self) -> str:
        return self.access.python or find_python()

    def command(self, call: CallbackEndpoint) -> list[str]:
        asked = self.access.request
        request = {
            "address": asked.ray_address,
            "nodes": asked.nodes,
            "device": asked.device,
            "devices": asked.devices,
            "cores": asked.cores_per_device,
            "python": self.access.python,
            "setup": self.access.setup,
            "program": leased_host_program(*_WHICH),
        }
        return [self.python, str(CREW), json.dumps(request)]

    def address(self) -> str:
        """Nothing, unless a person says it: the crew knows it better, being of Ray's cluster."""
        return self.access.controller

    def look_after(self, crew: LauncherProcess) -> int | None:
        found = [event["hosts"] for event in _events(crew, "crew")]
        return int(found[-1]) if found else None

    def why_ended(self, crew: LauncherProcess) -> TrainscaleError:
        for event in _events(crew, "error"):
            kind = InputError if event["input"] else TrainscaleError
            return kind(f"launcher ray: {event['message']}")
        words = crew.last_complaint() or "it ended without a word"
        return TrainscaleError(f"launcher ray: {self.python} {CREW.name}: {words}")

    def missing_words(self, crew: LauncherProcess) -> str:
        waits = [event["message"] for event in _events(crew, "waiting")]
        return waits[-1] if waits else "can the nodes reach this machine? see --controller-address"

    def lost_words(self, host: str) -> str:
        address = self.access.host(host).address
        lost = [event for event in _events(self._crew, "lost") if event["address"] == address]
        return lost[-1]["message"] if lost else "its actor or its node has ended: ray list actors; ray list nodes"

    def give_back(self, crew: LauncherProcess, complete: bool) -> None:
        """The actors and the placement group belong to the crew's job, and go with it."""
        crew.stop(0.0)


def find_python(environment: Mapping[str, str] = os.environ) -> str:
    """This Python if it has Ray, else the one that the program ``ray`` on the PATH runs on."""
    spec = importlib.util.find_spec("ray")
    if spec is not None and spec.origin:  # a mere folder of that name is no module
        return sys.executable
    program = shutil.which("ray", path=environment.get("PATH"))
    if program:
        with Path(program).open("rb") as file:
            first = file.readline().decode(errors="replace").strip()
        words = shlex.split(first[2:]) if first.startswith("#!") else []
        if words and "python" in Path(words[-1]).name:
            return shutil.which(words[-1], path=environment.get("PATH")) or words[-1]
    raise InputError(
        "launcher ray: neither this Python nor the PATH has Ray; valid: pip install 'trainscale[ray]', or"
        " --remote-python with the Python of the Ray cluster"
    )


def _events(crew: LauncherProcess | None, kind: str) -> list[dict[str, Any]]:
    events = map(decode, crew.said.splitlines() if crew else [])
    return [event for event in events if event is not None and event["kind"] == kind]
