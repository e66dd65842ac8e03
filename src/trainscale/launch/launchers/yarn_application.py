"""The application of a run on YARN: follows its state while its containers are awaited, and ends it."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from functools import cached_property
from pathlib import Path

from ...cluster.yarn import Application, ResourceManager, YarnClient
from ...errors import TrainscaleError
from ..callback import LauncherProcess
from .yarn_output import find_caps, find_retries, summarise_diagnostics

_APPLICATION_ID = re.compile(r"application_\d+_\d+")
_COPIES_FILES = "Copy App Master jar"
_STATE_SECONDS = 5.0  # between questions to the ResourceManager while an application waits
_DOWN_SECONDS = 60.0  # for a ResourceManager that does not answer to come back before the application is submitted
_REACH_SECONDS = 3.0  # after which it is asked whether a ResourceManager answers at all
_END_SECONDS = 30.0  # for the ApplicationMaster to notice and report that its containers ended
_PROGRAM_SECONDS = 60.0
_KILL_SECONDS = 20.0  # for `yarn application -kill` where no ResourceManager answers over HTTP


class SubmittedApplication:
    """``name`` is also the folder where the client puts files. ``id`` is empty until the client has printed it."""

    def __init__(self, client: YarnClient, name: str, containers: int) -> None:
        self.name = name
        self.id = ""
        self.argv: list[str] = []  # the client's command
        self._client, self._containers = client, containers
        self._state: Application | None = None
        self._checked_at = 0.0
        self._has_copied = False  # whether the client has written files
        self._unreachable_since: float | None = None
        self._incomplete_since: float | None = None  # since when there are too few containers
        self._has_lost_containers = False
        self._caps: list[str] = []  # sentences that were printed

    @cached_property
    def manager(self) -> ResourceManager:
        return ResourceManager(self._client)

    def check(self, process: LauncherProcess) -> None:
        """Print what has changed. Raise TrainscaleError if the containers cannot be expected any more."""
        self.read_output(process)
        if time.monotonic() - self._checked_at > _STATE_SECONDS:
            if self.id:
                self._check_application()
            else:
                self._check_manager(process)
            self._checked_at = time.monotonic()

    def _check_application(self) -> None:
        """Print the state of the application when it changes. Raise TrainscaleError if its containers end."""
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
            self._incomplete_since = time.monotonic()  # the ApplicationMaster may not have requested them yet
        else:
            self._has_lost_containers = True
            raise TrainscaleError(
                f"launcher yarn: {self._containers - (alive or 0)} of {self._containers} containers of {self.id} ended"
                f" before they called back\n  what they printed: yarn logs -applicationId {self.id}"
            )

    def _check_manager(self, process: LauncherProcess) -> None:
        """Say that no ResourceManager answers, and raise TrainscaleError if that lasts. The client tries for hours."""
        retries = find_retries(process.output)
        if not retries or self.manager.is_reachable():
            self._unreachable_since = None
            return
        where = ", ".join(self._client.managers)
        if self._unreachable_since is None:
            self._unreachable_since = time.monotonic()
            _print(f"no ResourceManager answers at {where}; the client tries again ({retries})")
        elif time.monotonic() - self._unreachable_since > _DOWN_SECONDS:
            raise TrainscaleError(
                f"launcher yarn: no ResourceManager answers at {where}, nor to the client ({retries})"
                "\n  is it running? the address is that of yarn-site.xml in HADOOP_CONF_DIR"
            )

    def read_output(self, process: LauncherProcess) -> None:
        output = process.output
        if not self.id and (match := _APPLICATION_ID.search(output)):
            self.id = match[0]
        self._has_copied = self._has_copied or _COPIES_FILES in output
        for sentence in find_caps(output, self.argv):
            if sentence not in self._caps:
                self._caps.append(sentence)
                _print(sentence)

    def release(self, process: LauncherProcess, complete: bool) -> None:
        """Containers end with their connections, the application with its containers, and the client with the
        application. An application that still waits for its turn has no containers that could end, so it is killed.
        """
        self.read_output(process)
        ends_by_itself = complete or self._has_lost_containers
        has_ended = process.has_ended or (ends_by_itself and self._wait_for_end(process))
        if not self.id:
            # It may have been accepted before the client could print its id.
            process.stop(0.0)
            name = self.name
            self.id = self.manager.find_application(name, by_program=self._has_copied)
            has_ended = False
        if not has_ended and self.id:
            self._kill_application(process)
        process.stop(0.0)
        if self._has_lost_containers:
            self._print_diagnostics()
        if self._has_copied or self.id:
            # The client copies the shell's jar and the command into the user's folder. Nobody else removes them if the
            # application was killed, or if Hadoop is older than 3.3.
            beside = Path(self._client.yarn).with_name("hadoop")
            hadoop = str(beside) if beside.exists() else "hadoop"
            _try_command(_KILL_SECONDS, hadoop, "fs", "-rm", "-r", "-f", "-skipTrash", self.name)

    def _wait_for_end(self, process: LauncherProcess) -> bool:
        """Wait until the application has ended by itself, unless YARN does not answer."""
        if process.wait(_REACH_SECONDS):
            return True
        if not self.manager.is_reachable():
            return False
        _print(f"waiting for {self.id} to end")
        return process.wait(_END_SECONDS)

    def _kill_application(self, process: LauncherProcess) -> None:
        reachable = self.manager.is_reachable()
        if not reachable:
            _print(f"no ResourceManager answers over HTTP; trying for {_KILL_SECONDS:.0f} s to end {self.id}")
        limit = _PROGRAM_SECONDS if reachable else _KILL_SECONDS
        if _try_command(limit, self._client.yarn, "application", "-kill", self.id):
            process.wait(_END_SECONDS)
            return
        _print(
            f"{self.id} could not be ended, and its ApplicationMaster may live until the ResourceManager is"
            f" back; its containers have ended, or end within two minutes\n  to end it then: yarn application -kill"
            f" {self.id}"
        )

    def _print_diagnostics(self) -> None:
        application = self.manager.read_application(self.id)
        summary = summarise_diagnostics(application.diagnostics) if application else ""
        if application and summary:
            _print(f"{self.id} is {application.state}: {summary}")


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
