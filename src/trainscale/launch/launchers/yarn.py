"""The YARN launcher: one application of Hadoop's distributed shell for the whole run. The output of its containers
cannot be read while they run, so each container calls back and serves as a leased host (leased.py).
"""

from __future__ import annotations

import base64
import os
import secrets
import shlex
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from ...cluster.hosts import HostAccess
from ...cluster.yarn import YarnClient, find_client
from ...errors import InputError, TrainscaleError
from ...spec.devices import Host
from ...spec.settings import SettingGroup
from ..callback import Caller, LauncherProcess
from .base import YarnSettings
from .callback import CALLBACK_VARIABLE, CallbackEndpoint, find_outward_address, make_callback_program
from .leased import LeasedHostsLauncher
from .yarn_application import SubmittedApplication, find_error, summarise_diagnostics

_CLIENT_CLASS = "org.apache.hadoop.yarn.applications.distributedshell.Client"
_LONGEST_MILLISECONDS = 2**31 - 1  # the client's maximum; by default it ends an application after ten minutes
_MEGABYTES_PER_DEVICE = 4096  # YARN ends a container that uses more than it requested
_RESERVED = ("jar", "appname", "queue", "num_containers", "timeout", "shell_command", "shell_script", "shell_args")
_CONTAINER_FOLDER = "."  # YARN removes it with the container


class YarnLauncher(LeasedHostsLauncher):
    name = "yarn"
    settings_type = YarnSettings
    settings: YarnSettings

    def __init__(self, access: HostAccess | None = None, settings: SettingGroup | None = None) -> None:
        super().__init__(access, settings)
        if self.access.remote_dir == HostAccess.remote_dir:
            self.access = replace(self.access, remote_dir=_CONTAINER_FOLDER)

    @cached_property
    def client(self) -> YarnClient:
        return find_client()

    @cached_property
    def submitted(self) -> SubmittedApplication:
        return SubmittedApplication(self.client, f"trainscale-{secrets.token_hex(4)}", self.nodes)

    @property
    def queue(self) -> str:
        return self.settings.queue or "default"

    @property
    def nodes(self) -> int:
        if self.access.request.nodes is None:
            raise InputError("launcher yarn: how many containers? name their number by --nodes")
        return self.access.request.nodes

    def command(self, endpoint: CallbackEndpoint) -> list[str]:
        """Return the client's command, which takes the first of options given twice."""
        jar, request = self.client.jar, self.access.request
        devices = request.devices or 1
        defaults = {
            "-jar": jar,
            "-appname": self.submitted.name,
            "-queue": self.queue,
            "-num_containers": str(self.nodes),
            "-container_memory": str(_MEGABYTES_PER_DEVICE * devices),
            "-container_vcores": str(devices * (request.cores_per_device or 1)),
            "-timeout": str(_LONGEST_MILLISECONDS),
            "-shell_command": make_container_command(endpoint, self.access),
        }
        if request.device == "cuda":
            defaults["-container_resources"] = f"yarn.io/gpu={devices}"
        try:
            extra = [option for line in self.settings.yarn for option in shlex.split(line)]
        except ValueError as error:
            raise InputError(f"yarn {'; '.join(self.settings.yarn)}: {error}") from None
        for option in extra:
            if option.startswith("-") and option.lstrip("-") in _RESERVED:
                raise InputError(f"yarn {option}: trainscale sets this option itself; valid: other options")
        overridden = {argument.lstrip("-") for argument in extra}
        options = [argument for pair in defaults.items() if pair[0][1:] not in overridden for argument in pair]
        return [self.client.yarn, "jar", jar, _CLIENT_CLASS, *extra, *options]

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        """Return the client's environment: it must print the application's id."""
        return {**os.environ, "HADOOP_ROOT_LOGGER": "INFO,console", "YARN_ROOT_LOGGER": "INFO,console"}

    def controller_address(self) -> str:
        return self.access.controller or find_outward_address(self.client.manager_hosts)

    def choose_hosts(self, callers: Sequence[Caller]) -> list[tuple[Host, Caller]]:
        """A container may use what was requested for it, whatever its machine has."""
        machines = Counter(caller.hostname for caller in callers)
        if shared := sorted(name for name, count in machines.items() if count > 1):
            print(
                f"trainscale: several containers are on {', '.join(shared)}, and share its cores; a container that"
                " requests more than half of a machine's memory has it alone: --yarn='-container_memory MB'",
                file=sys.stderr,
            )
        slots = self.access.request.devices or 1
        return [(replace(host, slots=slots), caller) for host, caller in super().choose_hosts(callers)]

    def count_hosts(self, process: LauncherProcess) -> int:
        self.submitted.check(process)
        return self.nodes

    def explain_end(self, process: LauncherProcess) -> TrainscaleError:
        self.submitted.read_output(process)
        if not self.submitted.id:
            message = f"no application was submitted to queue {self.queue!r}"
            return TrainscaleError(f"launcher yarn: {message}: {find_error(process.output)}")
        application = self.submitted.manager.read_application(self.submitted.id)
        message = f"{self.submitted.id} ended before its containers called back"
        if application is None:
            return TrainscaleError(f"launcher yarn: {message}: {find_error(process.output)}")
        summary = summarise_diagnostics(application.diagnostics)
        diagnostics = f": {summary}" if summary else ""
        return TrainscaleError(
            f"launcher yarn: {message}: {application.state}{diagnostics}"
            f"\n  what they printed: yarn logs -applicationId {self.submitted.id}"
        )

    def explain_missing(self, process: LauncherProcess) -> str:
        if not self.submitted.id:
            return f"the client has not submitted the application yet: {find_error(process.output)}"
        manager = self.submitted.manager
        application, free = manager.read_application(self.submitted.id), manager.describe_free_resources()
        if application is None:
            answer = "does not know" if manager.is_reachable() else "does not answer, so nobody knows the state of"
            return f"the ResourceManager {answer} {self.submitted.id}"
        if application.state == "RUNNING" and application.running is not None and application.running > self.nodes:
            reason = "all its containers run, but they cannot reach this machine (see --controller-address)"
        elif application.state == "RUNNING":
            running = "" if application.running is None else f"{max(0, application.running - 1)} containers run, "
            reason = f"{running}it waits for more"
        else:
            reason = "it waits for its turn, the queue or the cluster is full"
        parts = [
            f"{self.submitted.id} is {application.state} in queue {application.queue!r}: {reason}",
            *([free] if free else []),
            *([summary] if (summary := summarise_diagnostics(application.diagnostics)) else []),
        ]
        return f"{'; '.join(parts)}\n  request less (--nodes, --yarn='-container_memory MB'), or use another --queue"

    def explain_lost(self, host: str) -> str:
        return f"its container ended: yarn logs -applicationId {self.submitted.id}"

    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        self.submitted.release(process, complete)


def make_container_command(endpoint: CallbackEndpoint, access: HostAccess) -> str:
    """Return the command of a container. YARN puts it between double quotes in a script, so it is encoded. It has the
    endpoint, because variables would be in the ApplicationMaster's arguments, which everybody can read.
    """
    number, name = 'os.environ.get("YARN_SHELL_ID", "0")', 'os.environ.get("NM_HOST") or socket.gethostname()'
    program = make_callback_program(number, f"({name})")
    run = shlex.join(["exec", access.python or "python3", "-c", program])
    export = f"export {CALLBACK_VARIABLE}={shlex.quote(endpoint.variable)}"
    encoded = base64.b64encode(f"{export}\n{' && '.join([*access.setup, run])}\n".encode()).decode()
    # Set-up lines get a login shell, because ``module`` and ``conda`` are defined there.
    shell = "/bin/bash -l" if access.setup else "/bin/bash"
    return f"echo {encoded} | base64 -d > trainscale.sh && exec {shell} trainscale.sh"
