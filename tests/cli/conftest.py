"""Commands that read a journal are tested on the same made-up records as the analysis, ``trainscale compare`` on runs
that are written once, ``trainscale cluster`` against a simulated AWS, and jobs on a Slurm of the lab.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cluster_commands import HERE, UP, output_of
from command import trainscale
from compared_runs import Compare, write_runs
from lab_runs import Login
from simulated_aws import Server, simulate_aws

from lab import Lab, Slurm
from trainscale import cli


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command in the test's folder. It must print one message only and write nothing; return the message."""
    monkeypatch.chdir(tmp_path)

    def refuse(*argv: str, code: int = 2) -> str:
        before = sorted(tmp_path.rglob("*"))
        capsys.readouterr()
        assert cli.main([*argv]) == code
        printed = capsys.readouterr()
        assert printed.out == ""
        assert printed.err.count("trainscale: ") == 1
        assert sorted(tmp_path.rglob("*")) == before
        return printed.err.removeprefix("trainscale: ")

    return refuse


@pytest.fixture
def outside_of_any_job(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("SLURM", "TF_"))]:
        monkeypatch.delenv(name)


# ---- of trainscale cluster: a simulated AWS, and accounts with and without a cluster


@pytest.fixture(scope="module")
def aws_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with simulate_aws(tmp_path_factory.mktemp("aws")) as running:
        yield running


@pytest.fixture
def aws(aws_server: Server, monkeypatch: pytest.MonkeyPatch) -> Server:
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    for name, value in aws_server.environment.items():
        monkeypatch.setenv(name, value)
    return aws_server


@pytest.fixture
def account(aws: Server, tmp_path: Path) -> Iterator[Server]:
    """An account in which no cluster is, before and after the test."""
    remove_clusters(aws, tmp_path)
    yield aws
    remove_clusters(aws, tmp_path)


def remove_clusters(account: Server, folder: Path) -> None:
    if account.client("cloudformation").describe_stacks()["Stacks"]:
        assert trainscale(folder, "cluster", "down", "--yes", *HERE).returncode == 0
        assert account.resources() == {}


@pytest.fixture
def cluster(aws: Server, tmp_path: Path) -> Server:
    """A cluster that the test does not change. The tests that use it share it."""
    if not aws.client("cloudformation").describe_stacks()["Stacks"]:
        output_of(tmp_path, *UP, *HERE, "--yes")
    return aws


@pytest.fixture
def own_cluster(account: Server, tmp_path: Path) -> Server:
    """A cluster that the test may change."""
    output_of(tmp_path, *UP, *HERE, "--yes")
    return account


# ---- of trainscale compare


@pytest.fixture(scope="session")
def written_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs to compare, written once: every record of a journal is flushed to the disk."""
    folder = tmp_path_factory.mktemp("written")
    write_runs(folder)
    return folder


@pytest.fixture
def runs_folder(written_runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of this test, with runs to compare, as the current directory."""
    shutil.copytree(written_runs, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


@pytest.fixture
def compare(capsys: pytest.CaptureFixture[str]) -> Compare:
    return Compare(capsys)


# ---- of Slurm


@pytest.fixture
def login(lab: Lab, slurm: Slurm) -> Iterator[Login]:
    """The login node, with a folder of this test. Its jobs end with the test."""
    folder = lab.shared / f"home-{len(list(lab.shared.iterdir()))}"
    folder.mkdir()
    login = Login(lab, folder, **slurm.environment)
    yield login
    login.run("scancel", "--user=root")
    slurm.wait_for(lab.hosts)
