"""The lab is what other tests stand on: its hosts are hosts, its faults happen, and nothing of it is left."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import until

from . import CONTROLLER, Lab, LabError, Slurm

pytestmark = pytest.mark.hosts
LAB_HOSTS = 3


def test_hosts_have_names_and_addresses_of_their_own_and_find_each_other_and_nobody_else(lab: Lab) -> None:
    for name in lab.hosts:
        assert lab.on(name, "hostname; cat /etc/hostname").stdout.split() == [name, name]
        assert f" {lab.address(name)}/24 " in lab.on(name, "ip -4 address show eth0").stdout
        assert lab.on(name, "ls /sys/class/net").stdout.split() == ["eth0", "lo"]
    assert len({lab.address(name) for name in (*lab.hosts, CONTROLLER)}) == 4
    for name in ("node3", CONTROLLER):
        assert lab.on("node1", f"ping -c1 -W5 {name}").returncode == 0
    assert "unreachable" in lab.on("node1", "ping -c1 -W5 192.0.2.1").stderr


def test_what_a_host_writes_stays_on_its_disk(lab: Lab) -> None:
    for place in ("/var", "/tmp", "/dev/shm", "/run"):
        file = f"{place}/written-{lab.folder.name}"
        lab.on("node1", f"echo mine > {file}", check=True)
        assert lab.on("node1", f"cat {file}").stdout == "mine\n"
        assert lab.on("node2", f"cat {file}").returncode == 1
        assert not Path(file).exists()


def test_a_host_sees_only_its_own_processes_and_runs_this_projects_python(lab: Lab) -> None:
    seen = lab.on("node1", "ps -e -o comm=").stdout.split()
    assert seen[0] == "host.sh"
    assert "python" not in " ".join(seen)
    done = lab.run(["ssh", "node2", f"{sys.executable} -c 'import trainscale, socket; print(socket.gethostname())'"])
    assert (done.stdout, done.stderr) == ("node2\n", "")


def test_the_controller_has_the_machines_files_and_a_network_of_its_own(lab: Lab, tmp_path: Path) -> None:
    assert lab.run("hostname > name; pwd", cwd=tmp_path).stdout.strip() == str(tmp_path)
    assert (tmp_path / "name").read_text().strip() == CONTROLLER
    assert lab.controller_address in lab.run("ip -4 address show eth0").stdout
    process = lab.popen("echo $$", stdout=subprocess.PIPE, text=True)
    assert int(process.communicate()[0]) == process.pid


# ssh


def test_ssh_works_from_the_controller_with_and_without_naming_the_configuration_and_between_hosts(lab: Lab) -> None:
    for name in lab.hosts:
        assert lab.run(["ssh", name, "hostname"]).stdout.strip() == name
        assert lab.run(["ssh", "-F", str(lab.ssh_config), lab.address(name), "hostname"]).stdout.strip() == name
    assert lab.run(["ssh", "node1", "ssh node3 ssh node2 hostname"]).stdout == "node2\n"


def test_a_login_is_not_that_of_the_machines_user(lab: Lab) -> None:
    """Else what the developer has in .bashrc would be part of every test."""
    own = Path.home() / ".bashrc"
    before = own.read_text() if own.exists() else None
    assert lab.run("ssh node1 cat .bashrc .profile .ssh/*").stdout == ""
    lab.on("node1", f"echo 'echo noise' > {own}", check=True)
    assert lab.run("ssh node1 true").stdout == "noise\n"
    lab.on("node1", f": > {own}", check=True)
    assert (own.read_text() if own.exists() else None) == before


def round_trip(lab: Lab) -> float:
    """Milliseconds between node1 and node2, the median of some."""
    done = lab.on("node1", "ping -c 9 -i 0.02 node2")
    times = sorted(float(line.partition("time=")[2].split()[0]) for line in done.stdout.splitlines() if "time=" in line)
    return times[len(times) // 2]


def test_a_connection_lives_through_a_change_of_rate_and_a_cut(lab: Lab) -> None:
    talk = lab.popen(["ssh", "node1", "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    assert talk.stdin is not None
    assert talk.stdout is not None
    for change in (
        lambda: None,
        lambda: lab.shape("node1", rate="40mbit"),
        lambda: lab.link("node1", up=False),
        lambda: lab.link("node1", up=True),
    ):
        change()
        talk.stdin.write("hear me\n")
    for _ in range(4):
        assert talk.stdout.readline() == "hear me\n"
    lab.shape("node1")
    talk.communicate()


def test_a_cut_link_reaches_nobody_until_it_is_mended(lab: Lab) -> None:
    lab.link("node3", up=False)
    assert "NO-CARRIER" in lab.on("node3", "ip link show eth0").stdout
    assert lab.run("ping -c1 -W1 node3").returncode == 1
    lab.link("node3", up=True)
    assert lab.run("ping -c1 -W5 node3").returncode == 0


def test_a_host_without_power_comes_back_with_its_disk_only(lab: Lab) -> None:
    lab.on("node3", "echo kept > /var/kept; echo lost > /dev/shm/lost; sleep 1000 >/dev/null 2>&1 &", check=True)
    assert lab.processes("node3") == ["sleep 1000"]
    lab.shape("node3", rate="1gbit")
    lab.kill("node3")
    assert lab.run("ssh -o ConnectTimeout=1 node3 true").returncode == 255
    with pytest.raises(LabError, match="node3 has no power"):
        lab.on("node3", "true")
    lab.boot("node3")
    assert lab.run("ssh node3 cat /var/kept /dev/shm/lost").stdout == "kept\n"
    assert lab.processes("node3") == []
    assert "rate 1Gbit" in lab.on("node3", "tc qdisc show dev eth0").stdout
    lab.shape("node3")


@pytest.mark.parametrize("silent", [True, False])
def test_who_talks_to_a_host_that_loses_power_hears_nothing_unless_it_shuts_down(lab: Lab, silent: bool) -> None:
    talk = lab.popen(["ssh", "node2", "echo begun; sleep 1000"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert talk.stdout is not None
    assert talk.stdout.readline() == b"begun\n"
    lab.kill("node2", silent=silent)
    if silent:
        with pytest.raises(subprocess.TimeoutExpired):
            talk.wait(timeout=1)
        talk.kill()
    assert talk.wait() in {255, -signal.SIGKILL}
    talk.stdout.close()
    lab.boot("node2")


def test_processes_tells_what_was_left_behind(lab: Lab) -> None:
    assert lab.processes("node1") == lab.processes(CONTROLLER) == []
    client = lab.popen(["ssh", "node1", "sleep 1001"])
    until(lambda: lab.processes("node1") == ["sleep 1001"], "the program")
    assert lab.processes(CONTROLLER) == ["ssh node1 sleep 1001"]
    client.kill()
    client.wait()
    assert lab.processes(CONTROLLER) == []
    assert lab.processes("node1") == ["sleep 1001"]  # a killed ssh leaves it running: that is what tests must find
    lab.signal("node1", ["sleep"])
    until(lambda: lab.processes("node1") == [], "its end")


def test_slurm_takes_a_rebooted_host_back(lab: Lab, slurm: Slurm) -> None:
    lab.kill("node3")
    lab.boot("node3")
    slurm.start("node3")
    slurm.wait_for(lab.hosts)
    done = lab.run("srun -w node3 hostname", env={**os.environ, **slurm.environment})
    assert done.stdout == "node3\n"


def test_slurm_is_started_once_and_is_no_process_left_behind(lab: Lab, slurm: Slurm) -> None:
    assert lab.slurm(gpus=2) is slurm
    with pytest.raises(LabError, match="2 GPUs a host, not 1"):
        lab.slurm(gpus=1)
    assert lab.processes("node1") == lab.processes(CONTROLLER) == []


def test_links_are_shaped_as_the_lab_was_asked_and_two_labs_do_not_meet(lab: Lab, make_lab: Callable[..., Lab]) -> None:
    other = make_lab(2, rate="1gbit", delay="20ms")
    assert round_trip(lab) < 20 < 40 <= round_trip(other)
    assert "rate 1Gbit" in other.on("node1", "tc qdisc show dev eth0").stdout
    assert other.address("node1") != lab.address("node1")
    assert other.run(f"ping -c1 -W1 {lab.address('node1')}").returncode != 0
    assert other.run("ssh node1 hostname").stdout == "node1\n"
    other.close()
    assert lab.run("ssh node1 hostname").stdout == "node1\n"
