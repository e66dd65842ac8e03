"""The real trainscale command in a process of its own."""

from __future__ import annotations

import atexit
import functools
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from forked_frameworks import server_for_commands
from forked_keepers import ForkedProcess, ForkServer, has_other_python_settings
from processes import MARK, marked, read_arguments

from trainscale import cli

SUPPORT = Path(__file__).parent
SECONDS = 240.0


class Command:
    """``trainscale ARGUMENTS…``, started in ``folder``. Its processes carry a mark, by which a test can find them."""

    def __init__(self, folder: Path, *arguments: str, columns: int = 120, **variables: str) -> None:
        self.mark = str(folder)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "trainscale", *arguments],
            cwd=folder,
            env={**_environment(folder, columns), **variables},
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
        return [pid for pid in self.left() if b"rank" in read_arguments(pid)]

    def finish(self, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
        out, err = self.popen.communicate(timeout=seconds)
        return subprocess.CompletedProcess(self.popen.args, self.popen.returncode, out, err)


def call(capsys: pytest.CaptureFixture[str], *argv: str) -> tuple[int, str, str]:
    """Run a command in this process. Return its exit code and what it printed to standard output and error."""
    code = cli.main([*argv])
    return code, *capsys.readouterr()


@functools.cache
def _server() -> ForkServer:
    server = ForkServer(sys.executable)
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
    if has_other_python_settings("PYTHONPATH"):
        assert not constants
        return Command(folder, *arguments, columns=columns).finish()
    request: dict[str, Any] = {"arguments": arguments, "folder": str(folder.absolute()), "constants": constants}
    framework_server = server_for_commands() if forks_ranks else None
    if framework_server is not None:
        request["framework_server"] = framework_server.address
    with tempfile.TemporaryFile("w+") as stdout, tempfile.TemporaryFile("w+") as stderr:
        ends = stdout.fileno(), stderr.fileno()
        process = ForkedProcess(_server(), *ends, environment=_environment(folder, columns), **request)
        process.stdin.close()
        code = process.wait(SECONDS)
        for file in (stdout, stderr):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, code, stdout.read(), stderr.read())


def trainscale_at_terminal(folder: Path, answer: str, *arguments: str) -> tuple[int, str]:
    """Run a command on a terminal, and type an answer to its question. Return its exit code and what it printed."""
    terminal, other_end = os.openpty()
    process = ForkedProcess(_server(), other_end, other_end, other_end, arguments=arguments, folder=str(folder))
    process.stdin.close()
    output, patience = b"", 0.3
    while True:
        ready = select.select([terminal, process.exit_code], [], [], patience)[0]
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
    return process.wait(), output.decode()


def _environment(folder: Path, columns: int) -> dict[str, str]:
    return {**os.environ, MARK: str(folder), "COLUMNS": str(columns)}
