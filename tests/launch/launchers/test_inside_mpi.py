"""``mpirun -np N trainscale run``: N processes find each other without MPI, the first is the controller, the others are
its hosts; and all end together.
"""

import json
import os
import shutil
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_runs import LONG, QUICK, Login, list_left
from processes import until

from lab import Lab
from trainscale.cluster.allocation import MpiWorld
from trainscale.errors import InputError
from trainscale.launch.callback import Caller
from trainscale.launch.launchers.callback import CallbackEndpoint
from trainscale.launch.launchers.inside_mpi import (
    InsideMpiLauncher,
    RendezvousFile,
    serve_as_host,
)
from trainscale.launch.launchers.target import make_launcher, run_once_inside_mpi
from trainscale.spec.devices import Host
from trainscale.spec.experiment import make_experiment

LAB_HOSTS = 2

WORLD = MpiWorld(rank=1, size=3, job="17")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Whatever is changed in it, and the cores of this process, are as before afterwards."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    before, cores = dict(os.environ), os.sched_getaffinity(0)
    yield
    os.environ.clear()
    os.environ.update(before)
    os.sched_setaffinity(0, cores)


# ---- one or many


def test_outside_of_mpirun_a_command_runs_as_ever() -> None:
    assert run_once_inside_mpi(["run"], lambda launcher: 7 if launcher is None else 0) == 7


def test_a_single_process_of_mpirun_is_a_plain_run_and_what_it_starts_knows_nothing_of_mpi(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "0")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "1")
    monkeypatch.setenv("PMIX_RANK", "0")
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(every)})

    def main(launcher: object) -> int:
        assert launcher is None
        assert not any(name.startswith(("OMPI_", "PMIX_")) for name in os.environ)
        assert os.sched_getaffinity(0) == every
        return 5

    assert run_once_inside_mpi(["run"], main) == 5


def test_inside_mpirun_its_hosts_are_meant_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    met = (Host("10.0.0.1", "a", slots=2), Host("10.0.0.2", "b", slots=1))
    launcher = InsideMpiLauncher(MpiWorld(0, 3), RendezvousFile.of(WORLD, []))
    monkeypatch.setattr(launcher, "hosts", lambda: met)
    assert make_launcher(make_experiment({}), launcher, {}) is launcher
    assert (launcher.access.hosts, launcher.local) == (met, False)
    make_launcher(make_experiment({"hosts_count": 1, "launcher": "mpi"}), launcher, {})
    assert launcher.access.hosts == met[:1]
    for wrong in ({"launcher": "ssh"}, {"hosts": "nodes"}, {"launcher": "local"}):
        with pytest.raises(InputError, match="inside an mpirun its hosts are used; type this command without mpirun"):
            make_launcher(make_experiment(wrong), launcher, {})
    for wrong in ({"setup": ("module load x",)}, {"remote_python": "/x/python"}):
        with pytest.raises(InputError, match="inside mpirun hosts are used as they are"):
            make_launcher(make_experiment(wrong), launcher, {})


# ---- finding each other


def test_only_this_user_can_read_where_the_first_process_is_and_it_is_removed(tmp_path: Path) -> None:
    rendezvous = RendezvousFile.of(WORLD, ["run", "-x", "2"])
    rendezvous.write(CallbackEndpoint("", 4711, "secret"), ["10.0.0.1", "10.1.0.1"])
    files = list(tmp_path.rglob(".trainscale-mpirun-*"))
    assert len(files) == 2
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in files)
    assert RendezvousFile.of(WORLD, ["run", "-x", "2"]).read() == [
        CallbackEndpoint("10.0.0.1", 4711, "secret"),
        CallbackEndpoint("10.1.0.1", 4711, "secret"),
    ]
    assert RendezvousFile.of(MpiWorld(1, 3, "18"), ["run", "-x", "2"]).read() == []
    assert RendezvousFile.of(WORLD, ["run", "-x", "3"]).read() == []
    rendezvous.remove()
    rendezvous.remove()
    assert list(tmp_path.rglob(".trainscale-mpirun-*")) == []


def test_a_file_that_may_be_anybodys_is_not_believed(tmp_path: Path) -> None:
    rendezvous = RendezvousFile.of(WORLD, [])
    trap = tmp_path / "trap"
    trap.write_text(json.dumps({"addresses": ["10.0.0.9"], "port": 1, "token": "x"}))
    rendezvous.paths[0].symlink_to(trap)
    assert rendezvous.read() == []
    rendezvous.paths[0].unlink()
    rendezvous.paths[0].write_text("half a fi")
    assert rendezvous.read() == []
    if os.geteuid() == 0:
        shutil.copy(trap, rendezvous.paths[0])
        assert rendezvous.read() != []
        os.chown(rendezvous.paths[0], 12345, 12345)
        assert rendezvous.read() == []


def test_one_place_that_can_be_written_to_is_enough(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("not a folder")
    rendezvous = RendezvousFile.of(WORLD, [])
    rendezvous.write(CallbackEndpoint("", 1, "x"), ["10.0.0.1"])
    assert rendezvous.read() == [CallbackEndpoint("10.0.0.1", 1, "x")]
    rendezvous.remove()
    nowhere = RendezvousFile((tmp_path / "cache" / "a", tmp_path / "cache" / "b"))
    with pytest.raises(InputError, match="its processes cannot find each other: "):
        nowhere.write(CallbackEndpoint("", 1, "x"), ["10.0.0.1"])


@pytest.mark.processes
def test_without_a_shared_folder_both_sides_say_so(tmp_path: Path) -> None:
    rendezvous = RendezvousFile.of(WORLD, [])
    with pytest.raises(InputError, match=r"process 1, on .*, did not find process 0 .* folder that all hosts share"):
        serve_as_host(WORLD, rendezvous, seconds=0.3)
    launcher = InsideMpiLauncher(MpiWorld(0, 3, "17"), rendezvous, seconds=1.0)
    with pytest.raises(InputError, match=r"processes 1, 2 of 3 did not connect within 1 s; .* that all hosts share"):
        launcher.hosts()
    assert list(tmp_path.rglob(".trainscale-mpirun-*")) == []


def test_word_of_a_first_process_that_is_gone_is_not_believed() -> None:
    """As after a job of the same name that was killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]
    rendezvous = RendezvousFile.of(WORLD, [])
    rendezvous.write(CallbackEndpoint("", nobody, "x"), ["127.0.0.1"])
    with pytest.raises(InputError, match="did not find process 0"):
        serve_as_host(WORLD, rendezvous, seconds=0.3)
    rendezvous.remove()


def make_caller(index: int, name: str, address: str, called: str = "10.0.0.1") -> Caller:
    return Caller(index, name, address, called, socket.socket())


def test_processes_of_one_host_are_its_slots_and_hosts_come_in_the_order_of_ranks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own_addresses = {"lo": "127.0.0.1", "eth0": "10.0.0.1"}
    monkeypatch.setattr("trainscale.launch.launchers.inside_mpi.list_addresses", lambda: own_addresses)
    launcher = InsideMpiLauncher(WORLD, RendezvousFile.of(WORLD, []))
    callers = [
        make_caller(3, "b", "10.0.0.2"),
        make_caller(1, "a", "10.0.0.1"),
        make_caller(2, "b", "10.0.0.2"),
        make_caller(4, "c", "10.0.0.3"),
        make_caller(0, "a", "127.0.0.1", "127.0.0.1"),
    ]
    arranged = launcher.choose_hosts(callers)
    assert [host for host, _ in arranged] == [
        Host("10.0.0.1", "a", slots=2),  # called so by the others
        Host("10.0.0.2", "b", slots=2),
        Host("10.0.0.3", "c", slots=1),
    ]
    assert [caller.index for _, caller in arranged] == [0, 2, 4]
    for caller in callers:
        caller.connection.close()
    # Two machines of one name are two hosts.
    callers = [make_caller(0, "box", "127.0.0.1"), make_caller(1, "box", "10.0.0.2"), make_caller(2, "box", "10.0.0.3")]
    names = [host.name for host, _ in launcher.choose_hosts(callers)]
    assert names == ["box-10.0.0.1", "box-10.0.0.2", "box-10.0.0.3"]
    for caller in callers:
        caller.connection.close()


# ---- on real hosts

MPIRUN = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--map-by", "node", "--host", "node1:2,node2:2", "-np"],
    "mpich": ["mpiexec.hydra", "-launcher", "ssh", "-hosts", "node1,node2", "-ppn", "1", "-n"],
}


class CommandUnderMpi(Login):
    def __init__(self, lab: Lab, kind: str, folder: Path) -> None:
        super().__init__(lab, folder)
        self._mpirun = MPIRUN[kind]
        if shutil.which(self._mpirun[0]) is None:
            pytest.skip(f"needs {self._mpirun[0]} (tests/needs.sh installs it on Debian)")

    def argv(self, count: int, *arguments: str) -> list[str]:
        return [*self._mpirun, str(count), sys.executable, "-m", "trainscale", *arguments]

    def nothing_left(self) -> None:
        until(lambda: list_left(self.lab) == {}, "the end of everything", 60)
        assert list(self.folder.glob(".trainscale-mpirun-*")) == []


@pytest.fixture(params=MPIRUN)
def command(request: pytest.FixtureRequest, lab: Lab) -> CommandUnderMpi:
    folder = lab.shared / request.node.name
    folder.mkdir()
    return CommandUnderMpi(lab, request.param, folder)


@pytest.mark.hosts
@pytest.mark.parametrize("command", [pytest.param("openmpi", marks=pytest.mark.slow), "mpich"], indirect=True)
def test_two_processes_on_two_hosts_train_together(command: CommandUnderMpi) -> None:
    done = command.run(*command.argv(2, "run", *QUICK, "--devices", "2"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("results in out") == 1
    assert "\x1b" not in done.stdout  # Open MPI gives its processes a terminal, which nobody looks at
    (trial,) = command.trials()
    assert (trial["status"], trial["hosts"]) == ("ok", 2)
    assert [rank["host"] for rank in trial["ranks"]] == ["node1", "node2"]
    first, second = (rank["weights_digest"] for rank in trial["ranks"])
    assert first == second
    command.nothing_left()


@pytest.mark.hosts
@pytest.mark.slow
def test_all_processes_of_a_host_are_devices_of_it_though_mpirun_bound_them(command: CommandUnderMpi) -> None:
    done = command.run(*command.argv(4, "plan", "--models", "mnist:8"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("on 2 hosts with 2 CPU devices each") == 1
    assert "node1, node2: workers 0 1" in done.stdout
    command.nothing_left()


@pytest.mark.hosts
def test_wrong_input_is_told_once_and_nobody_waits_for_the_first(command: CommandUnderMpi) -> None:
    done = command.run(*command.argv(2, "run", "--modles", "mnist"))
    assert done.returncode == 2
    assert (done.stdout + done.stderr).count("unknown flag '--modles'") == 1
    command.nothing_left()


@pytest.mark.hosts
@pytest.mark.parametrize("command", ["openmpi", pytest.param("mpich", marks=pytest.mark.slow)], indirect=True)
def test_an_mpirun_that_is_interrupted_leaves_nothing(command: CommandUnderMpi) -> None:
    run = command.begin_ranks(*command.argv(2, "run", *LONG))
    os.killpg(run.popen.pid, signal.SIGTERM)
    # MPICH's mpiexec ends with 0 where all its processes ended in order before it took them down; then the first of
    # them must have said that it was stopped.
    assert run.finish(60) != 0 or "stopped; 0 finished trials are kept" in run.output
    command.nothing_left()
    assert "Traceback" not in run.output


@pytest.mark.hosts
@pytest.mark.slow
def test_a_process_that_dies_leaves_the_rest_unmeasured_and_the_same_command_continues(
    command: CommandUnderMpi,
) -> None:
    trials = ("--models", "mnist:8", "--warmup", "2", "--steps", "3", "--repeats", "4", "--devices", "2", "-o", "out")
    argv = command.argv(2, "run", *trials)
    run = command.begin_ranks(*argv)
    until(command.trials, "the first trial", 120)
    assert command.lab.kill_matching("node2", "start.py keeper") > 0
    run.finish(60)
    command.nothing_left()
    assert {trial["status"] for trial in command.trials()} == {"ok"}, run.output
    assert len(command.trials()) < 4
    done = command.run(*argv)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [trial["status"] for trial in command.trials()] == ["ok"] * 4
