"""Keepers that a framework server forks. See framework_server.py."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainscale.launch.connection import KeeperConnection, PipeConnection
from trainscale.launch.launchers.local import LocalLauncher


class FrameworkClient:
    """A connection to a framework server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)

    def fork(
        self, descriptors: Sequence[int], program: Sequence[str] = (), environment: Mapping[str, str] = os.environ
    ) -> int:
        """Fork a program, or a keeper if there is none, and return its process id. The descriptors are for its input,
        output, errors and exit code.
        """
        values = {"folder": str(Path.cwd()), "environment": dict(environment), "program": program}
        request = json.dumps(values).encode()
        socket.send_fds(self._socket, [request], list(descriptors))
        answer = self._socket.recv(64)
        if not answer:
            raise RuntimeError(f"the framework server has ended:\n{self._read_output()}")
        return int(answer)

    def close(self) -> None:
        self._socket.close()

    def _read_output(self) -> str:
        return Path(f"{self.address}.log").read_text()


class ForkedProcess:
    """A process that a framework server forked: what its users need of subprocess.Popen."""

    def __init__(self, server: FrameworkClient, stdout: int, stderr: int, **request: Any) -> None:
        stdin, exit_code = os.pipe(), os.pipe()
        self.pid = server.fork([stdin[0], stdout, stderr, exit_code[1]], **request)
        os.close(stdin[0])
        os.close(exit_code[1])
        self.stdin = os.fdopen(stdin[1], "wb", buffering=0)
        self._exit_code = os.fdopen(exit_code[0], "rb", buffering=0)
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._exit_code], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("forked process", timeout or 0.0)
            with self._exit_code as pipe:
                self.returncode = int(pipe.read())
        return self.returncode


class ForkedKeeper(ForkedProcess):
    def __init__(self, server: FrameworkClient) -> None:
        stdout, stderr = os.pipe(), os.pipe()
        super().__init__(server, stdout[1], stderr[1])
        os.close(stdout[1])
        os.close(stderr[1])
        self.stdout, self.stderr = (os.fdopen(pipe[0], "rb", buffering=0) for pipe in (stdout, stderr))


class ForkedConnection(PipeConnection):
    def __init__(self, host: str, keeper: ForkedKeeper) -> None:
        super().__init__(host, [])
        self._process = keeper  # type: ignore[assignment]
        self._input, self.output, self.error_output = keeper.stdin, keeper.stdout, keeper.stderr

    def become_ready(self, deadline: float) -> None:
        KeeperConnection.become_ready(self, deadline)


_one_at_a_time = threading.Lock()  # parity checks start several keepers at once, from threads


def open_keepers(server: Callable[[], FrameworkClient], hosts: Sequence[str]) -> list[KeeperConnection]:
    with _one_at_a_time:
        return [ForkedConnection(host, ForkedKeeper(server())) for host in hosts]


def keeper_opener(server: FrameworkClient) -> Callable[[LocalLauncher, Sequence[str]], list[KeeperConnection]]:
    """Return a method ``open`` for the local launcher, which forks keepers from this server."""
    return lambda launcher, hosts: open_keepers(lambda: server, hosts)
