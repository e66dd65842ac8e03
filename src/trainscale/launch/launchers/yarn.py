"""The YARN launcher: one application of Hadoop's distributed shell for the whole run. Its containers call back
(leased.py), because their output cannot be read while they run.
"""

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
from itertools import pairwise
from pathlib import Path

from ...cluster.hosts import HostAccess
from ...cluster.yarn import END_STATES, Application, YarnClient, find_client
from ...errors import InputError, TrainscaleError
from ...spec.devices import Host
from ...spec.groups import YarnSettings
from ...spec.settings import SettingGroup
from ..callback import Caller, LauncherProcess
from .callback import CALLBACK_VARIABLE, CallbackEndpoint, find_outward_address, make_callback_program
from .leased import LeasedHostsLauncher

_CLIENT_CLASS = "org.apache.hadoop.yarn.applications.distributedshell.Client"
_LONGEST_MILLISECONDS = 2**31 - 1  # the client's maximum; its default is ten minutes
_MEGABYTES_PER_DEVICE = 4096  # YARN ends a container that uses more than it requested
_RESERVED = ("jar", "appname", "queue", "num_containers", "timeout", "shell_command", "shell_script", "shell_args")

_STATE_SECONDS = 5.0  # between questions to the ResourceManager while an application waits
_DOWN_SECONDS = 60.0  # for a ResourceManager to answer before the application is submitted
_REACH_SECONDS = 3.0  # after which it is asked whether a ResourceManager answers at all
_END_SECONDS = 30.0  # for the ApplicationMaster to notice and report that its containers ended
_PROGRAM_SECONDS = 60.0
_KILL_SECONDS = 20.0  # for `yarn application -kill` where no ResourceManager answers over HTTP


class YarnLauncher(LeasedHostsLauncher):
    name = "yarn"
    settings_type = YarnSettings
    settings: YarnSettings

    def __init__(self, access: HostAccess | None = None, settings: SettingGroup | None = None) -> None:
        super().__init__(access, settings)
        if self.access.remote_dir == HostAccess.remote_dir:
            self.access = replace(self.access, remote_dir=".")  # YARN removes it with the container
        self.queue = self.settings.queue or "default"
        self.application_name = f"trainscale-{secrets.token_hex(4)}"  # and folder of the client's files
        self.id = ""  # of the application, once the client has printed it
        self._state: Application | None = None
        self._checked_at = 0.0
        self._unreachable_since: float | None = None
        self._is_incomplete = False  # whether containers were missing at the last check
        self._has_lost_containers = False
        self._has_copied = False  # whether the client has written files

    @cached_property
    def client(self) -> YarnClient:
        return find_client()

    @property
    def nodes(self) -> int:
        if self.access.nodes is None:
            raise InputError("launcher yarn: how many containers? name their number by --nodes")
        return self.access.nodes

    # ---- the client

    def command(self, endpoint: CallbackEndpoint) -> list[str]:
        """The client takes the first of options given twice."""
        jar, access = self.client.jar, self.access
        devices = access.devices or 1
        # YARN puts the command of a container between double quotes in a script, so it is encoded.
        # It has the endpoint: variables would be in arguments that everybody can read.
        number = 'os.environ.get("YARN_SHELL_ID", "0")'
        program = make_callback_program(number, '(os.environ.get("NM_HOST") or socket.gethostname())')
        run = shlex.join(["exec", access.python or "python3", "-c", program])
        export = f"export {CALLBACK_VARIABLE}={shlex.quote(endpoint.variable)}"
        script = f"{export}\n{' && '.join([*access.setup, run])}\n"
        encoded = base64.b64encode(script.encode()).decode()
        # Set-up lines get a login shell, because ``module`` and ``conda`` are defined there.
        shell = "/bin/bash -l" if access.setup else "/bin/bash"
        defaults = {
            "-jar": jar,
            "-appname": self.application_name,
            "-queue": self.queue,
            "-num_containers": str(self.nodes),
            "-container_memory": str(_MEGABYTES_PER_DEVICE * devices),
            "-container_vcores": str(devices * (access.cores_per_device or 1)),
            "-timeout": str(_LONGEST_MILLISECONDS),
            "-shell_command": f"echo {encoded} | base64 -d > trainscale.sh && exec {shell} trainscale.sh",
        }
        if access.device == "cuda":
            defaults["-container_resources"] = f"yarn.io/gpu={devices}"
        try:
            extra = [option for line in self.settings.yarn for option in shlex.split(line)]
        except ValueError as error:
            raise InputError(f"yarn {'; '.join(self.settings.yarn)}: {error}") from None
        for option in extra:
            if option.startswith("-") and option.lstrip("-") in _RESERVED:
                raise InputError(f"yarn {option}: trainscale sets this option itself; valid: other options")
        overridden = {argument.lstrip("-") for argument in extra}
        argv = [self.client.yarn, "jar", jar, _CLIENT_CLASS, *extra]
        for name, value in defaults.items():
            argv += [] if name[1:] in overridden else [name, value]
        return argv

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        """Return the client's environment: it must print the application's id."""
        return {**os.environ, "HADOOP_ROOT_LOGGER": "INFO,console", "YARN_ROOT_LOGGER": "INFO,console"}

    def controller_address(self) -> str:
        hosts = [url.partition("://")[2].rpartition(":")[0] for url in self.client.managers]
        return self.access.controller or find_outward_address(hosts)

    def read_output(self, process: LauncherProcess) -> None:
        """Read the application's id, and print what containers get less than requested."""
        output = process.output
        self._has_copied = self._has_copied or "Copy App Master jar" in output
        match = re.search(r"application_\d+_\d+", output)
        if self.id or match is None:
            return
        self.id = match[0]
        for name, most in _MAXIMUM.findall(output):  # which the client prints before the id
            option = "container_memory" if name == "mem" else "container_vcores"
            values = [value for key, value in pairwise(process.command) if key.lstrip("-") == option]
            is_number = values and re.fullmatch(r"\d{1,18}", values[0])
            if is_number and int(values[0]) > int(most):
                limit = f"a container gets {most} {_UNITS[option]}, not {values[0]}"
                _print(f"{limit}: this is the cluster's maximum")

    # ---- waiting for the containers

    def count_hosts(self, process: LauncherProcess) -> int:
        """Print the state when it changes. Raise TrainscaleError if containers have ended."""
        self.read_output(process)
        if time.monotonic() - self._checked_at <= _STATE_SECONDS:
            return self.nodes
        self._checked_at = time.monotonic()
        if not self.id:
            # Report a ResourceManager that is down, and after a while give up.
            retries = _RETRYING.findall(process.output)
            if not retries or self.client.is_reachable():
                self._unreachable_since = None
                return self.nodes
            server, count = retries[-1]
            where, tries = ", ".join(self.client.managers), f"({server}, tried {int(count) + 1} times)"
            if self._unreachable_since is None:
                self._unreachable_since = time.monotonic()
                _print(f"no ResourceManager answers at {where}; the client tries again {tries}")
            elif time.monotonic() - self._unreachable_since > _DOWN_SECONDS:
                raise TrainscaleError(
                    f"launcher yarn: no ResourceManager answers at {where}, nor to the client {tries}"
                    "\n  is it running? the address is that of yarn-site.xml in HADOOP_CONF_DIR"
                )
            return self.nodes
        before, now = self._state, self.client.read_application(self.id)
        self._state = now
        if now is None or now.state in END_STATES:
            return self.nodes
        if before is None or before.state != now.state:
            _print(f"{self.id} is {now.state} in queue {now.queue}")
        # The distributed shell starts no other container for one that ended with an error.
        alive = self.nodes if now.running is None else max(0, now.running - 1)  # without its master
        is_incomplete = now.state == "RUNNING" and alive < self.nodes
        is_incomplete = is_incomplete and self.client.count_pending_containers() == 0
        # At first, containers may not have been requested yet.
        if is_incomplete and self._is_incomplete:
            self._has_lost_containers = True
            lost = f"{self.nodes - alive} of {self.nodes} containers of {self.id}"
            raise self._make_error(f"{lost} ended before they called back")
        self._is_incomplete = is_incomplete
        return self.nodes

    def choose_hosts(self, callers: Sequence[Caller]) -> list[tuple[Host, Caller]]:
        """A container may use what was requested for it, whatever its machine has."""
        machines = Counter(caller.hostname for caller in callers)
        if shared := sorted(name for name, count in machines.items() if count > 1):
            print(
                f"trainscale: several containers are on {', '.join(shared)}, and share its cores;"
                " a container that requests more than half of a machine's memory has it alone:"
                " --yarn='-container_memory MB'",
                file=sys.stderr,
            )
        slots = self.access.devices or 1
        return [(replace(host, slots=slots), caller) for host, caller in super().choose_hosts(callers)]

    # ---- what went wrong

    @property
    def _logs_command(self) -> str:
        return f"yarn logs -applicationId {self.id}"

    def _make_error(self, message: str) -> TrainscaleError:
        return TrainscaleError(f"launcher yarn: {message}\n  what they printed: {self._logs_command}")

    def explain_end(self, process: LauncherProcess) -> TrainscaleError:
        self.read_output(process)
        message = f"{self.id} ended before its containers called back"
        if not self.id:
            message = f"no application was submitted to queue {self.queue!r}"
        application = self.client.read_application(self.id) if self.id else None
        if application is None:
            return TrainscaleError(f"launcher yarn: {message}: {find_error(process.output)}")
        states = filter(None, (application.state, summarise_diagnostics(application.diagnostics)))
        return self._make_error(f"{message}: {': '.join(states)}")

    def explain_missing(self, process: LauncherProcess) -> str:
        if not self.id:
            return f"the client has not submitted the application yet: {find_error(process.output)}"
        application = self.client.read_application(self.id)
        free = self.client.describe_free_resources()
        if application is None:
            answer = "does not answer, so nobody knows the state of"
            if self.client.is_reachable():
                answer = "does not know"
            return f"the ResourceManager {answer} {self.id}"
        running = application.running
        reason = "it waits for its turn, the queue or the cluster is full"
        if application.state == "RUNNING" and running is not None and running > self.nodes:
            reason = "all its containers run, but they cannot reach this machine (see --controller-address)"
        elif application.state == "RUNNING":
            count = "" if running is None else f"{max(0, running - 1)} containers run, "
            reason = f"{count}it waits for more"
        state = f"{self.id} is {application.state} in queue {application.queue!r}: {reason}"
        parts = filter(None, (state, free, summarise_diagnostics(application.diagnostics)))
        advice = "request less (--nodes, --yarn='-container_memory MB'), or use another --queue"
        return f"{'; '.join(parts)}\n  {advice}"

    def explain_lost(self, host: str) -> str:
        return f"its container ended: {self._logs_command}"

    # ---- the end

    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        """Wait for the client to end with its containers, or kill the application."""
        self.read_output(process)
        has_ended = process.has_ended
        if not has_ended and (complete or self._has_lost_containers):
            has_ended = process.wait(_REACH_SECONDS)
            if not has_ended and self.client.is_reachable():
                _print(f"waiting for {self.id} to end")
                has_ended = process.wait(_END_SECONDS)
        if not self.id:
            # It may have been accepted before the client could print its id.
            process.stop(0.0)
            self.id = self.client.find_application(self.application_name, by_program=self._has_copied)
            has_ended = False
        if not has_ended and self.id:
            limit = _PROGRAM_SECONDS
            if not self.client.is_reachable():
                limit = _KILL_SECONDS
                attempt = f"trying for {limit:.0f} s to end {self.id}"
                _print(f"no ResourceManager answers over HTTP; {attempt}")
            if _try_command(limit, self.client.yarn, "application", "-kill", self.id):
                process.wait(_END_SECONDS)
            else:
                _print(
                    f"{self.id} could not be ended, and its ApplicationMaster may live until"
                    " the ResourceManager is back;"
                    " its containers have ended, or end within two minutes"
                    f"\n  to end it then: yarn application -kill {self.id}"
                )
        process.stop(0.0)
        application = self.client.read_application(self.id) if self._has_lost_containers else None
        if application and (summary := summarise_diagnostics(application.diagnostics)):
            _print(f"{self.id} is {application.state}: {summary}")
        if self._has_copied or self.id:
            # The client's files, which nobody else removes after a kill, or in Hadoop before 3.3.
            beside = Path(self.client.yarn).with_name("hadoop")
            hadoop = str(beside) if beside.exists() else "hadoop"
            remove = ("fs", "-rm", "-r", "-f", "-skipTrash", self.application_name)
            _try_command(_KILL_SECONDS, hadoop, *remove)


def _print(text: str) -> None:
    print(f"yarn: {text}", file=sys.stderr)


def _try_command(seconds: float, *command: str) -> bool:
    """Return whether the command succeeded within this time."""
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=null, stdout=null, stderr=null, timeout=seconds)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


# ---- what Hadoop's programs print

_RETRYING = re.compile(r"Retrying connect to server: (\S+?)[.]? Already tried (\d{1,9}) time")
# What a container gets at most. The spelling of the word differs between versions.
_MAXIMUM = re.compile(r"Max (mem|virtual cores|vcores) capabil\w+ of resources in this cluster (\d{1,18})(?!\d)")
_UNITS = {"container_memory": "MB of memory", "container_vcores": "cores"}
# Lines of the distributed shell that do not say what went wrong.
_ROUTINE = re.compile(
    r"Application failed to complete successfully|Breaking monitoring loop|^\s*at |^\s*$|Got application"
)
# Lines of diagnostics that are the same whatever went wrong.
_BOILERPLATE = re.compile(
    r"^\s*$|Exception from container-launch|^Container id:|^Exit code:|^Shell (output|error output):|^Last \d+ bytes of"
    r"|^For more detailed output|Failing this attempt|Failing the application|^Stack trace|^\s*at "
    r"|^(\[[^\]]*\])?Container exited with a non-zero exit code"
)
_EXIT_CODE = re.compile(r"exited with a non-zero exit code -?\d+")
_MOST_LINES, _LONGEST_LINE = 3, 300


def find_error(output: str) -> str:
    """Return the line in which a Java program says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if not _ROUTINE.search(line)]
    for pattern in (r"Caused by: ", r"Exception\b", r"\b(ERROR|FATAL)\b"):
        matching = [line for line in lines if re.search(pattern, line)]
        if matching:
            return matching[-1].removeprefix("Caused by: ")
    return lines[-1] if lines else "its client ended without a message"


def summarise_diagnostics(text: str) -> str:
    """Return the lines that say what went wrong: the first, and the last ones."""
    useful = [line.strip() for line in text.splitlines() if not _BOILERPLATE.search(line)]
    lines = list(dict.fromkeys(line[:_LONGEST_LINE] for line in useful))
    if not lines:
        match = _EXIT_CODE.search(text)
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        return f"a container {match[0]}" if match else first[:_LONGEST_LINE]
    return "; ".join([lines[0], *lines[1:][-(_MOST_LINES - 1) :]])
