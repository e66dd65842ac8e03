"""A user's own program on this host: prepares its folder, or sets its variables and becomes the program.

Reads one JSON line: a FolderRequest, which is answered by one event (FolderState), or a ProgramJob.
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
from dataclasses import dataclass, field
from typing import Any

from ..events import FolderState, encode
from ..inspection.gpus import find_visible_gpu
from ..start import end_with_parent

# The archive holds the user's own files, which may link to anywhere. Older versions of Python trust every archive.
_AS_PACKED: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # the exit codes that shells use

# Variables by which a process of an mpirun knows that it is one of its ranks.
MPI_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL", "MPIR_", "HYDRA_", "HYDI_")
# Variables that tell the keeper which process of an MPI or Slurm job it is. A program would take the keeper's rank for
# its own: JAX and Lightning read these.
_OF_THE_KEEPER = (*MPI_PREFIXES, "SLURM_STEP")
_SLURM_TASK = ("PROCID", "LOCALID", "NODEID", "NTASKS", "NPROCS", "GTIDS", "TASK_PID", "TASKS_PER_NODE")
# Variables that this project sets. If it leaves one unset, an old value from the host would be wrong.
_RENDEZVOUS = (
    *("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "NODE_RANK"),
    *("MASTER_ADDR", "MASTER_PORT", "TF_CONFIG", "TRAINSCALE_CALL"),
    *("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_LOCAL_DEVICE_IDS"),
    *("KERAS_DISTRIBUTION_JOB_ADDRESSES", "KERAS_DISTRIBUTION_NUM_PROCESSES", "KERAS_DISTRIBUTION_PROCESS_ID"),
    *("DMLC_ROLE", "DMLC_PS_ROOT_URI", "DMLC_PS_ROOT_PORT", "DMLC_NUM_WORKER", "DMLC_NUM_SERVER", "DMLC_NODE_HOST"),
    *("DMLC_TASK_ID", "DMLC_WORKER_ID", "DMLC_SERVER_ID"),
)


@dataclass(frozen=True)
class FolderRequest:
    """Check that a folder exists. With an archive (a tar file in base64), create and fill it first."""

    prepare: str
    archive: str | None = None


@dataclass(frozen=True)
class ProgramJob:
    """A program to become. ``defaults`` are variables that yield to the host's own."""

    command: list[str]
    folder: str
    environment: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    gpus: list[int] | None = None  # the numbers of the visible ones; None: all


def main(arguments: list[str]) -> int:
    values = json.loads(sys.stdin.readline())
    if "prepare" in values:
        request = FolderRequest(**values)
        problem = _prepare(os.path.expanduser(request.prepare), request.archive)
        os.write(1, encode(FolderState(problem)))
        return 0
    return _become(ProgramJob(**values))


def _prepare(folder: str, archive: str | None) -> str:
    """Return what is wrong with the folder; empty if nothing is."""
    try:
        if archive is not None:
            os.makedirs(folder, exist_ok=True)
            with tarfile.open(fileobj=io.BytesIO(base64.b64decode(archive)), mode="r:gz") as tar:
                tar.extractall(folder, **_AS_PACKED)
        if not os.path.isdir(folder):
            return "is a file there" if os.path.exists(folder) else "is not there"
        if not os.access(folder, os.X_OK):
            return "may not be entered there"
    except (OSError, tarfile.TarError) as error:
        return f"cannot be copied to: {error}"
    return ""


def _become(job: ProgramJob) -> int:
    end_with_parent()
    # The keeper ignores some signals, and Python ignores others. A program would inherit that.
    for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)
    program = job.command[0]
    try:
        os.chdir(os.path.expanduser(job.folder))
    except OSError as error:
        print(f"cannot enter the folder {job.folder}: {error.strerror}", file=sys.stderr)
        return _NOT_EXECUTABLE
    try:
        os.execvpe(program, job.command, build_environment(job, os.environ))
    except FileNotFoundError:
        print(f"cannot start {program}: there is no such program on this host's PATH", file=sys.stderr)
        return _NOT_FOUND
    except OSError as error:
        print(f"cannot start {program}: {error.strerror}", file=sys.stderr)
        return _NOT_EXECUTABLE


def build_environment(job: ProgramJob, host_variables: Mapping[str, str]) -> dict[str, str]:
    """Return the program's variables: the host's own, without those meant for others, and those of the job."""
    variables = {name: value for name, value in host_variables.items() if not _is_for_others(name)}
    for name, value in job.defaults.items():
        variables.setdefault(name, value)
    if job.gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(find_visible_gpu(index) for index in job.gpus)
    variables.update(job.environment)
    return variables


def _is_for_others(name: str) -> bool:
    return (
        name in _RENDEZVOUS
        or name.startswith(_OF_THE_KEEPER)
        or (name.startswith("SLURM_") and name[6:] in _SLURM_TASK)
    )
