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
from typing import IO, Any

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

    def run(
        self, folder: Path, arguments: tuple[str, ...], columns: int, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as output:
            stdout, stderr = Path(output, "stdout"), Path(output, "stderr")
            files = {"stdin": os.devnull, "stdout": str(stdout), "stderr": str(stderr)}
            self.start(folder, arguments, files, _environment(folder, columns), **options)
            if not select.select([self.answers], [], [], SECONDS)[0]:
                raise subprocess.TimeoutExpired(arguments, SECONDS)
            return subprocess.CompletedProcess(arguments, self.exit_code(), stdout.read_text(), stderr.read_text())

    def start(
        self,
        folder: Path,
        arguments: tuple[str, ...],
        files: Mapping[str, str],
        environment: Mapping[str, str],
        constants: Mapping[str, float] | None = None,
        framework_server: str = "",
    ) -> None:
        """Start a command with these files as its standard input, output and error.

        If there is a framework server, the command forks its keepers on this machine from the server at this address.
        """
        assert self._popen.stdin is not None
        request = {
            "arguments": arguments,
            "folder": str(folder.absolute()),
            "environment": dict(environment),
            "constants": dict(constants or {}),
            "framework_server": framework_server,
            **files,
        }
        self._popen.stdin.write(json.dumps(request) + "\n")
        self._popen.stdin.flush()

    @property
    def answers(self) -> IO[str]:
        """A stream that can be read when the command has ended."""
        assert self._popen.stdout is not None
        return self._popen.stdout

    def exit_code(self) -> int:
        return int(self.answers.readline())

    def close(self) -> None:
        self._popen.communicate()


@functools.cache
def _server() -> CommandServer:
    server = CommandServer()
    atexit.register(server.close)
    return server


def trainscale(
    folder: Path,
    *arguments: str,
    columns: int = 120,
    constants: Mapping[str, float] | None = None,
    forks_ranks: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. It is forked from a process that has imported the package, which is much faster.

    ``constants`` replaces constants of modules, such as a time that the command waits. Folders at the front of
    PYTHONPATH may add modules, but cannot replace those that the process has imported: use ``Command`` for that.
    With ``forks_ranks``, ranks of PyTorch on this machine are forked too: use it where a test is about the command.
    """
    if _python_settings(os.environ) != _python_settings(ENVIRONMENT_AT_START):  # Python reads these only when it starts
        assert not constants
        return Command(folder, *arguments, columns=columns).finish()
    address = ""
    if forks_ranks:
        from forked_frameworks import server_for_commands  # here, because it imports this module

        framework_server = server_for_commands()
        address = framework_server.address if framework_server else ""
    return _server().run(folder, arguments, columns, constants=constants, framework_server=address)


def trainscale_at_terminal(folder: Path, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, and type an answer to its question. Return its exit code and what it printed."""
    terminal, other_end = os.openpty()
    server = _server()
    name = os.ttyname(other_end)
    server.start(folder, arguments, dict.fromkeys(("stdin", "stdout", "stderr"), name), os.environ)
    output, patience = b"", 0.3
    while True:
        ready = select.select([terminal, server.answers], [], [], patience)[0]
        if terminal in ready:
            output += os.read(terminal, 4096)
        elif ready:
            break  # it has ended, and all that it printed is read
        elif b"[y/N] " in output:
            # What is typed while a program begins to read is lost, so the answer is typed again. Not at once, because a
            # second Ctrl-C would interrupt the handling of the first.
            os.write(terminal, answer.encode())
            patience = 10.0
    os.close(terminal)
    os.close(other_end)
    return server.exit_code(), output.decode()


def _python_settings(environment: Mapping[str, str]) -> dict[str, str]:
    names = environment.keys() - {"PYTHONPATH"}
    return {name: environment[name] for name in names if name.startswith("PYTHON")}


def _environment(folder: Path, columns: int) -> dict[str, str]:
    return {**os.environ, MARK: str(folder), "COLUMNS": str(columns)}
