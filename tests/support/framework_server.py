"""A program that has imported a framework, and runs keepers and other programs that have it too: all are forked.

An import takes two to five seconds of a core, a fork some milliseconds. Nothing was computed before the fork, so every
process starts with the framework as its import leaves it. Arguments: the job whose environment variables the framework
gets when it is imported. Standard input is a listening socket. Each message of a connection is a request with the
descriptors of a process. The program ends when its first connection is closed.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

FORKED_ROLES = ("rank", "parity")
STANDARD = (0, 1, 2)
PR_SET_CHILD_SUBREAPER = 36
REQUEST_BYTES = 1 << 20
# Modules that a framework imports when it trains, and not before.
LATE_IMPORTS = {"torch": ("torch._dynamo", "torch.distributed.fsdp", "torch.nn.parallel.distributed")}


class ForkedTask:
    """What a keeper uses of subprocess.Popen, for a task that needs no new interpreter."""

    def __init__(self, command: list[str], cwd: str | None, env: dict[str, str], **options: Any) -> None:
        pipes = [os.pipe() for _ in STANDARD]
        ends = [pipes[0][0], pipes[1][1], pipes[2][1]]
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            exit_with(lambda: become_task(command, cwd, env, ends))
        for descriptor in ends:
            os.close(descriptor)
        self.stdin = os.fdopen(pipes[0][1], "wb", buffering=0)
        self.stdout, self.stderr = (os.fdopen(pipe[0], "rb", buffering=0) for pipe in pipes[1:])

    def wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def become_task(command: list[str], cwd: str | None, env: dict[str, str], ends: list[int]) -> int:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    take_over(ends, cwd, env)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()  # an interpreter of its own would start with other random numbers too
    start = importlib.import_module("trainscale.worker.start")
    return int(start.start(command[2:]))


def start_task(command: list[str], **options: Any) -> Any:
    """Fork a task of this interpreter; start any other."""
    if command[0] == sys.executable and command[2] in FORKED_ROLES:
        return ForkedTask(command, **options)
    return subprocess.Popen(command, **options)


def become_process(request: dict[str, Any], ends: list[int]) -> int:
    os.setsid()
    take_over(ends, request["folder"], request["environment"])
    return become_program(request["program"]) if request["program"] else become_keeper()


def become_program(argv: list[str]) -> int:
    sys.path[:0] = [str(Path(argv[0]).parent), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = argv
    runpy.run_path(argv[0], run_name="__main__")
    return 0


def become_keeper() -> int:
    keeper = importlib.import_module("trainscale.worker.keeper.keeper")
    keeper.subprocess = types.SimpleNamespace(Popen=start_task, PIPE=subprocess.PIPE)
    return int(keeper.main([]))


def take_over(ends: list[int], folder: str | None, environment: dict[str, str]) -> None:
    """Use these descriptors as standard input, output and error, close all others, and set folder and variables."""
    for standard, descriptor in zip(STANDARD, ends, strict=True):
        os.dup2(descriptor, standard)
    for descriptor in open_descriptors() - KEPT:
        os.close(descriptor)
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    if folder:
        os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)


def open_descriptors() -> set[int]:
    listed = [int(path.name) for path in Path("/proc/self/fd").iterdir()]
    return {descriptor for descriptor in listed if Path(f"/proc/self/fd/{descriptor}").is_symlink()}


def exit_with(main: Any) -> None:
    """Run a function and end this process with its result, as an interpreter would."""
    code = 1
    try:
        code = main()
        threading._shutdown()
        atexit._run_exitfuncs()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def serve(listener: socket.socket) -> None:
    """Fork a process for each request. Write the exit code of each into its own pipe when it ends."""
    # Orphans become children of this process, so a test can find what a keeper left behind.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1)
    wakeup, wakeup_end = socket.socketpair()
    wakeup.setblocking(False)
    wakeup_end.setblocking(False)
    signal.set_wakeup_fd(wakeup_end.fileno())
    signal.signal(signal.SIGCHLD, lambda *_: None)
    owner, _ = listener.accept()
    selector = selectors.DefaultSelector()
    for source in (listener, owner, wakeup):
        selector.register(source, selectors.EVENT_READ)
    reports: dict[int, int] = {}
    while True:
        for key, _ in selector.select():
            source = key.fileobj
            if source is wakeup:
                wakeup.recv(4096)
            elif source is listener:
                selector.register(listener.accept()[0], selectors.EVENT_READ)
            elif process := answer_request(source):
                reports.update([process])
            elif source is owner:
                return
            else:
                selector.unregister(source)
                source.close()
        for pid, code in ended_children():
            if pid in reports:
                with os.fdopen(reports.pop(pid), "w") as report:
                    report.write(str(code))


def answer_request(connection: socket.socket) -> tuple[int, int] | None:
    """Return the id of a forked process and the descriptor for its exit code, or nothing at the end of a connection."""
    message, descriptors, _, _ = socket.recv_fds(connection, REQUEST_BYTES, 4)
    if not message:
        return None
    process = fork_process(json.loads(message), descriptors)
    connection.send(str(process[0]).encode())
    return process


def ended_children() -> Iterator[tuple[int, int]]:
    """Yield the ids and exit codes of forked processes, and of orphans whose keeper has ended."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        yield pid, os.waitstatus_to_exitcode(status)


def fork_process(request: dict[str, Any], descriptors: list[int]) -> tuple[int, int]:
    """Return the id of the process, and the descriptor for its exit code."""
    *ends, report = descriptors
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        exit_with(lambda: become_process(request, ends))
    for descriptor in ends:
        os.close(descriptor)
    return pid, report


def import_framework(worker: str, job: str) -> None:
    """Make the worker importable as start.py does, and import the framework and what training with it imports."""
    sys.path.pop(0)  # the folder of this program
    package = types.ModuleType("trainscale")
    package.__path__ = [str(Path(worker).parent)]
    sys.modules["trainscale"] = package
    from trainscale.worker.frameworks.catalog import FRAMEWORKS
    from trainscale.worker.inspection import parity  # noqa: F401
    from trainscale.worker.job import Job
    from trainscale.worker.keeper import keeper  # noqa: F401
    from trainscale.worker.training import rank  # noqa: F401

    decoded = Job.from_json(job)
    FRAMEWORKS[decoded.config.framework].load(decoded)
    for module in LATE_IMPORTS.get(decoded.config.framework, ()):
        importlib.import_module(module)


if __name__ == "__main__":
    listener = socket.socket(fileno=os.dup(0))
    KEPT = {*STANDARD}
    import_framework(*sys.argv[1:])
    KEPT |= open_descriptors() - {listener.fileno()}
    serve(listener)
    os._exit(0)  # the end of an interpreter with a framework takes a second
