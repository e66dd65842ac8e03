"""Processes that a program forks which has imported what they need. See fork_server.py."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from processes import is_living

from trainscale.launch.connection import KeeperConnection, PipeConnection
from trainscale.launch.launchers.local import LocalLauncher

PROGRAM = Path(__file__).with_name("fork_server.py")
ENVIRONMENT_AT_START = dict(os.environ)


def has_other_python_settings(*ignored: str) -> bool:
    """Return whether a new interpreter would have other settings: Python reads them only when it starts."""
    names = {name for name in (*os.environ, *ENVIRONMENT_AT_START) if name.startswith("PYTHON")} - {*ignored}
    return any(os.environ.get(name) != ENVIRONMENT_AT_START.get(name) for name in names)


class ForkClient:
    """A connection to fork_server.py."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address)

    def fork(self, descriptors: Sequence[int], **values: Any) -> int:
        """Fork a program or a command, or a keeper if ``values`` name none, and return its process id. The descriptors
        are for its input, output, errors and exit code.
        """
        request = json.dumps({"folder": str(Path.cwd()), "environment": dict(os.environ), **values}).encode()
        socket.send_fds(self._socket, [request], list(descriptors))
        answer = self._socket.recv(64)
        if not answer:
            raise RuntimeError(f"the fork server has ended:\n{self._read_output()}")
        return int(answer)

    def close(self) -> None:
        self._socket.close()

    def _read_output(self) -> str:
        return Path(f"{self.address}.log").read_text()


class ForkServer(ForkClient):
    """The program, which ends with this connection, its first."""

    def __init__(self, python: str, *arguments: str, **variables: str) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="fork-server-")
        address = f"{self._folder.name}/socket"
        with socket.socket(socket.AF_UNIX) as listener, Path(f"{address}.log").open("w") as output:
            listener.bind(address)
            listener.listen()
            self._popen = subprocess.Popen(
                [python, str(PROGRAM), *arguments],
                env={**ENVIRONMENT_AT_START, **variables},
                stdin=listener,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            super().__init__(address)

    def descendants(self) -> list[int]:
        """Return the ids of all living processes that come from this server."""
        return _descendants(self._popen.pid)

    def close(self) -> None:
        super().close()
        self._popen.wait()
        self._folder.cleanup()


def _descendants(pid: int) -> list[int]:
    try:
        children = [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    deeper = [descendant for child in children for descendant in _descendants(child)]
    return [child for child in children if is_living(child)] + deeper


class ForkedProcess:
    """A process that a server forked: what its users need of subprocess.Popen."""

    def __init__(self, server: ForkClient, stdout: int, stderr: int, terminal: int = -1, **request: Any) -> None:
        stdin, exit_code = os.pipe(), os.pipe()
        self.pid = server.fork([stdin[0] if terminal < 0 else terminal, stdout, stderr, exit_code[1]], **request)
        os.close(stdin[0])
        os.close(exit_code[1])
        self.stdin = os.fdopen(stdin[1], "wb", buffering=0)
        self.exit_code = os.fdopen(exit_code[0], "rb", buffering=0)  # can be read when the process has ended
        self.returncode: int | None = None

    def kill(self) -> None:
        if self.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self.exit_code], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired("forked process", timeout or 0.0)
            with self.exit_code as pipe:
                self.returncode = int(pipe.read())
        return self.returncode


class ForkedKeeper(ForkedProcess):
    def __init__(self, server: ForkClient) -> None:
        stdout, self.stderr = os.pipe(), tempfile.TemporaryFile()  # noqa: SIM115
        super().__init__(server, stdout[1], self.stderr.fileno())
        os.close(stdout[1])
        self.stdout = os.fdopen(stdout[0], "rb", buffering=0)


class ForkedConnection(PipeConnection):
    def __init__(self, host: str, keeper: ForkedKeeper) -> None:
        super().__init__(host, [])
        self._process = keeper  # type: ignore[assignment]
        self._input, self.output, self._errors = keeper.stdin, keeper.stdout, keeper.stderr

    def become_ready(self, deadline: float) -> None:
        KeeperConnection.become_ready(self, deadline)


_one_at_a_time = threading.Lock()  # parity checks start several keepers at once, from threads


def open_keepers(server: Callable[[], ForkClient], hosts: Sequence[str]) -> list[KeeperConnection]:
    with _one_at_a_time:
        return [ForkedConnection(host, ForkedKeeper(server())) for host in hosts]


def keeper_opener(server: ForkClient) -> Callable[[LocalLauncher, Sequence[str]], list[KeeperConnection]]:
    """Return a method ``open`` for the local launcher, which forks keepers from this server."""
    return lambda launcher, hosts: open_keepers(lambda: server, hosts)
