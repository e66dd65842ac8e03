"""A user's own program on this host. Puts folder, variables and GPUs right, then becomes the program.

Reads one JSON line. {"prepare": folder, "archive": a tar in base64 or null} has the folder ready and answers by one
event. {"command", "folder", "environment", "defaults", "gpus"} is a program to become: ``defaults`` are variables for a
host that has none of its own; ``gpus`` are the numbers of those to show, null for all.
"""

from __future__ import annotations

import base64
import io
import json
import os
import signal
import sys
import tarfile
from collections.abc import Mapping
from typing import Any

from ..events import encode
from ..pinning import ALLOCATOR, die_with_parent, visible_gpu
from .mpi_variables import MPI_PREFIXES

# The user's own files, links to anywhere among them. Older versions of Python trust every archive.
_AS_PACKED: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as shells have it

# What told whoever started the keeper that it is one of several. A program that believed it would take the keeper's
# number for its own: JAX and Lightning look for these.
_OF_THE_KEEPER = (*MPI_PREFIXES, "SLURM_STEP")
_SLURM_TASK = ("PROCID", "LOCALID", "NODEID", "NTASKS", "NPROCS", "GTIDS", "TASK_PID", "TASKS_PER_NODE")
# What this project sets. Where it sets none, an old value from the host would be wrong.
_RENDEZVOUS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "TRAINSCALE_CALL"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS"),
    *("KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID"),
    *("DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_NODE_HOST"),
    *("DMLC_TASK_ID", "DMLC_WORKER_ID", "DMLC_SERVER_ID"),
)


def main(arguments: list[str]) -> int:
    asked = json.loads(sys.stdin.readline())
    if "prepare" in asked:
        problem = _prepare(os.path.expanduser(asked["prepare"]), asked.get("archive"))  # noqa: PTH111
        os.write(1, encode({"kind": "folder", "problem": problem}))
        return 0
    return _become(asked)


def _prepare(folder: str, archive: str | None) -> str:
    """What is wrong with the folder; empty when nothing is."""
    try:
        if archive is not None:
            os.makedirs(folder, exist_ok=True)  # noqa: PTH103
            with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive)), mode="r:gz") as tar:
                tar.extractall(folder, **_AS_PACKED)
        if not os.path.isdir(folder):  # noqa: PTH112
            return "is a file there" if os.path.exists(folder) else "is not there"  # noqa: PTH110
        if not os.access(folder, os.X_OK):
            return "may not be entered there"
    except (OSError, tarfile.TarError) as error:
        return f"cannot be copied to: {error}"
    return ""


def _become(asked: dict[str, Any]) -> int:
    die_with_parent()
    # The keeper ignores some signals, and Python others; what is ignored stays so for whoever comes after.
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    command = asked["command"]
    try:
        os.chdir(os.path.expanduser(asked["folder"]))  # noqa: PTH111
    except OSError as error:
        print(f"cannot enter the folder {asked['folder']}: {error.strerror}", file=sys.stderr)
        return _NOT_EXECUTABLE
    try:
        os.execvpe(command[0], command, environment(asked, os.environ))
    except FileNotFoundError:
        print(f"cannot start {command[0]}: there is no such program on this host's PATH", file=sys.stderr)
        return _NOT_FOUND
    except OSError as error:
        print(f"cannot start {command[0]}: {error.strerror}", file=sys.stderr)
        return _NOT_EXECUTABLE


def environment(asked: Mapping[str, Any], here: Mapping[str, str]) -> dict[str, str]:
    """The variables of a program: the host's own, less what belongs to others, and those it is given."""
    found = {name: value for name, value in here.items() if not _of_others(name, value)}
    for name, value in asked["defaults"].items():
        found.setdefault(name, value)
    if asked["gpus"] is not None:
        found["CUDA_VISIBLE_DEVICES"] = ",".join(visible_gpu(index) for index in asked["gpus"])
    found.update(asked["environment"])
    return found


def _of_others(name: str, value: str) -> bool:
    return (
        name in _RENDEZVOUS
        or name.startswith(_OF_THE_KEEPER)
        or (name.startswith("SLURM_") and name[6:] in _SLURM_TASK)
        or ALLOCATOR.get(name) == value  # the keeper's care for what is measured
    )
