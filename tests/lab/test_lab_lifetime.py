"""Labs of their own: what starts and ends with a lab, what is left of one, what it needs, and how it can be made."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import until

from . import CONTROLLER, Lab, LabError, hosts, missing_requirement, namespaces
from .hosts import remove_leftovers
from .namespaces import members

pytestmark = pytest.mark.hosts


def alive(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


def mentioned(folder: Path) -> list[str]:
    """Command lines in which a lab's folder is named, as in those of all its first processes."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if str(folder) in line:
            lines.append(line.replace("\0", " "))
    return lines


def test_slurm_stops_and_leaves_the_machines_own_alone(make_lab: Callable[..., Lab]) -> None:
    if reason := missing_requirement(slurm=True):
        pytest.skip(reason)
    machines = ["/run/munge", "/etc/munge", "/etc/slurm", "/var/log/munge", "/var/lib/munge", "/var/spool/slurmd.lab"]
    listing = ["ls", "-lR", "--time-style=full-iso", *machines]
    before = subprocess.run(listing, capture_output=True, check=False)
    other = make_lab(1)
    slurm = other.slurm()
    assert slurm.states() == {"node1": "idle"}
    assert ":6817 " in other.run("ss -ltn").stdout
    slurm.stop()
    until(lambda: ":6817 " not in other.run("ss -ltn").stdout, "slurmctld's end")
    until(lambda: "slurmd" not in other.on("node1", "ps -e -o comm=").stdout, "slurmd's end")
    after = subprocess.run(listing, capture_output=True, check=False)
    assert (after.stdout, after.stderr) == (before.stdout, before.stderr)


def test_nothing_is_left_of_a_closed_lab(make_lab: Callable[..., Lab]) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    short = make_lab(2, delay="1ms")
    left = short.popen(["sleep", "1000"])
    short.on("node1", "setsid sleep 1000 >/dev/null 2>&1 &")
    until(lambda: short.processes(CONTROLLER) == short.processes("node1") == ["sleep 1000"], "both")
    # A namespace without a name is gone with its last process.
    spaces = [short._switch, *short._spaces.values()]
    pids = {
        pid
        for space in spaces
        if space
        for kind in ("net", "mnt", "pid_for_children")
        for pid in members(kind, space.pid)
    }
    assert left.pid in pids
    assert len(pids) > 8
    assert mentioned(short.folder)
    short.close()
    assert left.wait() == -signal.SIGKILL
    assert not [pid for pid in pids if alive(pid)]
    assert not mentioned(short.folder)
    assert Path("/proc/self/mounts").read_text() == mounts
    assert not short.folder.exists()
    short.close()  # a second time is no harm


def test_nothing_is_left_of_a_lab_that_did_not_come_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    if reason := missing_requirement():
        pytest.skip(reason)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(LabError, match=r"node1 did not start:\n.*taskset"):
        Lab(1, cores=[[100_000]])
    with pytest.raises(LabError, match="rate 'fast': a number and one of kbit, mbit, gbit"):
        Lab(1, rate="fast")
    monkeypatch.setattr(hosts, "_SCRIPTS", tmp_path / "none")
    with pytest.raises(LabError, match=r"switch did not start:\n.*switch.sh"):
        Lab(1)
    assert not mentioned(tmp_path)
    assert not list(tmp_path.iterdir())


OWNER = """
import sys
import tempfile
from lab import Lab
lab = Lab(2, delay="1ms")
lab.on("node1", "setsid sleep 1000 >/dev/null 2>&1 &")
print(lab.folder, *(space.pid for space in (lab._switch, *lab._spaces.values())), flush=True)
sys.stdin.read()
"""


def test_nothing_is_left_of_a_lab_whose_owner_was_killed(make_lab: Callable[..., Lab]) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER],
        cwd=Path(__file__).parents[1],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout is not None
    folder, *pids = owner.stdout.readline().split()
    assert all(alive(int(pid)) for pid in pids)
    remove_leftovers()
    assert Path(folder).exists(), "a living owner's"
    owner.kill()
    owner.communicate()
    until(lambda: not any(alive(int(pid)) for pid in pids), "the end of its processes")
    remove_leftovers()
    assert not Path(folder).exists()


def test_needs_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(namespaces, "SEARCH", "/no such folder")
    assert "sshd" in (missing_requirement() or "")
    assert "slurmctld" not in (missing_requirement() or "")
    assert "slurmctld" in (missing_requirement(slurm=True) or "")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert missing_requirement() == "a lab of hosts needs root"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert missing_requirement() == "a lab of hosts needs Linux"


def test_a_host_has_the_cores_it_was_given(make_lab: Callable[..., Lab]) -> None:
    first, last = min(os.sched_getaffinity(0)), max(os.sched_getaffinity(0))
    pinned = make_lab(2, cores=[[first], [last]])
    for name, core in (("node1", first), ("node2", last)):
        assert pinned.run(["ssh", name, "taskset --cpu-list --pid $$"]).stdout.rpartition(":")[2].strip() == str(core)
