"""A program that has imported a framework and forks keepers and other programs, or that has imported the controller and
forks commands of trainscale.

The import of a framework takes two to five seconds of a core, a fork some milliseconds. Nothing was computed before the
fork, so every process starts with the modules as their import leaves them. Arguments, for a framework: the worker's
folder, and the job whose environment variables the framework gets when it is imported. Standard input is a listening
socket. Each message of a connection is a request with the descriptors of a process. The program ends when its first
connection is closed.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import termios
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
    path = module_path(request["environment"])
    take_over(ends, request["folder"], request["environment"])
    if "arguments" in request:
        return become_command(request, path)
    return become_program(request["program"]) if "program" in request else become_keeper()


def module_path(environment: dict[str, str]) -> list[str]:
    """Return the module path of a process with this environment, without the folder at its front."""
    folders, own_folders = (settings.get("PYTHONPATH", "").split(os.pathsep) for settings in (environment, os.environ))
    return [*filter(None, folders), *(entry for entry in sys.path[1:] if entry not in own_folders)]


def become_command(request: dict[str, Any], path: list[str]) -> int:
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    sys.path[:] = [request["folder"], *path]  # as `python -m` has it
    sys.argv = [str(Path(sys.modules["trainscale"].__file__ or "").with_name("__main__.py")), *request["arguments"]]
    for name, value in (request.get("constants") or {}).items():
        module, _, constant = name.rpartition(".")
        assert hasattr(sys.modules[f"trainscale.{module}"], constant), name
        setattr(sys.modules[f"trainscale.{module}"], constant, value)
    if "framework_server" in request:
        forked_keepers = sys.modules["forked_keepers"]
        client = forked_keepers.ForkClient(request["framework_server"])
        forked_keepers.LocalLauncher.open = forked_keepers.keeper_opener(client)
    return int(sys.modules["trainscale.cli"].main())


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


def import_controller() -> None:
    """Import the controller's modules and the libraries that its commands import when they need them."""
    import trainscale.cli
    import trainscale.cluster
    import trainscale.launch
    import trainscale.report

    for package in (trainscale.cli, trainscale.cluster, trainscale.launch, trainscale.report):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("ray_client", "__main__")):
                importlib.import_module(module.name)
    for name in ("altair", "boto3", "jinja2", "rich.table", "rich.progress", "scipy.special", "forked_keepers"):
        importlib.import_module(name)
    importlib.import_module("simulated_aws").share_service_models()


if __name__ == "__main__":
    listener = socket.socket(fileno=os.dup(0))
    KEPT = {*STANDARD}
    if len(sys.argv) > 1:
        import_framework(*sys.argv[1:])
    else:
        import_controller()
    KEPT |= open_descriptors() - {listener.fileno()}
    gc.collect()
    gc.freeze()  # so that the garbage collector of a forked process does not copy all these objects
    serve(listener)
    os._exit(0)  # the end of an interpreter with a framework takes a second
