"""A launcher for tests of adapters: this machine, with processes that are forked from one that imported the framework.

Such a test is about what a framework computes, not about the start of a process. See fork_server.py.
"""

from __future__ import annotations

import atexit
import functools
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import tiers
from forked_keepers import ForkedProcess, ForkServer, has_other_python_settings, open_keepers
from jobs import make_config, make_job

from trainscale.launch.connection import KeeperConnection
from trainscale.launch.launchers.base import START, Launcher
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.worker.job import Device, Job

SERVERS_AT_A_TIME = 8  # each holds a framework in memory
# Without MXNet, which decides at its import whether this process is a server, and how many threads it has.
FORKED = ("torch", "tensorflow", "jax", "keras-jax", "keras-tensorflow", "keras-torch")
# JAX reads its precision when it is imported.
READS_PRECISION = ("jax", "keras-jax")
# `make test-all` sets this to 0: then every process is an interpreter of its own.
SWITCH = "TRAINSCALE_TESTS_FORK"


class ForkingLauncher(LocalLauncher):
    def __init__(self, python: str, framework: str, precision: str) -> None:
        super().__init__()
        self._server_key = (python, framework, precision)

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        return open_keepers(lambda: _server(self._server_key), hosts)


def _compilation_cache() -> dict[str, str]:
    """Have JAX compile a network once, and not once in every process. The folder lives as long as the test process."""
    return {
        "JAX_COMPILATION_CACHE_DIR": _cache_folder().name,
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }


@functools.cache
def _cache_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="jax-cache-")


_servers: dict[tuple[str, str, str], ForkServer] = {}


def launcher_for(python: str, framework: str, precision: str) -> Launcher:
    """Return a launcher whose processes have the framework already, or one that starts interpreters where it must."""
    if not _is_forked(framework) or has_other_python_settings():
        return LocalLauncher()
    return ForkingLauncher(python, framework, precision)


def server_for_commands() -> ForkServer | None:
    """Return the server from which commands of trainscale fork keepers, or None where each rank is an interpreter."""
    if not _is_forked("torch") or has_other_python_settings():
        return None
    return _server((sys.executable, "torch", "fp32"))


def start_program(
    python: str, job: Job, program: Sequence[str], environment: Mapping[str, str], output: Path
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a program for the framework and the precision of a job. It prints into ``output`` and ``output``.log."""
    with output.open("wb") as stdout, Path(f"{output}.log").open("wb") as stderr:
        if not _is_forked(job.config.framework):
            command = [python, *program]
            return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=stdout, stderr=stderr)
        server = _server((python, job.config.framework, job.config.precision))
        return ForkedProcess(server, stdout.fileno(), stderr.fileno(), program=program, environment={**environment})


def _is_forked(framework: str) -> bool:
    return framework in FORKED and os.environ.get(SWITCH) != "0"


def _server(key: tuple[str, str, str]) -> ForkServer:
    """Return the server, which is started now if there is none. End those that were not used for the longest time."""
    tiers.require("framework")
    python, framework, precision = key
    key = (python, framework, precision if framework in READS_PRECISION else "fp32")
    _servers[key] = server = _servers.pop(key, None) or _start_server(*key)
    close_servers(SERVERS_AT_A_TIME)
    return server


def _start_server(python: str, framework: str, precision: str) -> ForkServer:
    job = make_job(config=replace(make_config(), framework=framework, precision=precision), device=Device("cpu"))
    # One thread, because only the thread that forks continues in a forked process.
    variables = {"OPENBLAS_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE", **_compilation_cache()}
    return ForkServer(python, str(START.parent), job.to_json(), **variables)


def forked_processes() -> list[int]:
    """Return the ids of all living processes that were forked for tests."""
    return [pid for server in _servers.values() for pid in server.descendants()]


def close_servers(kept: int = 0) -> None:
    """End all servers but those that were used last."""
    while len(_servers) > kept:
        _servers.pop(next(iter(_servers))).close()


atexit.register(close_servers)
