"""A user's program as a host begins it: the variables it finds, and the signals that reach it."""

import base64
import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest
from jobs import decode

import trainscale
from trainscale.worker.keeper.program import FolderRequest, ProgramJob, build_environment

START = Path(trainscale.__file__).parent / "worker" / "start.py"


def program(request: ProgramJob | FolderRequest, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(START), "program"],
        input=json.dumps(vars(request)) + "\n",
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def variables(here: dict[str, str], **request: Any) -> dict[str, str]:
    return build_environment(ProgramJob(["true"], "/", **request), here)


def test_what_is_given_wins_over_the_host_and_the_host_over_defaults() -> None:
    result = variables(
        {"A": "host", "B": "host"}, environment={"A": "given"}, defaults={"B": "default", "C": "default"}
    )
    assert result == {"A": "given", "B": "host", "C": "default"}


def test_what_names_the_keeper_is_hidden_and_what_names_the_job_is_not() -> None:
    names = "SLURM_PROCID SLURM_NTASKS SLURM_STEP_NODELIST OMPI_COMM_WORLD_RANK PMI_RANK PMIX_RANK HYDI_CONTROL_FD"
    here = dict.fromkeys([*names.split(), "MPI_LOCALRANKID", "TRAINSCALE_CALL"], "3")
    here |= {"RANK": "9", "TF_CONFIG": "{}", "DMLC_ROLE": "worker"}  # an old rendezvous of the host
    kept = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "node[1-2]", "PATH": "a", "MALLOC_TOP_PAD_": "67108864"}
    kept["DMLC_PS_VAN_TYPE"] = "zmq"
    assert variables({**here, **kept}) == kept


def test_gpus_count_among_those_that_the_host_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,GPU-abc,6")
    here = dict(os.environ)
    assert variables(here, gpus=[1, 2])["CUDA_VISIBLE_DEVICES"] == "GPU-abc,6"
    assert variables(here, gpus=[])["CUDA_VISIBLE_DEVICES"] == ""
    assert variables(here)["CUDA_VISIBLE_DEVICES"] == "4,GPU-abc,6"


@pytest.mark.processes
def test_a_program_may_be_interrupted_although_its_keeper_may_not(tmp_path: Path) -> None:
    """A signal that is ignored stays so for whoever a process becomes."""
    command = "grep -i sigign /proc/self/status"
    ignored = ["sh", "-c", f"trap '' INT; exec {sys.executable} {START} program"]
    job = json.dumps(vars(ProgramJob(["sh", "-c", command], str(tmp_path))))
    done = subprocess.run(ignored, input=job + "\n", stdout=subprocess.PIPE, text=True, check=False)
    assert int(done.stdout.split()[1], 16) & 0b1_0000_0000_0010 == 0  # SIGINT and SIGPIPE


@pytest.mark.processes
@pytest.mark.parametrize(
    ("command", "folder", "code", "message"),
    [
        ("/etc", "/", 126, "cannot start /etc: Permission denied"),
        ("true", "/no/such/folder", 126, "cannot enter the folder /no/such/folder: No such file or directory"),
    ],
)
def test_a_program_that_cannot_begin_says_why(command: str, folder: str, code: int, message: str) -> None:
    done = program(ProgramJob([command], folder))
    assert (done.returncode, done.stderr.strip(), done.stdout) == (code, message, "")


def prepare(folder: Path, archive: str | None = None) -> str:
    done = program(FolderRequest(str(folder), archive))
    if not done.returncode:
        return done.stdout
    event = decode(done.stdout)
    assert event is not None
    assert (event["kind"], event["error"]) == ("error", "refused")
    return str(event["message"])


@pytest.mark.processes
def test_a_folder_is_there_or_what_is_wrong_is_said(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert prepare(tmp_path) == ""
    assert prepare(tmp_path / "missing") == "is not there"
    assert prepare(tmp_path / "file") == "is a file there"
    assert "cannot be copied to" in prepare(tmp_path / "file", "")


@pytest.mark.processes
def test_an_archive_is_unpacked_over_what_is_there(tmp_path: Path) -> None:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        entry = tarfile.TarInfo("inner/new.py")
        entry.size = 3
        tar.addfile(entry, io.BytesIO(b"new"))
    target = tmp_path / "made" / "here"
    target.mkdir(parents=True)
    (target / "old").touch()
    assert prepare(target, base64.b64encode(raw.getvalue()).decode()) == ""
    assert (target / "inner/new.py").read_text() == "new"
    assert (target / "old").exists()
