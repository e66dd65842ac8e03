"""Training under Open MPI and MPICH on real hosts, whatever happens meanwhile."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lab_runs import LONG, QUICK, Login, list_left
from processes import program, until

from lab import Lab, missing_requirement
from trainscale.launch.launchers.callback import CALLBACK_VARIABLE

pytestmark = pytest.mark.hosts
LAB_HOSTS = 3

KINDS = {"openmpi": "mpirun.openmpi", "mpich": "mpiexec.hydra"}


@pytest.fixture(autouse=True)
def _outside_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)


class MpiRuns(Login):
    """Commands runs with one of the two MPIs."""

    def __init__(self, lab: Lab, kind: str, folder: Path) -> None:
        super().__init__(lab, folder, PATH=f"{folder}:{os.environ['PATH']}")
        self.kind = kind
        missing = [name for name in KINDS.values() if shutil.which(name) is None]
        if missing:
            pytest.skip(f"needs {', '.join(missing)} (tests/needs.sh installs it on Debian)")
        # The one that a module system would have put first.
        program(folder, "mpirun", f'exec {KINDS[kind]} "$@"')
        self.hosts("node1", "node2")

    def hosts(self, *lines: str) -> None:
        (self.folder / "nodes").write_text("".join(f"{line}\n" for line in lines))

    def argv(self, command: str, *more: str) -> list[str]:
        return [sys.executable, "-m", "trainscale", command, "--launcher", "mpi", "--hosts", "nodes", *more]

    def begin_long(self) -> tuple[subprocess.Popen[Any], Path]:
        """Start a run on two devices, and wait until both hosts have ranks."""
        run = self.begin_ranks(*self.argv("run", *LONG, "-g", "1", "--repeats", "1"))
        return run.popen, run.log

    def left(self) -> dict[str, list[str]]:
        return list_left(self.lab)


@pytest.fixture(params=KINDS)
def runs(request: pytest.FixtureRequest, lab: Lab) -> MpiRuns:
    folder = lab.shared / request.node.name
    folder.mkdir()
    return MpiRuns(lab, request.param, folder)


@pytest.mark.parametrize("runs", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)], indirect=True)
def test_two_hosts_train_together_each_in_its_own_way(runs: MpiRuns) -> None:
    log = runs.folder / "set up"
    runs.hosts(f'node1 setup=\'echo "$(hostname)" >> "{log}"\'', f"node2 python={sys.executable}")
    done = runs.run(*runs.argv("run", *QUICK, "-g", "1", "--devices", "2", "--setup", "export GREETING='it'\"'\"'s'"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    (trial,) = runs.trials()
    assert (trial["status"], trial["hosts"]) == ("ok", 2)
    assert [rank["host"] for rank in trial["ranks"]] == ["node1", "node2"]
    first, second = (rank["weights_digest"] for rank in trial["ranks"])
    assert first == second
    assert set(log.read_text().splitlines()) == {"node1"}
    assert runs.left() == {}


@pytest.mark.parametrize("runs", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)], indirect=True)
def test_ctrl_c_leaves_nothing_and_meanwhile_nobody_could_read_the_token(runs: MpiRuns) -> None:
    popen, log = runs.begin_long()
    token = token_of(runs)
    everywhere = [line for name in ("controller", *runs.lab.hosts) for line in runs.lab.processes(name)]
    assert any("TRAINSCALE_CALL" in line for line in everywhere)
    assert not any(token in line for line in everywhere)
    assert not any("TRAINSCALE_CALL=" in line for line in everywhere)
    os.killpg(popen.pid, signal.SIGINT)
    assert popen.wait(120) == 130, log.read_text()
    assert "Traceback" not in log.read_text()
    until(lambda: runs.left() == {}, "the end of everything", 20)


def token_of(runs: MpiRuns) -> str:
    """From the environment of mpirun, which only its user and root may read."""
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (entry / "cmdline").read_bytes().split(b"\0")
            variables = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if Path(arguments[0].decode(errors="replace")).name == KINDS[runs.kind]:
            values = [value for value in variables if value.startswith(f"{CALLBACK_VARIABLE}=")]
            if values and f"PATH={runs.folder}" in "\n".join(variables):
                return values[0].rpartition(",")[2]
    raise AssertionError("no mpirun with a token")


@pytest.mark.parametrize(
    ("runs", "silent"), [pytest.param("openmpi", True, marks=pytest.mark.slow), ("mpich", False)], indirect=["runs"]
)
def test_a_host_that_loses_its_power_is_a_lost_row_that_names_it(runs: MpiRuns, silent: bool) -> None:
    """Where connections break, MPICH ends all other keepers at once, and must not be taken at its word that those are
    lost.
    """
    popen, log = runs.begin_long()
    try:
        runs.lab.kill("node2", silent=silent)
        assert popen.wait(120) == 1, log.read_text()
        assert "Traceback" not in log.read_text()
        (trial,) = runs.trials()
        assert trial["status"] == "lost"
        assert "node2" in trial["failure"]["message"]
        assert "node1" not in trial["failure"]["message"]
        until(lambda: runs.left() == {}, "the end of everything", 30)
    finally:
        runs.lab.boot("node2")


def test_a_host_that_cannot_be_had_is_named_with_its_reason_before_anything_starts(runs: MpiRuns) -> None:
    for line, message in {
        "node9": "node9: unknown name: ",
        "node2 python=/no/such": "node2: no Python: /no/such cannot be started there; install Python",
    }.items():
        runs.hosts("node1", line)
        done = runs.run(*runs.argv("plan", "--models", "mnist:8", "-g", "1"))
        assert done.returncode == 1
        assert done.stderr.startswith(f"trainscale: {message}"), done.stderr
        assert "node1" not in done.stderr
    assert runs.left() == {}


@pytest.mark.slow
def test_names_that_only_ssh_knows_and_a_network_by_its_range_will_do(runs: MpiRuns) -> None:
    config = runs.folder / "ssh_config"
    own = "".join(
        f"Host {name}\n  HostName {runs.lab.address(node)}\n" for name, node in (("a", "node1"), ("b", "node3"))
    )
    config.write_text(own + runs.lab.ssh_config.read_text().replace("Host ", "Host a b ", 1))
    runs.hosts("a", "b")
    network = f"{runs.lab.controller_address.rpartition('.')[0]}.0/24"
    done = runs.run(
        *runs.argv("plan", "--models", "mnist:8", "-g", "1", "--ssh-config", str(config), "--interface", network)
    )
    assert done.returncode == 0, done.stderr
    assert "a, b: worker" in done.stdout
    assert runs.left() == {}


def test_inside_a_slurm_allocation_its_hosts_are_used(runs: MpiRuns) -> None:
    reason = missing_requirement(slurm=True)
    if reason:
        pytest.skip(reason)
    inside = ["salloc", "--quiet", "--nodes=2", sys.executable, "-m", "trainscale", "plan", "--launcher", "mpi"]
    done = runs.run(*inside, "--models", "mnist:8", "-g", "1", **runs.lab.slurm().environment)
    assert done.returncode == 0, done.stderr
    assert "node1, node2: worker" in done.stdout
    until(lambda: runs.left() == {}, "the end of everything", 20)


@pytest.mark.slow
def test_inside_a_pbs_job_its_hosts_are_used_without_a_word(runs: MpiRuns) -> None:
    """By its variables; there is no PBS here."""
    nodes = runs.folder / "pbs nodes"
    nodes.write_text("node1\nnode1\nnode3\nnode3\n")
    job = {"PBS_JOBID": "7.server", "PBS_ENVIRONMENT": "PBS_BATCH", "PBS_NODEFILE": str(nodes)}
    command = [sys.executable, "-m", "trainscale", "plan", "--models", "mnist:8", "-g", "1"]
    done = runs.run(*command, **job)
    assert done.returncode == 0, done.stderr
    assert "node1, node3: worker" in done.stdout
    assert runs.left() == {}
