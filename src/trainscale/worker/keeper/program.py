"""Prepares the folder of a user's own program (FolderRequest), or becomes it (ProgramJob)."""

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

from ..events import RankError, encode
from ..inspection.gpus import find_visible_gpu
from ..start import end_with_parent

# The archive holds the user's own files, which may link to anywhere.
_AS_PACKED: dict[str, Any] = {"filter": "fully_trusted"} if hasattr(tarfile, "fully_trusted_filter") else {}
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # the exit codes that shells use

# Variables by which a process of an mpirun knows that it is one of its ranks.
MPI_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "PRTE_", "MPI_LOCAL", "MPIR_", "HYDRA_", "HYDI_")
# Variables of the keeper's own place in an MPI or Slurm job. JAX and Lightning would take its
# rank for the program's own.
_OF_THE_KEEPER = (*MPI_PREFIXES, "SLURM_STEP")
_SLURM_TASK = ("PROCID", "LOCALID", "NODEID", "NTASKS", "NPROCS", "GTIDS", "TASK_PID", "TASKS_PER_NODE")
# Variables that this project sets, so that an old value from the host would be wrong.
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
    """Check that a folder exists."""

    prepare: str
    archive: str | None = None  # a tar file in base64 to fill it first


@dataclass(frozen=True)
class ProgramJob:
    command: list[str]
    folder: str
    environment: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)  # that yield to the host's
    gpus: list[int] | None = None  # the numbers of the visible ones; None: all


def main(arguments: list[str]) -> int:
    values = json.loads(sys.stdin.readline())
    if "prepare" not in values:
        return _become(ProgramJob(**values))
    request = FolderRequest(**values)
    folder, problem = os.path.expanduser(request.prepare), ""
    try:
        if request.archive is not None:
            os.makedirs(folder, exist_ok=True)
            with tarfile.open(fileobj=io.BytesIO(base64.b64decode(request.archive)), mode="r:gz") as tar:
                tar.extractall(folder, **_AS_PACKED)
        if not os.path.isdir(folder):
            problem = "is a file there" if os.path.exists(folder) else "is not there"
        elif not os.access(folder, os.X_OK):
            problem = "may not be entered there"
    except (OSError, tarfile.TarError) as error:
        problem = f"cannot be copied to: {error}"
    if problem:
        os.write(1, encode(RankError("refused", problem)))
    return int(bool(problem))


def _become(job: ProgramJob) -> int:
    end_with_parent()
    # A program would inherit the signals that the keeper and Python ignore.
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
    """Return the host's variables, without those meant for others, and those of the job."""
    variables = dict(job.defaults)
    for name, value in host_variables.items():
        is_slurm_task = name.startswith("SLURM_") and name[6:] in _SLURM_TASK
        if name not in _RENDEZVOUS and not name.startswith(_OF_THE_KEEPER) and not is_slurm_task:
            variables[name] = value
    if job.gpus is not None:
        variables["CUDA_VISIBLE_DEVICES"] = ",".join(find_visible_gpu(index) for index in job.gpus)
    return {**variables, **job.environment}
