"""ssh on real hosts, with real sshd: training over two of them, and whatever can happen to hosts, cables and the
controller meanwhile. Nothing is ever left running.
"""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from keepers import opened, ready, try_ready
from lab_runs import LONG, QUICK, LabSshLauncher, Login, list_left, list_trials
from processes import until

from lab import Lab
from trainscale.launch.connection import HostError, stop_all
from trainscale.launch.launchers.base import ITS_PYTHON
from trainscale.spec.devices import Host
from trainscale.spec.groups import SshSettings
from trainscale.worker.job import Task, TasksRequest, encode_request

pytestmark = pytest.mark.hosts
LAB_HOSTS = 3

HOSTS = ("-g", "1", "--hosts-count", "2")


@pytest.fixture
def folder(lab: Lab, tmp_path: Path) -> Path:
    """Where the command is typed, with a hosts file of two columns."""
    write_hosts(tmp_path, *(f"{lab.address(name)} {name}" for name in lab.hosts))
    return tmp_path


def write_hosts(folder: Path, *lines: str) -> None:
    (folder / "nodes").write_text("".join(f"{line}\n" for line in lines))


def argv(*more: str) -> list[str]:
    return [sys.executable, "-m", "trainscale", "run", "--hosts", "nodes", *more]


def run(lab: Lab, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return Login(lab, folder).run(*argv(*more))


def left(lab: Lab) -> dict[str, list[str]]:
    return list_left(lab, controller="")


# ---- training


def test_hosts_train_together_with_set_up_lines_and_a_python_of_their_own(lab: Lab, folder: Path) -> None:
    """By all-reduce on the first two, and by a parameter server that has the first host for itself."""
    log = lab.shared / "set up"
    write_hosts(
        folder,
        f'{lab.address("node1")} node1 setup=\'printf "%s %s\\n" "$GREETING" "$(hostname)" >> "{log}"\'',
        f"{lab.address('node2')} node2 python={sys.executable} # where torch is",
        "node3",
    )
    done = run(
        lab, folder, *QUICK, "-g", "1", "--devices", "2", "--strategies", "allreduce,ps", "--server-placement", "apart",
        "--setup", "export GREETING='it'\"'\"'s'",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    rows = list(csv.DictReader((folder / "out" / "results.csv").read_text().splitlines()))
    assert [(row["strategy"], row["hosts"], row["devices"], row["status"]) for row in rows] == [
        ("allreduce", "2", "2", "ok"),
        ("ps", "3", "2", "ok"),
    ]
    reduced, served = list_trials(folder)
    assert [rank["host"] for rank in reduced["ranks"]] == ["node1", "node2"]
    assert [rank["host"] for rank in served["ranks"]] == ["node2", "node3"]
    assert len(served["servers"]) == 1
    for trial in (reduced, served):
        first, second = (rank["weights_digest"] for rank in trial["ranks"])
        assert first == second
    assert set(log.read_text().splitlines()) == {"it's node1"}
    assert left(lab) == {}


def test_the_worker_lies_below_the_remote_directory_and_is_copied_once(lab: Lab, tmp_path: Path) -> None:
    launcher = LabSshLauncher(lab, remote_dir="/var/tmp/a 'remote' dir; ls")
    copied = []
    for _ in range(2):
        keepers = launcher.open(["node1"])
        assert ready(keepers, {}) == {"node1": []}
        copied.append(keepers[0].copied)
        stop_all(keepers)
    assert copied == [True, False]
    (version,) = lab.file("node1", "/var/tmp/a 'remote' dir; ls/trainscale-0").iterdir()
    assert (version / "trainscale" / "worker" / "start.py").is_file()
    assert left(lab) == {}


def test_what_login_scripts_print_does_no_harm(lab: Lab) -> None:
    """They are there for the tests that follow, too."""
    greet = "for file in .bashrc .profile .bash_profile; do echo 'echo Welcome; echo Achtung >&2' >> $HOME/$file; done"
    lab.on("node1", greet, check=True)
    for setup in ((), ("echo loading; module() { echo module $1; }; module load",)):
        keepers = LabSshLauncher(lab, setup=setup).open(["node1"])
        assert len(ready(keepers, {"node1": 2})["node1"]) == 2
        stop_all(keepers)


def test_the_users_own_configuration_counts_jump_hosts_and_open_connections_included(lab: Lab, tmp_path: Path) -> None:
    """node2 is reached through node1 only; node3 lets nobody in but over a connection that is there already."""
    config = tmp_path / "ssh_config"  # ssh itself has trouble with a space here when it jumps
    socket = lab.folder / "open-connection"
    config.write_text(
        f"Host second\n  HostName node2\n  ProxyJump node1\n  LocalForward 22 localhost:22\n  LogLevel QUIET\n"
        f"Host node3\n  ControlPath {socket}\n{lab.ssh_config.read_text().replace('Host ', 'Host second ', 1)}"
    )
    common = ["ssh", "-F", str(config)]
    lab.run([*common, "-o", "ControlMaster=yes", "-o", "ControlPersist=60", "-fN", "node3"], check=True)
    try:
        lab.on("node3", ["mv", "/run/lab/authorized_keys", "/run/lab/kept"], check=True)
        launcher = LabSshLauncher(lab, SshSettings(ssh_config=str(config)))
        launcher.access = replace(launcher.access, hosts=(Host("node2", "second"), Host("node3")))
        with opened(launcher, ["second", "node3"]) as keepers:
            assert {host: len(ports) for host, ports in ready(keepers, {"second": 1}).items()} == {
                "second": 1,
                "node3": 0,
            }
            assert any("node2" in line for line in lab.processes("controller"))
        assert left(lab) == {}
    finally:
        lab.on("node3", ["mv", "/run/lab/kept", "/run/lab/authorized_keys"])
        lab.run([*common, "-O", "exit", "node3"])


# ---- hosts that cannot be used


def test_hosts_in_trouble_are_all_named_before_anything_starts(lab: Lab, folder: Path) -> None:
    write_hosts(folder, "node1 python=/no/python3", "node2", "10.77.0.99", "nobody")
    lab.on("node2", ["mv", "/run/lab/authorized_keys", "/run/lab/kept"], check=True)
    try:
        done = run(lab, folder, *QUICK, "-g", "1")
    finally:
        lab.on("node2", ["mv", "/run/lab/kept", "/run/lab/authorized_keys"], check=True)
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    assert lines[0].startswith("trainscale: node1: no Python: /no/python3 cannot be started there; install Python 3.9")
    assert lines[1].startswith(
        "node2: permission denied: it does not let root in (publickey); put your public key there"
    )
    assert lines[2].startswith("10.77.0.99: no route: ")
    assert lines[3].startswith("nobody: unknown name: ")
    assert "trainscale check --hosts" in lines[4]
    assert not (folder / "out").exists()
    assert left(lab) == {}


# ---- faults while it trains


@pytest.fixture
def training(lab: Lab, folder: Path) -> Any:
    """A run of two hosts, training, and its end."""

    class Training:
        def __init__(self, *more: str) -> None:
            run = Login(lab, folder).begin_ranks(*argv(*LONG, *HOSTS, *more))
            self.popen, self.log = run.popen, run.log

        def moves(self) -> None:
            """Both hosts have sent and received so much that it must be gradients."""
            for name in ("node1", "node2"):
                counter = "cat /sys/class/net/eth0/statistics/tx_bytes"
                begin = int(lab.on(name, counter, check=True).stdout)
                until(lambda: int(lab.on(name, counter).stdout) > begin + 50_000_000, f"traffic from {name}", 120)  # noqa: B023

        def finish(self) -> tuple[int, str]:
            return self.popen.wait(240), self.log.read_text()

    return Training


@pytest.mark.slow
def test_a_host_that_loses_its_power_is_a_lost_row_and_the_run_goes_on(lab: Lab, folder: Path, training: Any) -> None:
    """And when the host is back the same command goes on with that row; then it is the controller that is killed."""
    going = training("--repeats", "2")
    going.moves()
    lab.kill("node2")
    code, output = going.finish()
    assert code == 1, output
    assert "Traceback" not in output
    records = list_trials(folder)
    assert [trial["status"] for trial in records] == ["lost", "lost"]  # the second was begun, and told at once
    assert all("node2" in trial["failure"]["message"] for trial in records)
    assert left(lab) == {}
    again = run(lab, folder, *LONG, *HOSTS, "--repeats", "2")
    assert again.returncode == 1
    assert again.stderr.startswith("trainscale: node2: ")
    lab.boot("node2")
    going = training("--repeats", "2", "--retry-failed")
    os.killpg(going.popen.pid, signal.SIGKILL)
    assert going.finish()[0] == -signal.SIGKILL
    until(lambda: left(lab) == {}, "the end of everything on the hosts")
    until(lambda: lab.processes("controller") == [], "the end of ssh at the controller")
    assert list_trials(folder) == records


def test_ctrl_c_ends_everything_on_all_hosts(lab: Lab, folder: Path, training: Any) -> None:
    going = training("--repeats", "1")
    os.killpg(going.popen.pid, signal.SIGINT)
    code, output = going.finish()
    assert code == 130, output
    assert "Traceback" not in output
    assert left(lab) == {}
    assert lab.processes("controller") == []


def test_a_cable_that_is_pulled_ends_both_sides(lab: Lab) -> None:
    """The host cannot hear that the controller is gone: it takes silence for that."""
    keepers = LabSshLauncher(lab).open(["node1"])
    try:
        ready(keepers, {})
        sleeper = Task("node1", 0, [ITS_PYTHON, "-c", "import time; time.sleep(1000)"])
        keepers[0].write(encode_request(TasksRequest([sleeper], 600, silence_seconds=2.0)))
        until(lambda: len(left(lab).get("node1", [])) == 2, "the keeper and its process")
        lab.link("node1", up=False)
        until(lambda: left(lab) == {}, "the end of the keeper and its process")
    finally:
        lab.link("node1", up=True)
        stop_all(keepers)


# ---- many


def test_keepers_of_sixteen_hosts_are_started_at_once(make_lab: Callable[..., Lab]) -> None:
    many = make_lab(16)
    with opened(LabSshLauncher(many), many.hosts) as keepers:
        ports = ready(keepers, dict.fromkeys(many.hosts, 2))
        assert list(ports) == many.hosts
        assert all(len(set(numbers)) == 2 for numbers in ports.values())
    assert left(many) == {}
    many.kill("node5")
    with opened(LabSshLauncher(many, connect_seconds=2), many.hosts) as keepers:
        answers = try_ready(keepers, {}, 20.0)
    assert [host for host, answer in answers.items() if isinstance(answer, HostError)] == ["node5"]
    until(lambda: left(many) == {}, "the end of all keepers")


@pytest.mark.framework
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_sixty_four_hosts_are_checked_and_a_trial_has_a_rank_on_each(
    make_lab: Callable[..., Lab], tmp_path: Path
) -> None:
    many = make_lab(64)
    write_hosts(tmp_path, *(f"{many.address(name)} {name}" for name in many.hosts))

    def trainscale(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainscale", *arguments, "--hosts", "nodes"]
        return many.run(command, cwd=tmp_path, env={**os.environ, "COLUMNS": "160"}, timeout=800)

    done = trainscale("check")
    assert done.returncode in (0, 1), done.stderr  # 1: it warns of what hosts have, which is not the subject here
    assert all(name in done.stdout for name in ("node1", "node32", "node64"))
    assert "no answer" not in done.stdout
    limits = ("--timeout", "700s", "--stall-timeout", "600s")
    done = trainscale("run", *QUICK, "-g", "1", "--devices", "64", *limits)
    assert done.returncode == 0, done.stdout + done.stderr
    (record,) = list_trials(tmp_path)
    assert sorted(rank["host"] for rank in record["ranks"]) == sorted(many.hosts)
    assert not any("lost" in note for note in record["notes"])
    until(lambda: left(many) == {}, "the end of all keepers")


# Leaves 500 ports that are not for outgoing connections, and takes them all.
TAKE_PORTS = """
import socket, time
from pathlib import Path
Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("10500 65535")
taken = [socket.create_server(("", port)) for port in range(10000, 10500)]
print("taken", flush=True)
time.sleep(1000)
"""


def test_a_host_without_free_ports_is_refused_and_named(lab: Lab, folder: Path) -> None:
    """The last test here: the host keeps its range of ports."""
    command = [*lab.inside("node2"), sys.executable, "-c", TAKE_PORTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as taking:
        assert taking.stdout is not None
        try:
            assert taking.stdout.readline() == "taken\n"
            done = run(lab, folder, *LONG, *HOSTS, "--no-witness")
        finally:
            lab.kill_matching("node2", "taken = [socket")
    assert done.returncode == 1, done.stdout + done.stderr
    failure = list_trials(folder)[0]["failure"]
    assert (failure["kind"], failure["host"]) == ("refused", "node2"), failure
    assert "free ports" in failure["message"]
    assert left(lab) == {}
