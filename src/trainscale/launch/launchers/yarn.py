"""The YARN launcher: one application of Hadoop's distributed shell for the whole run. Its containers have no output
that could be read while they run, so each calls back and stands by (standing.py).
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
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from ...cluster.hosts import Host, HostAccess
from ...cluster.yarn import Application, Client, ResourceManager, find_client
from ...errors import InputError, TrainscaleError
from ..connections.callback_server import Caller
from ..connections.launcher_process import LauncherProcess
from .callback import CALLBACK_VARIABLE, CallbackEndpoint, find_outward_address
from .leased import LeasedHostsLauncher, leased_host_program

_CLIENT = "org.apache.hadoop.yarn.applications.distributedshell.Client"
_ID = re.compile(r"application_\d+_\d+")
_FOR_EVER = 2**31 - 1  # ms. The client ends an application after ten minutes unless told otherwise; this is its most.
_MEMORY_PER_DEVICE = 4096  # MB; a container that takes more than it asked for is ended
_MASTER_SECONDS = 30.0  # for the ApplicationMaster to see the ends of its containers, and to say so
_KILL_SECONDS = 60.0
_LOOK_SECONDS = 10.0  # between questions to the ResourceManager while an application waits
_OURS = ("jar", "appname", "queue", "num_containers", "timeout", "shell_command", "shell_script", "shell_args")
_COPIED = "Copy App Master jar"
_OWN_FOLDER = "."  # a container's, which YARN removes
# What the distributed shell says that is not news.
_ROUTINE = re.compile(
    r"Application failed to complete successfully|Breaking monitoring loop|^\s*at |^\s*$|Got application"
)


class YarnLauncher(LeasedHostsLauncher):
    name = "yarn"

    def __init__(self, where: HostAccess | None = None) -> None:
        super().__init__(where)
        if self.access.remote_dir == HostAccess.remote_dir:
            self.access = replace(self.access, remote_dir=_OWN_FOLDER)
        self._folder = f"trainscale-{secrets.token_hex(4)}"  # also the application's name
        self._application = ""  # its id, once the client has said it
        self._copied = False  # whether the client has written files
        self._state: Application | None = None
        self._looked = 0.0

    @cached_property
    def client(self) -> Client:
        return find_client()

    @property
    def nodes(self) -> int:
        if self.access.request.nodes is None:
            raise InputError("launcher yarn: how many containers? name their number by --nodes")
        return self.access.request.nodes

    def command(self, call: CallbackEndpoint) -> list[str]:
        """The distributed shell's client. Of an option that is there twice it takes the first."""
        jar, asked = self.client.jar, self.access.request
        devices = asked.devices or 1
        ours = {
            "-jar": jar,
            "-appname": self._folder,
            "-queue": asked.queue,
            "-num_containers": str(self.nodes),
            "-container_memory": str(_MEMORY_PER_DEVICE * devices),
            "-container_vcores": str(devices * (asked.cores_per_device or 1)),
            "-timeout": str(_FOR_EVER),
            "-shell_command": container_command(call, self.access),
        }
        if asked.device == "cuda":
            ours["-container_resources"] = f"yarn.io/gpu={devices}"
        theirs = _options(asked.yarn)
        given = {word.lstrip("-") for word in theirs}
        kept = [word for option, value in ours.items() if option[1:] not in given for word in (option, value)]
        return [self.client.yarn, "jar", jar, _CLIENT, *theirs, *kept]

    def environment(self, call: CallbackEndpoint) -> dict[str, str]:
        """Without the call, which the containers get by their command. The client must say the application's id."""
        said = {"HADOOP_ROOT_LOGGER": "INFO,console", "YARN_ROOT_LOGGER": "INFO,console"}
        return {**os.environ, **said}

    def address(self) -> str:
        return self.access.controller or find_outward_address(self.client.manager_hosts)

    def host(self, caller: Caller) -> Host:
        """What the container may use is what was asked for, whatever its machine has."""
        return replace(super().host(caller), slots=self.access.request.devices or 1)

    def hosts(self) -> tuple[Host, ...]:
        first = not self.access.hosts
        found = super().hosts()
        shared = sorted(name for name, count in Counter(self.machines).items() if count > 1)
        if first and shared:
            print(
                f"trainscale: several containers are on {', '.join(shared)}, and share its cores;"
                " one that asks for more than half of a machine's memory has it alone: --yarn='-container_memory MB'",
                file=sys.stderr,
            )
        return found

    # While the application comes and goes

    def look_after(self, crew: LauncherProcess) -> int:
        self._read(crew.said)
        if self._application and time.monotonic() - self._looked > _LOOK_SECONDS:
            before, self._state = self._state, self._manager.application(self._application)
            self._looked = time.monotonic()
            if self._state and (before is None or before.state != self._state.state) and not self._state.ended:
                print(f"yarn: {self._application} is {self._state.state} in queue {self._state.queue}", file=sys.stderr)
        return self.nodes

    def _read(self, said: str) -> None:
        if not self._application and (found := _ID.search(said)):
            self._application = found[0]
        self._copied = self._copied or _COPIED in said

    @cached_property
    def _manager(self) -> ResourceManager:
        return ResourceManager(self.client)

    def why_ended(self, crew: LauncherProcess) -> TrainscaleError:
        self._read(crew.said)
        if not self._application:
            queue = self.access.request.queue
            words = f"no application was submitted to queue {queue!r}: {_complaint(crew.said)}"
            return TrainscaleError(f"launcher yarn: {words}")
        state = self._manager.application(self._application)
        words = f"{self._application} ended before its containers called back"
        if state is None:
            return TrainscaleError(f"launcher yarn: {words}: {_complaint(crew.said)}")
        words += f": {state.state}{f': {state.diagnostics.splitlines()[0]}' if state.diagnostics else ''}"
        return TrainscaleError(
            f"launcher yarn: {words}\n  what they printed: yarn logs -applicationId {self._application}"
        )

    def missing_words(self, crew: LauncherProcess) -> str:
        if not self._application:
            return f"the client has not submitted the application yet: {_complaint(crew.said)}"
        state, room = self._manager.application(self._application), self._manager.room()
        if state is None:
            return f"the ResourceManager does not know {self._application}"
        words = f"{self._application} is {state.state} in queue {state.queue!r}"
        if state.state != "RUNNING":
            words += ": it waits for its turn, the queue or the cluster is full"
        else:
            words += ": it waits for more containers, or they cannot reach this machine (see --controller-address)"
        words += f"; {room}" if room else ""
        words += f"; {state.diagnostics.splitlines()[0]}" if state.diagnostics else ""
        return f"{words}\n  ask for less (--nodes, --yarn='-container_memory MB'), or in another --queue"

    def lost_words(self, host: str) -> str:
        return f"its container ended: yarn logs -applicationId {self._application}"

    def give_back(self, crew: LauncherProcess, complete: bool) -> None:
        """Containers end with their lines, the application with its containers, the client with the application. One
        that still waits for its turn has no containers that could end: it is killed.
        """
        self._read(crew.said)
        if not crew.ended and not (complete and _wait_for_end(crew, _MASTER_SECONDS)) and self._application:
            self._run(self.client.yarn, "application", "-kill", self._application)
            _wait_for_end(crew, _MASTER_SECONDS)
        crew.stop(0.0)
        if self._copied or self._application:
            # The client copies the shell's jar and the command into the user's folder. Where the application was
            # killed, or Hadoop is older than 3.3, nobody else removes them.
            beside = Path(self.client.yarn).with_name("hadoop")
            hadoop = str(beside) if beside.exists() else "hadoop"
            self._run(hadoop, "fs", "-rm", "-r", "-f", "-skipTrash", self._folder)

    def _run(self, *command: str) -> None:
        try:
            subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=_KILL_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            pass  # there is nobody left to tell it to


def _options(lines: Sequence[str]) -> list[str]:
    """What a person adds to the client's options."""
    try:
        words = [word for line in lines for word in shlex.split(line)]
    except ValueError as error:
        raise InputError(f"yarn {'; '.join(lines)}: {error}") from None
    for word in words:
        if word.startswith("-") and word.lstrip("-") in _OURS:
            raise InputError(f"yarn {word}: trainscale gives this one itself; valid: other options")
    return words


def container_command(call: CallbackEndpoint, where: HostAccess) -> str:
    """What a container runs. YARN puts it between double quotes in a script, so it must not have any, nor what a shell
    reads inside them: all that could is wrapped. The call goes this way because the distributed shell's own way is by
    the ApplicationMaster's arguments, unquoted, for everybody to read.
    """
    program = leased_host_program(
        'int(os.environ.get("YARN_SHELL_ID", "0"))', 'os.environ.get("NM_HOST") or socket.gethostname()'
    )
    run = shlex.join(["exec", where.python or "python3", "-c", program])
    script = f"export {CALLBACK_VARIABLE}={shlex.quote(call.variable)}\n" + " && ".join([*where.setup, run]) + "\n"
    wrapped = base64.b64encode(script.encode()).decode()
    # Set-up lines get a login shell, because that is where ``module`` and ``conda`` are known.
    shell = "/bin/bash -l" if where.setup else "/bin/bash"
    return f"echo {wrapped} | base64 -d > trainscale.sh && exec {shell} trainscale.sh"


def _wait_for_end(crew: LauncherProcess, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not crew.ended and time.monotonic() < until:
        time.sleep(0.1)
    return crew.ended


def _complaint(said: str) -> str:
    """The line in which a Java program says what went wrong, among all others that it prints."""
    lines = [line.strip() for line in said.splitlines() if not _ROUTINE.search(line)]
    for mark in (r"Caused by: ", r"Exception\b", r"\b(ERROR|FATAL)\b"):
        found = [line for line in lines if re.search(mark, line)]
        if found:
            return found[-1].removeprefix("Caused by: ")
    return lines[-1] if lines else "its client ended without a word"
