"""The connection to a keeper over the pipes of a local process, as a rule an ssh."""

from __future__ import annotations

import os
import subprocess
import time

from ...errors import TrainscaleError
from .keeper import HostError, KeeperConnection, wait_for_readable

_STDERR_BYTES = 4096  # that are kept
_REUSE_SECONDS = 10.0  # for an idle keeper to answer


class PipeConnection(KeeperConnection):
    """A keeper started by a command of this machine that is connected to it by pipes."""

    def __init__(
        self, host: str, command: list[str], remote_dir: str | None = None, *, starts_later: bool = False
    ) -> None:
        """With ``starts_later``, the command is started when the keeper shall become ready."""
        super().__init__()
        self.host, self.remote_dir, self._command = host, remote_dir, command
        self._process: subprocess.Popen[bytes] | None = None
        self._is_cut = False
        self._stderr = b""
        self._stderr_ended = False
        if not starts_later:
            self._start()

    def _start(self) -> None:
        # A session of its own, so that Ctrl-C in the terminal reaches only the controller, which then ends it in order.
        try:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except OSError as error:
            raise TrainscaleError(f"cannot start {self._command[0]} here: {error.strerror}") from None
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        assert self._popen.stderr is not None
        self.output = self._popen.stdout
        self.error_output = self._popen.stderr
        self._stderr, self._stderr_ended = b"", False
        if self._is_cut:
            self._process.kill()

    def become_ready(self, deadline: float) -> None:
        """Start the command if necessary. A keeper that was idle may have been lost meanwhile: log in again."""
        if self.is_idle:
            self.is_idle = False
            try:
                self._ask_ports(0, min(deadline, time.monotonic() + _REUSE_SECONDS))
                return
            except HostError:
                self.stop(0.0)
                self._process, self._incomplete, self._pending = None, b"", []
        if self._process is None:
            self._start()
        super().become_ready(deadline)

    @property
    def _popen(self) -> subprocess.Popen[bytes]:
        assert self._process is not None
        return self._process

    @property
    def pid(self) -> int:
        return self._popen.pid

    def write(self, data: bytes) -> None:
        if self._process is None:
            return
        assert self._popen.stdin is not None
        try:
            while data:
                data = data[self._popen.stdin.write(data) or 0 :]
        except (BrokenPipeError, ValueError):
            pass  # it has ended; reading its output shows that

    def last_stderr_line(self) -> str:
        lines = self.stderr_text().strip().splitlines()
        return lines[-1].strip() if lines else ""

    def stderr_text(self) -> str:
        while self.error_output is not None and not self._stderr_ended and wait_for_readable([self.error_output], 0.2):
            self.receive_errors()
        return self._stderr.decode(errors="replace")

    def receive_errors(self) -> bool:
        assert self.error_output is not None
        data = os.read(self.error_output.fileno(), _STDERR_BYTES)
        self._stderr_ended = not data
        self._stderr = (self._stderr + data)[-_STDERR_BYTES:]
        return bool(data)

    def _wait(self, seconds: float) -> bool:
        """Read standard error at the same time, because a full pipe would block the command."""
        assert self.error_output is not None
        ready = wait_for_readable([self.output] if self._stderr_ended else [self.output, self.error_output], seconds)
        if self.error_output in ready:
            self.receive_errors()
        return self.output in ready

    def close(self) -> None:
        if self._process is None:
            return
        assert self._popen.stdin is not None
        if not self._popen.stdin.closed:
            self._popen.stdin.close()

    def cut(self) -> None:
        self._is_cut = True
        if self._process is not None:
            self._process.kill()

    def stop(self, patience_seconds: float = 10.0) -> int | None:
        if self._process is None:
            return None
        self.close()
        try:
            return self._popen.wait(patience_seconds)
        except subprocess.TimeoutExpired:
            self._popen.kill()  # the system ends its ranks with it
            return self._popen.wait()
        finally:
            for stream in (self._popen.stdout, self._popen.stderr):
                assert stream is not None
                stream.close()
