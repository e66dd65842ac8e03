"""The Ray launcher. The controller never imports Ray: ray_client.py, run by a Python that has it, starts actors,
which serve as leased hosts (leased.py).
"""

import json
import shlex
import shutil
import sys
from functools import cached_property
from pathlib import Path

from ...errors import InputError, TrainscaleError
from ...spec.groups import RaySettings
from ...worker.events import RayReport
from ..callback import LauncherProcess
from ..connection import decode_line, find_last_line
from ..hosts import is_installed
from .callback import CallbackEndpoint, make_callback_program
from .leased import LeasedHostsLauncher

CLIENT = Path(__file__).resolve().parent / "ray_client.py"
# ray_client.py sets the variables.
_NUMBER, _ADDRESS = 'os.environ.pop("TRAINSCALE_NUMBER")', 'os.environ.pop("TRAINSCALE_ADDRESS")'


class RayLauncher(LeasedHostsLauncher):
    name = "ray"
    settings_type = RaySettings
    settings: RaySettings

    @cached_property
    def python(self) -> str:
        """The named Python, or this one if it has Ray, else that of ``ray`` on the PATH."""
        if self.access.python or is_installed("ray"):
            return self.access.python or sys.executable
        if program := shutil.which("ray"):
            with Path(program).open("rb") as file:
                first_line = file.readline().decode(errors="replace").strip()
            command = shlex.split(first_line[2:]) if first_line.startswith("#!") else []
            if command and "python" in Path(command[-1]).name:
                return shutil.which(command[-1]) or command[-1]
        raise InputError(
            "launcher ray: neither this Python nor the PATH has Ray; valid: pip install 'trainscale[ray]', or"
            " --remote-python with the Python of the Ray cluster"
        )

    def command(self, endpoint: CallbackEndpoint) -> list[str]:
        access = self.access
        arguments = {
            "address": self.settings.ray_address or "",
            "nodes": access.nodes,
            "device": access.device,
            "devices": access.devices,
            "cores": access.cores_per_device,
            "python": access.python,
            "setup": access.setup,
            "program": make_callback_program(_NUMBER, address=_ADDRESS),
        }
        return [self.python, str(CLIENT), json.dumps(arguments)]

    def controller_address(self) -> str:
        """Return what a person gave; else the client in Ray's cluster finds it."""
        return self.access.controller

    def count_hosts(self, process: LauncherProcess) -> int | None:
        """A node that is lost while hosts are awaited will not call."""
        counts = []
        for report in _read_reports(process):
            if report.lost_address:
                raise TrainscaleError(
                    f"launcher ray: the node {report.lost_address} was lost at the start: {report.lost}"
                )
            counts += [report.nodes] if report.nodes is not None else []
        return counts[-1] if counts else None

    def explain_end(self, process: LauncherProcess) -> TrainscaleError:
        for report in _read_reports(process):
            if report.error:
                kind = InputError if report.is_input_error else TrainscaleError
                return kind(f"launcher ray: {report.error}")
        message = find_last_line(process.output) or "it ended without a message"
        return TrainscaleError(f"launcher ray: {self.python} {CLIENT.name}: {message}")

    def explain_missing(self, process: LauncherProcess) -> str:
        messages = ["can the nodes reach this machine? see --controller-address"]
        messages += [report.waiting for report in _read_reports(process) if report.waiting]
        return messages[-1]

    def explain_lost(self, host: str) -> str:
        address = self.access.find_host(host).address
        messages = ["its actor or its node has ended: ray list actors; ray list nodes"]
        reports = _read_reports(self._process)
        messages += [report.lost for report in reports if report.lost_address == address]
        return messages[-1]

    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        """The actors and the placement group belong to the client's job, and end with it."""
        process.stop(0.0)


def _read_reports(process: LauncherProcess | None) -> list[RayReport]:
    """Return all reports that the client has printed."""
    received = [decode_line(line) for line in process.output.splitlines()] if process else []
    return [line.event for line in received if line is not None and isinstance(line.event, RayReport)]
