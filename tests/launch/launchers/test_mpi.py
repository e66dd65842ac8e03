"""The MPI launcher: its commands to the letter for Open MPI and MPICH, what it makes of their complaints, and training
on real hosts with both, whatever happens meanwhile.
"""

import os
import subprocess
import sys
from contextlib import closing, suppress
from itertools import pairwise
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest
from keepers import try_ready
from processes import program

import trainscale.launch.launchers.mpi
from trainscale.cluster.hosts import HostAccess
from trainscale.errors import InputError
from trainscale.launch.connection import HostError
from trainscale.launch.launchers.callback import CALLBACK_VARIABLE, CallbackEndpoint
from trainscale.launch.launchers.mpi import (
    Mpich,
    MpiImplementation,
    MpiLauncher,
    OpenMpi,
)
from trainscale.launch.ssh_errors import explain_ssh_error
from trainscale.spec.devices import Host
from trainscale.spec.groups import SshSettings

CALL = CallbackEndpoint("10.0.0.250", 4711, "secret")
KEEPER = ("/bin/sh", "-c", "the keeper's line")
ADDRESS = "10.0.0.250"
TWO = [("node1", KEEPER), ("node2", KEEPER)]


@pytest.fixture(autouse=True)
def _outside_of_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_JOB_ID", "SLURM_JOB_NODELIST"):
        monkeypatch.delenv(name, raising=False)


def launcher(*hosts: Host, mpi: MpiImplementation | None = None, agent: str = "/a/agent", **where: Any) -> MpiLauncher:
    made = MpiLauncher(HostAccess(hosts or (Host("node1"), Host("node2")), **where))
    made.mpi, made.ssh_wrapper = mpi or OpenMpi("mpirun", 4), agent
    return made


# ---- commands


def test_open_mpi_starts_one_unbound_process_a_host_over_the_users_ssh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert OpenMpi("mpirun", 4).make_command(TWO, ADDRESS, "/a/agent") == [
        "mpirun", "--allow-run-as-root", "--mca", "plm_rsh_agent", "/a/agent : true", "--mca", "plm_rsh_no_tree_spawn",
        "1", "--mca", "orte_leave_session_attached", "1", "--bind-to", "none", "--map-by", "node", "--tag-output",
        "-np", "2", "--host", "node1:1,node2:1", "-x", CALLBACK_VARIABLE, "--wdir", "/", *KEEPER,
    ]  # fmt: skip


def test_open_mpi_5_has_other_names_for_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert OpenMpi("/opt/mpi/bin/mpirun", 5).make_command(TWO, ADDRESS, "/a/agent") == [
        "/opt/mpi/bin/mpirun", "--prtemca", "plm_ssh_agent", "/a/agent : true", "--prtemca", "plm_ssh_no_tree_spawn",
        "1", "--prtemca", "prte_leave_session_attached", "1", "--bind-to", "none", "--map-by", "node",
        "--output", "tag", "-np", "2", "--host", "node1:1,node2:1", "-x", CALLBACK_VARIABLE, "--wdir", "/", *KEEPER,
    ]  # fmt: skip


def test_mpich_starts_one_unbound_process_a_host_over_the_users_ssh() -> None:
    assert Mpich("mpiexec.hydra").make_command(TWO, ADDRESS, "/a/agent") == [
        "mpiexec.hydra", "-launcher", "ssh", "-launcher-exec", "/a/agent", "-localhost", "10.0.0.250", "-bind-to",
        "none", "-prepend-rank", "-genvlist", CALLBACK_VARIABLE, "-hosts", "node1,node2", "-ppn", "1",
        "-n", "2", "-wdir", "/", *KEEPER,
    ]  # fmt: skip


def test_inside_a_batch_job_mpirun_finds_its_own_way_to_the_hosts() -> None:
    for argv in (OpenMpi("mpirun", 4).make_command(TWO, ADDRESS), Mpich("mpirun").make_command(TWO, ADDRESS)):
        assert not {"plm_rsh_agent", "-launcher", "-launcher-exec"} & set(argv)


def test_hosts_that_need_other_words_get_them_in_the_order_of_the_hosts() -> None:
    keepers = [*TWO, ("node3", ("other", "command")), ("node4", KEEPER)]
    argv = OpenMpi("mpirun", 4).make_command(keepers, ADDRESS)
    first, second, third = (argv.index(host) for host in ("node1:1,node2:1", "node3:1", "node4:1"))
    assert argv[first - 3 :][:3] == ["-np", "2", "--host"]
    assert argv[second - 4 :][:9] == [":", "-np", "1", "--host", "node3:1", "-x", CALLBACK_VARIABLE, "--wdir", "/"]
    assert argv[second + 5 :][:2] == ["other", "command"]
    assert argv[third - 4] == ":"
    argv = Mpich("mpirun").make_command(keepers, ADDRESS)
    assert argv[argv.index("-hosts") + 1] == "node1,node2,node3,node4"
    assert argv[-7 - len(KEEPER) - 3 :] == [
        ":", "-n", "1", "-wdir", "/", "other", "command", ":", "-n", "1", "-wdir", "/", *KEEPER,
    ][-7 - len(KEEPER) - 3 :]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "network", "address"),
    [
        ("eth1", "eth1", "10.1.0.250"),
        ("10.1.0.0/16", "10.1.0.0/16", "10.1.0.250"),
        ("ib0", None, ADDRESS),
        ("10.9.0.0/16", None, ADDRESS),
        (None, None, ADDRESS),
    ],
)
def test_mpirun_uses_the_network_of_training_where_this_machine_is_on_it(
    wanted: str | None, network: str | None, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {"lo": "127.0.0.1", "eth0": ADDRESS, "eth1": "10.1.0.250"}
    monkeypatch.setattr(trainscale.launch.launchers.mpi, "list_addresses", lambda: own)

    def list_options(mpi: MpiImplementation, *names: str) -> dict[str, str]:
        argv = launcher(mpi=mpi, interface=wanted).command(["node1", "node2"], CALL)
        return {name: value for name, value in pairwise(argv) if name in names}

    tcp = ("oob_tcp_if_include", "btl_tcp_if_include", "prte_if_include")
    used = {tcp[1]: network} if network else {}
    assert list_options(OpenMpi("mpirun", 4), *tcp) == ({tcp[0]: network, **used} if network else {})
    assert list_options(OpenMpi("mpirun", 5), *tcp) == ({tcp[2]: network, **used} if network else {})
    assert list_options(Mpich("mpirun"), "-localhost") == {"-localhost": address}


def test_a_host_whose_name_mpirun_would_misread_needs_another() -> None:
    with pytest.raises(InputError, match=r"host fe80::1: .*ADDRESS NAME"):
        launcher(Host("fe80::1")).command(["fe80::1"], CALL)
    assert "big:1" in launcher(Host("fe80::1", "big")).command(["big"], CALL)


@pytest.mark.processes
def test_set_up_lines_and_pythons_of_hosts_are_run_there_whatever_is_in_them(tmp_path: Path) -> None:
    """The keeper's line is run here, with a stand-in for the Python that says what it was given."""
    shown = 'echo "ran in $PWD with $SETTING"; printf %s "$2" > "$HOME/program"; exit 7'
    python = program(tmp_path, "it's a; python", shown)
    odd = Host("node1", python=str(python), setup=("export SETTING=\"a 'b'; c\"",))
    argv = launcher(odd, Host("node2")).command(["node1", "node2"], CALL)
    line = argv[argv.index("/bin/sh") : argv.index(":")]
    done = subprocess.run(line, env={**os.environ, "HOME": str(tmp_path)}, capture_output=True, text=True, check=False)
    assert done.stdout == f"ran in {tmp_path} with a 'b'; c\n"
    assert done.stderr.endswith("the keeper ended with exit code 7\n")
    assert done.returncode == 0
    compile((tmp_path / "program").read_text(), "keeper", "exec")
    assert argv[-1].count("python3") == 1


@pytest.mark.processes
def test_ranks_get_none_of_the_variables_of_this_mpi_job() -> None:
    code = launcher().keeper_command("python3")[2].partition("import os,socket,sys;")[0]
    see = code + "print(i,*sorted(n for n in os.environ if 'MPI' in n or 'PMI' in n))"
    variables = {"OMPI_COMM_WORLD_RANK": "3", "PMIX_RANK": "3", "PMI_FD": "5", "MPI_LOCALRANKID": "0", "MY_MPI": "kept"}
    done = subprocess.run([sys.executable, "-c", see], env=variables, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "MY_MPI"]


def test_the_token_is_in_the_environment_alone_and_not_last_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """MPICH 4.0 does not pass the last variable on."""
    for name in ("OMPI_COMM_WORLD_RANK", "OMPI_MCA_ess_base_jobid", "PMIX_RANK"):
        monkeypatch.setenv(name, "1")
    environment = launcher().environment(CALL)
    assert environment[CALLBACK_VARIABLE] == "10.0.0.250,4711,secret"
    assert list(environment)[-1] != CALLBACK_VARIABLE
    assert not any(name.startswith(("OMPI_", "PMIX_")) for name in environment)
    for mpi in (OpenMpi("mpirun", 4), Mpich("mpirun")):
        assert not any("secret" in argument for argument in launcher(mpi=mpi).command(["node1", "node2"], CALL))


# ---- which MPI


@pytest.mark.parametrize(
    ("version_text", "kind"),
    [
        ("mpirun (Open MPI) 4.1.4\n\nReport bugs to …", OpenMpi),
        ("mpirun.openmpi (OpenRTE) 4.1.4", OpenMpi),
        ("mpirun (Open MPI) 5.0.11", OpenMpi),
        ("HYDRA build details:\n    Version:                                 4.0.2", Mpich),
        ("Intel(R) MPI Library for Linux* OS, Version 2021.9", type(None)),
        ("", type(None)),
    ],
)
@pytest.mark.processes
def test_the_implementation_is_known_by_what_it_says_of_its_version(
    version_text: str, kind: type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr("trainscale.launch.launchers.mpi._PROGRAMS", ("mpirun",))
    program(tmp_path, "mpirun", f"cat <<'END'\n{version_text}\nEND")
    implementation = None
    with suppress(InputError):
        implementation = MpiLauncher().mpi
    assert isinstance(implementation, kind)
    if isinstance(implementation, OpenMpi):
        assert implementation.major == (5 if "5.0" in version_text else 4)


@pytest.mark.processes
def test_without_any_mpi_the_message_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"no mpirun of Open MPI or MPICH on the PATH; install .* --launcher ssh"):
        MpiLauncher(HostAccess((Host("node1"),))).open(["node1"])
    program(tmp_path, "mpirun", "echo 'Another MPI, version 1'")
    with pytest.raises(InputError, match="mpirun says 'Another MPI, version 1'"):
        _ = MpiLauncher().mpi
    # The first on the path is taken by its full path: Open MPI then finds its parts on the hosts in the same place.
    program(tmp_path, "mpirun", "echo 'HYDRA build details:'")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    implementation = MpiLauncher().mpi
    assert isinstance(implementation, Mpich)
    assert implementation.program == str(tmp_path / "mpirun")


# ---- how it reaches hosts


def run_wrapper(tmp_path: Path, launcher: MpiLauncher, *arguments: str, before: str = "") -> CompletedProcess[str]:
    """Run the wrapper as mpirun would, whose place a shell takes. Its own standard error is read by nobody."""
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    mpirun = ["bash", "-c", f'{before}"$0" "$@" 2>/dev/null; exit $?', str(launcher.ssh_wrapper), *arguments]
    with closing(launcher):
        return subprocess.run(mpirun, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.processes
def test_the_wrapper_calls_ssh_as_the_ssh_launcher_does(tmp_path: Path) -> None:
    access = HostAccess((Host("a", "node1"), Host("node2", port=2222, user="jo")))
    config = tmp_path / "a 'b'; c"
    config.touch()
    settings = SshSettings(str(config))
    program(tmp_path, "ssh", 'for word in "$@"; do echo "$word"; done')
    first = run_wrapper(tmp_path, MpiLauncher(access, settings), "-x", "node1", "orted", '"a;b"').stdout.splitlines()
    assert {"BatchMode=yes", "ServerAliveInterval=5"} <= set(first)
    assert first[-6:] == ["-F", str(config), "-x", "node1", "orted", '"a;b"']
    second = run_wrapper(tmp_path, MpiLauncher(access, settings), "node2", "orted").stdout.splitlines()
    assert second[-6:] == ["-p", "2222", "-l", "jo", "node2", "orted"]


@pytest.mark.processes
def test_the_wrapper_marks_the_output_of_a_host_and_how_ssh_ended_and_mpirun_does_not_relay_it(tmp_path: Path) -> None:
    """MPICH's mpirun ends when it loses a host, perhaps before it has relayed why."""
    program(tmp_path, "ssh", "echo for mpirun; echo one >&2; echo two >&2; exit 255")
    done = run_wrapper(tmp_path, MpiLauncher(HostAccess((Host("node1"), Host("node2")))), "node2", "orted")
    assert (done.returncode, done.stdout) == (255, "for mpirun\n")
    assert done.stderr == "node2: one\nnode2: two\nnode2: ssh ended with exit code 255\n"


@pytest.mark.processes
def test_connections_of_mpirun_are_not_kept_open_by_the_wrapper(tmp_path: Path) -> None:
    """MPICH leaves its own open for whom it starts. A host that connects where nobody reads would wait for ever."""
    program(tmp_path, "ssh", 'readlink /proc/$$/fd/9 || echo "closed"')
    launcher = MpiLauncher(HostAccess((Host("node1"),)))
    done = run_wrapper(tmp_path, launcher, "node1", "orted", before="exec 9</dev/zero; ")
    assert (done.returncode, done.stdout) == (0, "closed\n")


@pytest.mark.processes
def test_the_wrappers_file_is_gone_when_the_run_is_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    program(tmp_path, "mpirun", "exit 3")
    ours = MpiLauncher(HostAccess((Host("127.0.0.1", "node1"),)))
    ours.mpi = OpenMpi(str(tmp_path / "mpirun"), 4)
    keepers = ours.open(["node1"])
    (agent,) = tmp_path.glob("trainscale-mpi-*/ssh-wrapper")
    assert agent.stat().st_mode & 0o777 == 0o700
    (error,) = try_ready(keepers, {}).values()
    assert isinstance(error, HostError)
    assert "mpirun ended with exit code 3, without a message" in str(error)
    keepers[0].stop()
    ours.close()
    assert list(tmp_path.glob("trainscale-mpi-*")) == []


# ---- what mpirun says

NO_DAEMON = """\
node2: ssh: connect to host node2 port 22: No route to host
node2: ssh ended with exit code 255
--------------------------------------------------------------------------
ORTE was unable to reliably start one or more daemons.
This usually is caused by:

* not finding the required libraries and/or binaries on
--------------------------------------------------------------------------
ORTE does not know how to route a message to the specified daemon
  target node:  node1
--------------------------------------------------------------------------
node1: ssh ended with exit code 1
"""
LOST = """\
--------------------------------------------------------------------------
ORTE has lost communication with a remote daemon.

  HNP daemon   : [[28554,0],0] on node controller
  Remote daemon: [[28554,0],2] on node node2

This is usually due to either a failure of the TCP network
--------------------------------------------------------------------------
"""
# mpirun ends when it loses a host, and with it its parts on all others. They may report that first.
ENDED_BY_A_LOST_HOST = """\
[mpiexec@controller] control_cb (pm/pmiserv/pmiserv_cb.c:206): assert (!closed) failed
[mpiexec@controller] main (ui/mpich/mpiexec.c:325): process manager error waiting for completion
node1: [proxy:0:0@node1] HYD_pmcd_pmip_control_cmd_cb (pm/pmiserv/pmip_cb.c:899): assert (!closed) failed
node1: [proxy:0:0@node1] main (pm/pmiserv/pmip.c:169): demux engine error waiting for event
node1: ssh ended with exit code 7
node2: Connection to node2 closed by remote host.
node2: ssh ended with exit code 255
"""


@pytest.mark.parametrize(
    ("mpi", "output", "message"),
    [
        (OpenMpi("mpirun", 4), NO_DAEMON, "ssh: connect to host node2 port 22: No route to host"),
        (OpenMpi("mpirun", 4), LOST, "mpirun lost the connection to it"),
        (Mpich("mpirun"), ENDED_BY_A_LOST_HOST, "Connection to node2 closed by remote host."),
    ],
)
def test_of_what_mpirun_prints_the_host_that_it_lost_is_the_cause(
    mpi: MpiImplementation, output: str, message: str
) -> None:
    report = launcher(mpi=mpi).read_output(output, ["node1", "node2"])
    assert report.failed == ["node2"]
    assert report.by_host == {"node2": message}
    if output == NO_DAEMON:
        assert report.summary == "ORTE was unable to reliably start one or more daemons."


@pytest.mark.parametrize(
    ("mpi", "line"),
    [
        (OpenMpi("mpirun", 4), "/bin/sh: 1: exec: [1,1]<stderr>:/no/python: not found[1,1]<stderr>:"),
        (OpenMpi("mpirun", 5), "/bin/sh: 1: exec: /no/python: not found"),
        (Mpich("mpirun"), "/bin/sh: 1: exec: [1] /no/python: not found"),
    ],
    ids=["Open MPI 4", "Open MPI 5", "MPICH"],
)
def test_what_a_keeper_says_is_its_hosts_though_it_has_a_number_only(mpi: MpiImplementation, line: str) -> None:
    tag = {4: "[1,1]<stderr>:", 5: "[prterun-x-7@1,1]<stderr>: "}[mpi.major] if isinstance(mpi, OpenMpi) else "[1] "
    output = f"{tag}{line}\n{tag}the keeper ended with exit code 127\n"
    report = launcher(mpi=mpi).read_output(output, ["node1", "node2"])
    assert report.failed == ["node2"]
    assert explain_ssh_error(report.by_host["node2"], "node2").why == "no Python: /no/python cannot be started there"


def test_mpich_gives_a_host_up_whose_ssh_ended_however_because_it_would_wait_for_ever() -> None:
    output = 'node1: [proxy:0:0@node1] unable to connect from "node1" to "10.9.9.9" (Network is unreachable)\n'
    ours = launcher(mpi=Mpich("mpirun"))
    report = ours.read_output(output, ["node1"])
    assert report.failed == []
    assert ours.read_output(output + "node1: ssh ended with exit code 5\n", ["node1"]).failed == ["node1"]
    reason = explain_ssh_error(report.by_host["node1"], "node1").why
    assert reason == "cannot call this machine: Network is unreachable"
