"""The application of a run on YARN: follows its state while its containers are awaited, reads what Hadoop's programs
print about it, and ends it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from functools import cached_property
from itertools import pairwise
from pathlib import Path

from ...cluster.yarn import Application, ResourceManager, YarnClient
from ...errors import TrainscaleError
from ..callback import LauncherProcess

_APPLICATION_ID = re.compile(r"application_\d+_\d+")
_COPIES_FILES = "Copy App Master jar"
_RETRYING = re.compile(r"Retrying connect to server: (\S+?)[.]? Already tried (\d{1,9}) time")
# What a container gets at most. The spelling of the word differs between versions.
_MAXIMUM = re.compile(r"Max (mem|virtual cores|vcores) capabil\w+ of resources in this cluster (\d{1,18})(?!\d)")
_UNITS = {"container_memory": "MB of memory", "container_vcores": "cores"}
_STATE_SECONDS = 5.0  # between questions to the ResourceManager while an application waits
_DOWN_SECONDS = 60.0  # for a ResourceManager to answer before the application is submitted
_REACH_SECONDS = 3.0  # after which it is asked whether a ResourceManager answers at all
_END_SECONDS = 30.0  # for the ApplicationMaster to notice and report that its containers ended
_PROGRAM_SECONDS = 60.0
_KILL_SECONDS = 20.0  # for `yarn application -kill` where no ResourceManager answers over HTTP
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


class SubmittedApplication:
    """``name`` is also the folder of the client's files. ``id`` is empty until the client has printed it."""

    def __init__(self, client: YarnClient, name: str, containers: int) -> None:
        self.name = name
        self.id = ""
        self._client, self._containers = client, containers
        self._state: Application | None = None
        self._checked_at = 0.0
        self._unreachable_since: float | None = None
        self._has_copied = False  # whether the client has written files
        self._incomplete_since: float | None = None  # since when there are too few containers
        self._has_lost_containers = False
        self._printed: set[str] = set()  # what containers get less of than requested

    @cached_property
    def manager(self) -> ResourceManager:
        return ResourceManager(self._client)

    def check(self, process: LauncherProcess) -> None:
        """Print the state when it changes. Raise TrainscaleError if containers have ended."""
        self.read_output(process)
        if time.monotonic() - self._checked_at <= _STATE_SECONDS:
            return
        self._checked_at = time.monotonic()
        if not self.id:
            self._check_manager(process)
            return
        before, now = self._state, self.manager.read_application(self.id)
        self._state = now
        if now is None or now.has_ended:
            return
        if before is None or before.state != now.state:
            _print(f"{self.id} is {now.state} in queue {now.queue}")
        # The distributed shell starts no other container for one that ended with an error.
        alive = None if now.running is None else max(0, now.running - 1)  # without the ApplicationMaster
        is_incomplete = now.state == "RUNNING" and alive is not None and alive < self._containers
        if not is_incomplete or self.manager.count_pending_containers() != 0:
            self._incomplete_since = None
        elif self._incomplete_since is None:
            self._incomplete_since = time.monotonic()  # perhaps not requested yet
        else:
            self._has_lost_containers = True
            raise TrainscaleError(
                f"launcher yarn: {self._containers - (alive or 0)} of {self._containers} containers of {self.id} ended"
                f" before they called back\n  what they printed: yarn logs -applicationId {self.id}"
            )

    def _check_manager(self, process: LauncherProcess) -> None:
        """Report a ResourceManager that is down; raise TrainscaleError if that lasts. The client tries for hours."""
        retries = _RETRYING.findall(process.output)
        if not retries or self.manager.is_reachable():
            self._unreachable_since = None
            return
        server, count = retries[-1]
        where, tries = ", ".join(self._client.managers), f"({server}, tried {int(count) + 1} times)"
        if self._unreachable_since is None:
            self._unreachable_since = time.monotonic()
            _print(f"no ResourceManager answers at {where}; the client tries again {tries}")
        elif time.monotonic() - self._unreachable_since > _DOWN_SECONDS:
            raise TrainscaleError(
                f"launcher yarn: no ResourceManager answers at {where}, nor to the client {tries}"
                "\n  is it running? the address is that of yarn-site.xml in HADOOP_CONF_DIR"
            )

    def read_output(self, process: LauncherProcess) -> None:
        """Read the application's id, and print of what containers get less than was requested."""
        output, command = process.output, process.command
        if not self.id and (match := _APPLICATION_ID.search(output)):
            self.id = match[0]
        self._has_copied = self._has_copied or _COPIES_FILES in output
        for name, most in _MAXIMUM.findall(output):
            option = "container_memory" if name == "mem" else "container_vcores"
            requested = [value for key, value in pairwise(command) if key.lstrip("-") == option]
            if option not in self._printed and requested and _exceeds(requested[0], int(most)):
                self._printed.add(option)
                _print(f"a container gets {most} {_UNITS[option]}, not {requested[0]}: this is the cluster's maximum")

    def release(self, process: LauncherProcess, complete: bool) -> None:
        """Wait for the client: it ends with the application, that with its containers, and they with their connections.
        An application that waits for its turn has no containers yet: it is killed.
        """
        self.read_output(process)
        has_ended = process.has_ended
        if not has_ended and (complete or self._has_lost_containers):
            has_ended = process.wait(_REACH_SECONDS)
            if not has_ended and self.manager.is_reachable():
                _print(f"waiting for {self.id} to end")
                has_ended = process.wait(_END_SECONDS)
        if not self.id:
            # It may have been accepted before the client could print its id.
            process.stop(0.0)
            self.id = self.manager.find_application(self.name, by_program=self._has_copied)
            has_ended = False
        if not has_ended and self.id:
            limit = _PROGRAM_SECONDS
            if not self.manager.is_reachable():
                limit = _KILL_SECONDS
                _print(f"no ResourceManager answers over HTTP; trying for {limit:.0f} s to end {self.id}")
            if _try_command(limit, self._client.yarn, "application", "-kill", self.id):
                process.wait(_END_SECONDS)
            else:
                _print(
                    f"{self.id} could not be ended, and its ApplicationMaster may live until the ResourceManager is"
                    f" back; its containers have ended, or end within two minutes\n  to end it then:"
                    f" yarn application -kill {self.id}"
                )
        process.stop(0.0)
        application = self.manager.read_application(self.id) if self._has_lost_containers else None
        if application and (summary := summarise_diagnostics(application.diagnostics)):
            _print(f"{self.id} is {application.state}: {summary}")
        if self._has_copied or self.id:
            # The client copies the shell's jar and the command into the user's folder. Nobody else removes them if the
            # application was killed, or if Hadoop is older than 3.3.
            beside = Path(self._client.yarn).with_name("hadoop")
            hadoop = str(beside) if beside.exists() else "hadoop"
            _try_command(_KILL_SECONDS, hadoop, "fs", "-rm", "-r", "-f", "-skipTrash", self.name)


def _exceeds(requested: str, most: int) -> bool:
    return re.fullmatch(r"\d{1,18}", requested) is not None and int(requested) > most


def _print(text: str) -> None:
    print(f"yarn: {text}", file=sys.stderr)


def _try_command(seconds: float, *command: str) -> bool:
    """Run a clean-up command for at most this long; return whether it succeeded."""
    null = subprocess.DEVNULL
    try:
        done = subprocess.run(command, stdin=null, stdout=null, stderr=null, timeout=seconds, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


# ---- what Hadoop's programs print


def find_error(output: str) -> str:
    """Return the line in which a Java program says what went wrong."""
    lines = [line.strip() for line in output.splitlines() if not _ROUTINE.search(line)]
    for pattern in (r"Caused by: ", r"Exception\b", r"\b(ERROR|FATAL)\b"):
        matching = [line for line in lines if re.search(pattern, line)]
        if matching:
            return matching[-1].removeprefix("Caused by: ")
    return lines[-1] if lines else "its client ended without a message"


def summarise_diagnostics(text: str) -> str:
    """Return the lines of diagnostics that say what went wrong: the first, and the last ones."""
    lines = [line.strip()[:_LONGEST_LINE] for line in text.splitlines() if not _BOILERPLATE.search(line)]
    lines = list(dict.fromkeys(lines))
    if not lines:
        match = _EXIT_CODE.search(text)
        first = next((line.strip() for line in text.splitlines() if line.strip()), "")
        return f"a container {match[0]}" if match else first[:_LONGEST_LINE]
    return "; ".join([lines[0], *lines[1:][-(_MOST_LINES - 1) :]])
