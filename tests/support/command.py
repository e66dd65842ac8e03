"""The real trainscale command in a process of its own."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from processes import MARK, marked

SUPPORT = Path(__file__).parent
SECONDS = 240.0
ENVIRONMENT_AT_START = dict(os.environ)


class Command:
    """``trainscale ARGUMENTS…``, started in ``folder``. Its processes carry a mark, by which a test can find them."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 120) -> None:
        self.mark = str(folder)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "trainscale", *arguments],
            cwd=folder,
            env=_environment(folder, columns),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def left(self) -> list[int]:
        """Return the ids of all living processes of this command."""
        return marked(self.mark)

    def ranks(self) -> list[int]:
        """Return the ids of the processes that train now."""
        pids = []
        for pid in self.left():
            try:
                argv = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"rank" in argv:
                pids.append(pid)
        return pids

    def finish(self, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
        out, err = self.popen.communicate(timeout=seconds)
        return subprocess.CompletedProcess(self.popen.args, self.popen.returncode, out, err)


class CommandServer:
    """The program command_server.py, which runs commands in forked processes."""

    def __init__(self) -> None:
        self._popen = subprocess.Popen(
            [sys.executable, str(SUPPORT / "command_server.py")],
            env=ENVIRONMENT_AT_START,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, folder: Path, arguments: tuple[str, ...], columns: int) -> subprocess.CompletedProcess[str]:
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        with tempfile.TemporaryDirectory() as output:
            stdout, stderr = Path(output, "stdout"), Path(output, "stderr")
            request = {
                "arguments": arguments,
                "folder": str(folder.absolute()),
                "environment": _environment(folder, columns),
                "stdout": str(stdout),
                "stderr": str(stderr),
            }
            self._popen.stdin.write(json.dumps(request) + "\n")
            self._popen.stdin.flush()
            if not select.select([self._popen.stdout], [], [], SECONDS)[0]:
                raise subprocess.TimeoutExpired(arguments, SECONDS)
            code = int(self._popen.stdout.readline())
            return subprocess.CompletedProcess(arguments, code, stdout.read_text(), stderr.read_text())

    def close(self) -> None:
        self._popen.communicate()


@functools.cache
def _server() -> CommandServer:
    server = CommandServer()
    atexit.register(server.close)
    return server


def trainscale(folder: Path, *arguments: str, columns: int = 120) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. It is forked from a process that has imported the package, which is much faster."""
    if python_settings(os.environ) != python_settings(ENVIRONMENT_AT_START):  # Python reads these only when it starts
        return Command(folder, *arguments, columns=columns).finish()
    return _server().run(folder, arguments, columns)


def python_settings(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith("PYTHON")}


def _environment(folder: Path, columns: int) -> dict[str, str]:
    return {**os.environ, MARK: str(folder), "COLUMNS": str(columns)}
