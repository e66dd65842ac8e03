"""The command that starts the keepers of all hosts, as a process of this machine: mpirun, srun, yarn."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from ...errors import TrainscaleError

_KEPT = 65536  # bytes of what the command printed
_POLL_SECONDS = 0.05


class LauncherProcess:
    """Its keepers end by themselves when their connections close, and the command with them."""

    def __init__(self, command: list[str], environment: Mapping[str, str]) -> None:
        if shutil.which(command[0]) is None:
            raise TrainscaleError(f"cannot start {command[0]}: there is no such program on the PATH")
        try:
            # A session of its own: Ctrl-C is the controller's to handle, and what the command started can be ended.
            self._popen = subprocess.Popen(
                [*_end_with_us(), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=dict(environment),
            )
        except OSError as error:
            raise TrainscaleError(f"cannot start {command[0]}: {error.strerror}") from None
        self._command = command
        self._lock = threading.Lock()
        self._said = b""
        self._reader = threading.Thread(target=self._read, name="crew", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def ended(self) -> bool:
        return self._exited() is not None

    @property
    def said(self) -> str:
        """The end of what the command has printed; all of it if it has ended."""
        if self.ended:
            self._reader.join(1.0)
        return self._said.decode(errors="replace")

    def last_complaint(self) -> str:
        """The last line that is not decoration."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip(" -=*\r")]
        return lines[-1] if lines else ""

    def last_words(self) -> str:
        """The same, or how it ended."""
        program = Path(self._command[0]).name
        code = self._exited()
        if code is not None and code < 0:
            return f"{program} was ended by {_signal_name(-code)}"
        how = f" with exit code {code}" if code is not None else ""
        return self.last_complaint() or f"{program} ended{how}, without a word"

    def stop(self, patience_seconds: float = 10.0) -> int:
        """Wait for its end, ask for it, force it. Nothing of what it started on this machine is left."""
        with self._lock:
            if self._popen.returncode is not None:
                return self._popen.returncode
            if not self._wait(patience_seconds):
                self._popen.terminate()
                self._wait(max(patience_seconds, 5.0))
            # While it is not reaped its session cannot be another's.
            for pid in {self._popen.pid, *_session(self._popen.pid)}:
                try:
                    os.kill(pid, signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
            code = self._popen.wait()
        self._reader.join(5.0)
        return code

    def _read(self) -> None:
        """A pipe that nobody reads would stop the command when it is full."""
        assert self._popen.stdout is not None
        with self._popen.stdout as stream:
            while piece := os.read(stream.fileno(), 65536):
                self._said = (self._said + piece)[-_KEPT:]

    def _exited(self) -> int | None:
        """Its exit code, negative for a signal, or None while it runs. Looked at, not reaped."""
        if self._popen.returncode is not None:
            return self._popen.returncode
        try:
            seen = os.waitid(os.P_PID, self._popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return self._popen.returncode or 0  # reaped a moment ago
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status

    def _wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        while self._exited() is None:
            if time.monotonic() > until:
                return False
            time.sleep(_POLL_SECONDS)
        return True


def _end_with_us() -> list[str]:
    """The words that have a command told to end when this process dies, as by kill -9. It need not notice by itself:
    one that waits for a host, for instance. Linux means the death of the thread that starts it, which is also the one
    that waits for its end.
    """
    return ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []


def _session(leader: int) -> list[int]:
    """Processes of a session: those that a command started, and did not send away, are in its own."""
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            number = int((entry / "stat").read_text().rpartition(")")[2].split()[3])
        except (OSError, IndexError, ValueError):
            continue  # it ended while we looked
        if number == leader:
            found.append(int(entry.name))
    return found


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
