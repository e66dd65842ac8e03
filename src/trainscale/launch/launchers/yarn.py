"""The YARN launcher: one application of Hadoop's distributed shell for the whole run. The output of its containers
cannot be read while they run, so each container calls back and serves as a leased host (leased.py).
"""

from __future__ import annotations

import base64
import os
import re
import secrets
import shlex
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from ...cluster.hosts import Host, HostAccess
from ...cluster.yarn import Application, ResourceManager, YarnClient, find_client
from ...errors import InputError, TrainscaleError
from ...spec.settings import SettingGroup, setting
from ...spec.value_types import LINES, NAME
from ..connections.callback_server import Caller
from ..connections.launcher_process import LauncherProcess
from .callback import CALLBACK_VARIABLE, CallbackEndpoint, find_outward_address
from .leased import LeasedHostsLauncher, leased_host_program

_CLIENT_CLASS = "org.apache.hadoop.yarn.applications.distributedshell.Client"
_APPLICATION_ID = re.compile(r"application_\d+_\d+")
_LONGEST_MILLISECONDS = 2**31 - 1  # the client's maximum; by default it ends an application after ten minutes
_MEGABYTES_PER_DEVICE = 4096  # YARN ends a container that uses more than it requested
_END_SECONDS = 30.0  # for the ApplicationMaster to notice and report that its containers ended
_PROGRAM_SECONDS = 60.0
_STATE_SECONDS = 10.0  # between questions to the ResourceManager while an application waits
_RESERVED = ("jar", "appname", "queue", "num_containers", "timeout", "shell_command", "shell_script", "shell_args")
_COPIES_FILES = "Copy App Master jar"
_CONTAINER_FOLDER = "."  # YARN removes it with the container
# Lines of the distributed shell that do not say what went wrong.
_ROUTINE = re.compile(
    r"Application failed to complete successfully|Breaking monitoring loop|^\s*at |^\s*$|Got application"
)


@dataclass(frozen=True)
class YarnSettings(SettingGroup):
    table: ClassVar[str] = "yarn"
    title: ClassVar[str] = "YARN"

    queue: str | None = setting(NAME, "YARN queue", default_text="default")
    yarn: tuple[str, ...] = setting(
        LINES,
        "another option for YARN's distributed shell, such as '-container_memory 8192'; may be repeated",
        default=(),
        metavar="OPTION",
    )


class YarnLauncher(LeasedHostsLauncher):
    name = "yarn"
    settings_type = YarnSettings
    settings: YarnSettings

    def __init__(self, access: HostAccess | None = None, settings: SettingGroup | None = None) -> None:
        super().__init__(access, settings)
        if self.access.remote_dir == HostAccess.remote_dir:
            self.access = replace(self.access, remote_dir=_CONTAINER_FOLDER)
        self._application_name = f"trainscale-{secrets.token_hex(4)}"  # also the folder where the client puts files
        self._application_id = ""  # empty until the client has printed it
        self._has_copied = False  # whether the client has written files
        self._application: Application | None = None
        self._asked_at = 0.0

    @cached_property
    def client(self) -> YarnClient:
        return find_client()

    @property
    def queue(self) -> str:
        return self.settings.queue or "default"

    @property
    def nodes(self) -> int:
        if self.access.request.nodes is None:
            raise InputError("launcher yarn: how many containers? name their number by --nodes")
        return self.access.request.nodes

    def command(self, endpoint: CallbackEndpoint) -> list[str]:
        """Return the command of the distributed shell's client, which takes the first of options given twice."""
        jar, request = self.client.jar, self.access.request
        devices = request.devices or 1
        defaults = {
            "-jar": jar,
            "-appname": self._application_name,
            "-queue": self.queue,
            "-num_containers": str(self.nodes),
            "-container_memory": str(_MEGABYTES_PER_DEVICE * devices),
            "-container_vcores": str(devices * (request.cores_per_device or 1)),
            "-timeout": str(_LONGEST_MILLISECONDS),
            "-shell_command": container_command(endpoint, self.access),
        }
        if request.device == "cuda":
            defaults["-container_resources"] = f"yarn.io/gpu={devices}"
        extra = _split_options(self.settings.yarn)
        overridden = {argument.lstrip("-") for argument in extra}
        options = [argument for pair in defaults.items() if pair[0][1:] not in overridden for argument in pair]
        return [self.client.yarn, "jar", jar, _CLIENT_CLASS, *extra, *options]

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        """Return the client's environment: it must print the application's id. Containers get the endpoint by their
        command.
        """
        return {**os.environ, "HADOOP_ROOT_LOGGER": "INFO,console", "YARN_ROOT_LOGGER": "INFO,console"}

    def controller_address(self) -> str:
        return self.access.controller or find_outward_address(self.client.manager_hosts)

    def make_host(self, caller: Caller) -> Host:
        """A container may use what was requested for it, whatever its machine has."""
        return replace(super().make_host(caller), slots=self.access.request.devices or 1)

    def hosts(self) -> tuple[Host, ...]:
        is_first_call = not self.access.hosts
        hosts = super().hosts()
        shared = sorted(name for name, count in Counter(self.machine_names).items() if count > 1)
        if is_first_call and shared:
            print(
                f"trainscale: several containers are on {', '.join(shared)}, and share its cores; a container that"
                " requests more than half of a machine's memory has it alone: --yarn='-container_memory MB'",
                file=sys.stderr,
            )
        return hosts

    def count_hosts(self, process: LauncherProcess) -> int:
        self._read_output(process)
        if self._application_id and time.monotonic() - self._asked_at > _STATE_SECONDS:
            before, now = self._application, self._manager.application(self._application_id)
            self._application, self._asked_at = now, time.monotonic()
            if now and (before is None or before.state != now.state) and not now.has_ended:
                print(f"yarn: {self._application_id} is {now.state} in queue {now.queue}", file=sys.stderr)
        return self.nodes

    def _read_output(self, process: LauncherProcess) -> None:
        output = process.output
        if not self._application_id and (match := _APPLICATION_ID.search(output)):
            self._application_id = match[0]
        self._has_copied = self._has_copied or _COPIES_FILES in output

    @cached_property
    def _manager(self) -> ResourceManager:
        return ResourceManager(self.client)

    def explain_end(self, process: LauncherProcess) -> TrainscaleError:
        self._read_output(process)
        if not self._application_id:
            message = f"no application was submitted to queue {self.queue!r}"
            return TrainscaleError(f"launcher yarn: {message}: {_find_error(process.output)}")
        application = self._manager.application(self._application_id)
        message = f"{self._application_id} ended before its containers called back"
        if application is None:
            return TrainscaleError(f"launcher yarn: {message}: {_find_error(process.output)}")
        diagnostics = f": {application.diagnostics.splitlines()[0]}" if application.diagnostics else ""
        return TrainscaleError(
            f"launcher yarn: {message}: {application.state}{diagnostics}"
            f"\n  what they printed: yarn logs -applicationId {self._application_id}"
        )

    def explain_missing(self, process: LauncherProcess) -> str:
        if not self._application_id:
            return f"the client has not submitted the application yet: {_find_error(process.output)}"
        application, free = self._manager.application(self._application_id), self._manager.describe_free_resources()
        if application is None:
            return f"the ResourceManager does not know {self._application_id}"
        if application.state == "RUNNING":
            reason = "it waits for more containers, or they cannot reach this machine (see --controller-address)"
        else:
            reason = "it waits for its turn, the queue or the cluster is full"
        parts = [
            f"{self._application_id} is {application.state} in queue {application.queue!r}: {reason}",
            *([free] if free else []),
            *application.diagnostics.splitlines()[:1],
        ]
        return f"{'; '.join(parts)}\n  request less (--nodes, --yarn='-container_memory MB'), or use another --queue"

    def explain_lost(self, host: str) -> str:
        return f"its container ended: yarn logs -applicationId {self._application_id}"

    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        """Containers end with their connections, the application with its containers, and the client with the
        application. An application that still waits for its turn has no containers that could end, so it is killed.
        """
        self._read_output(process)
        if not process.has_ended and not (complete and process.wait(_END_SECONDS)) and self._application_id:
            _run_silently(self.client.yarn, "application", "-kill", self._application_id)
            process.wait(_END_SECONDS)
        process.stop(0.0)
        if self._has_copied or self._application_id:
            # The client copies the shell's jar and the command into the user's folder. Nobody else removes them if the
            # application was killed, or if Hadoop is older than 3.3.
            beside = Path(self.client.yarn).with_name("hadoop")
            hadoop = str(beside) if beside.exists() else "hadoop"
            _run_silently(hadoop, "fs", "-rm", "-r", "-f", "-skipTrash", self._application_name)


def _run_silently(*command: str) -> None:
    """Run a clean-up command; nobody could do anything about its failure."""
    null = subprocess.DEVNULL
    try:
        subprocess.run(command, stdin=null, stdout=null, stderr=null, timeout=_PROGRAM_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        pass


def _split_options(lines: Sequence[str]) -> list[str]:
    """Split the options that a person adds for the client, and check them."""
    try:
        options = [option for line in lines for option in shlex.split(line)]
    except ValueError as error:
        raise InputError(f"yarn {'; '.join(lines)}: {error}") from None
    for option in options:
        if option.startswith("-") and option.lstrip("-") in _RESERVED:
            raise InputError(f"yarn {option}: trainscale sets this option itself; valid: other options")
    return options


def container_command(endpoint: CallbackEndpoint, access: HostAccess) -> str:
    """Return the command of a container.

    YARN puts it between double quotes in a script, so everything that a shell would read there is encoded. The endpoint
    is part of it, because the distributed shell passes variables in the ApplicationMaster's arguments, which everybody
    can read.
    """
    program = leased_host_program(
        'int(os.environ.get("YARN_SHELL_ID", "0"))', 'os.environ.get("NM_HOST") or socket.gethostname()'
    )
    run = shlex.join(["exec", access.python or "python3", "-c", program])
    export = f"export {CALLBACK_VARIABLE}={shlex.quote(endpoint.variable)}"
    encoded = base64.b64encode(f"{export}\n{' && '.join([*access.setup, run])}\n".encode()).decode()
    # Set-up lines get a login shell, because ``module`` and ``conda`` are defined there.
    shell = "/bin/bash -l" if access.setup else "/bin/bash"
    return f"echo {encoded} | base64 -d > trainscale.sh && exec {shell} trainscale.sh"


def _find_error(output: str) -> str:
    """Return the line in which a Java program says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if not _ROUTINE.search(line)]
    for pattern in (r"Caused by: ", r"Exception\b", r"\b(ERROR|FATAL)\b"):
        matching = [line for line in lines if re.search(pattern, line)]
        if matching:
            return matching[-1].removeprefix("Caused by: ")
    return lines[-1] if lines else "its client ended without a message"
