"""``trainscale check --hosts`` on real hosts: those that are well, and those with every trouble there is."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import until

from lab import Lab

# One good host, and one for each trouble; and four more to measure the network between.
TROUBLES = ("key", "unknown", "changed", "closed", "silent", "full", "python", "old", "module", "hung")


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(4 + len(TROUBLES))


def check(lab: Lab, folder: Path, *arguments: str, columns: int = 120) -> subprocess.CompletedProcess[str]:
    return lab.run(
        [sys.executable, "-m", "trainscale", "check", *arguments],
        cwd=folder,
        env={**os.environ, "COLUMNS": str(columns)},
        timeout=120,
    )


def plain(text: str) -> str:
    """Without the breaks that a narrow terminal makes."""
    return re.sub(r"\s+", " ", text)


def hosts_file(folder: Path, lines: list[str]) -> str:
    (folder / "nodes").write_text("".join(f"{line}\n" for line in lines))
    return "nodes"


@pytest.mark.framework
@pytest.mark.hosts
def test_hosts_that_are_well(lab: Lab, tmp_path: Path) -> None:
    nodes = hosts_file(tmp_path, [f"{lab.address(name)} {name}" for name in lab.hosts[:3]])
    done = check(lab, tmp_path, "--hosts", nodes, columns=80)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    rows = {line.split()[1]: line.split() for line in done.stdout.splitlines() if line.startswith("✓")}
    assert list(rows) == lab.hosts[:3]
    for cells in rows.values():
        assert re.fullmatch(r"3\.\d+\.\d+", cells[2])
        assert float(cells[-1]) > 0  # milliseconds
        assert float(cells[-2]) > 0  # Gbit/s
        assert cells[-4:-2] == ["0", "s"]  # of the clock
    text = plain(done.stdout)
    assert "3 of 3 hosts can be used: 3 hosts with" in text
    assert "the slowest pair is node" in text
    import torch

    assert f"torch {torch.__version__} all 3 hosts" in text
    assert "copied to 3 just now" in text
    assert "✗" not in text
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert [lab.processes(name) for name in lab.hosts[:3]] == [[], [], []]


@pytest.mark.hosts
@pytest.mark.slow
def test_a_framework_that_is_named_is_imported_and_the_worker_is_not_copied_again(lab: Lab, tmp_path: Path) -> None:
    hosts_file(tmp_path, lab.hosts[:3])
    (tmp_path / "study.toml").write_text('hosts = "nodes"\nhosts-count = 1\n')
    check(lab, tmp_path, "study.toml")
    odd = lab.shared / "odd"
    (odd / "jax").mkdir(parents=True)
    (odd / "jax" / "__init__.py").write_text("raise RuntimeError('no such processor')\n")
    done = check(
        lab, tmp_path, "study.toml", "--frameworks", "torch,jax", "--python", f"jax={sys.executable}",
        "--setup", f"export PYTHONPATH={odd}",
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    text = plain(done.stdout)
    assert "1 of 1 host can be used" in text
    assert "was there already" in text
    assert "jax: node1: jax does not import: RuntimeError: no such processor" in text
    assert "✗ torch" not in text
    assert "tensorflow" not in text


@pytest.fixture(scope="module")
def troubled(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """One call for everything that can be wrong at once."""
    folder = tmp_path_factory.mktemp("troubled")
    host = dict(zip(TROUBLES, lab.hosts[4:], strict=True))
    for name in lab.hosts[:4]:
        lab.shape(name, rate="20mbit" if name == "node2" else "500mbit")
    lab.on(host["key"], ["rm", "/run/lab/authorized_keys"], check=True)
    firewall = "table inet f { chain i { type filter hook input priority 0; tcp dport 22 drop; }; }"
    lab.on(host["silent"], ["nft", "-f", "-"], input=firewall, check=True)
    lab.on(host["full"], "mkdir /small && mount -t tmpfs -o size=80k small /small", check=True)
    old = lab.shared / "python3.8"
    old.write_text(
        f"#!/bin/sh\nexec {sys.executable} -c 'import sys\n"
        'sys.version_info, sys.version = (3, 8, 18), "3.8.18"\nexec(sys.argv.pop(1))\' "$2"\n'
    )
    old.chmod(0o755)
    # A clock can only be wrong in the eyes of one program here; so can a version.
    odd = lab.shared / "late"
    (odd / "torch").mkdir(parents=True)
    (odd / "torch" / "__init__.py").touch()
    (odd / "torch-1.0.0.dist-info").mkdir()
    (odd / "torch-1.0.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 1.0.0\n")
    (odd / "sitecustomize.py").write_text("import time\nreal = time.time\ntime.time = lambda: real() - 7.5\n")
    keys = lab.folder / "keys"
    (keys / "empty").touch()
    (keys / "other").write_text(f"{host['changed']} {(keys / 'node1.pub').read_text()}")
    config = (
        f"Host {host['unknown']}\n  UserKnownHostsFile {keys}/empty\n"
        f"Host {host['changed']}\n  UserKnownHostsFile {keys}/other\n{lab.ssh_config.read_text()}"
    )
    (folder / "ssh config").write_text(config)
    lines = [
        "node1",
        "node2",
        f"node3 setup='export PYTHONPATH={odd}'",
        "node4",
        "no.such.name",
        host["key"],
        host["unknown"],
        host["changed"],
        f"{host['closed']}:2222",
        host["silent"],
        host["full"],
        f"{host['python']} python=/opt/no/python3",
        f"{host['old']} python={old}",
        f"{host['module']} setup='module load cuda'",
        f"{host['hung']} setup='sleep 1000'",
    ]
    return check(
        lab, folder, "--hosts", hosts_file(folder, lines), "--ssh-config", "ssh config", "--remote-dir", "/small",
        columns=80,
    )  # fmt: skip


@pytest.mark.hosts
def test_every_trouble_is_told_with_its_remedy(troubled: subprocess.CompletedProcess[str], lab: Lab) -> None:
    assert troubled.returncode == 1, troubled.stderr
    text = plain(troubled.stdout)
    host = dict(zip(TROUBLES, lab.hosts[4:], strict=True))
    for message in (
        "✗ no.such.name: unknown name: neither ssh's configuration nor this machine's network knows no.such.name"
        " → correct it in the hosts file",
        f"✗ {host['key']}: permission denied: it does not let root in (publickey) → put your public key there"
        f" (ssh-copy-id {host['key']})",
        f"✗ {host['unknown']}: host key unknown: its ssh host key is not known here → log in once by hand",
        f"✗ {host['changed']}: host key changed: its ssh host key is not the one that is known here → if the host was"
        f" set up anew: ssh-keygen -R {host['changed']}",
        f"✗ {host['closed']}: connection refused: nothing listens on its port 2222 → start sshd there",
        f"✗ {host['silent']}: time-out: it does not answer → is it on",
        f"✗ {host['full']}: no space: none is left in /small → make room there, or name another folder of the hosts:"
        " --remote-dir DIR",
        f"✗ {host['python']}: no Python: /opt/no/python3 cannot be started there → install Python 3.9 or newer there",
        f"✗ {host['old']}: Python too old: 3.8.18 → install Python 3.9 or newer there",
        f"✗ {host['module']}: set-up line failed: module load cuda (/bin/bash: line 1: module: command not found)",
        f"✗ {host['hung']}: no answer in time → does it answer at once to: ssh ",
    ):
        assert message in text, message


@pytest.mark.hosts
def test_the_others_are_looked_at_and_a_slow_pair_a_wrong_clock_and_another_version_are_told(
    troubled: subprocess.CompletedProcess[str],
) -> None:
    rows = {line.split()[1]: line[0] for line in troubled.stdout.splitlines() if re.match("[✓✗]  ", line)}
    assert [name for name, mark in rows.items() if mark == "✓"] == ["node1", "node2", "node3", "node4"]
    assert "4 of 15 hosts can be used" in troubled.stdout
    assert max(map(len, troubled.stdout.splitlines())) <= 80
    text = plain(troubled.stdout)
    assert re.search(r"the slowest pair is (node1 → node2|node2 → node3): 0\.0\d\d Gbit/s", text)
    for pair in ("node1 → node2", "node2 → node3"):
        assert re.search(rf"⚑ {pair}: 0\.0\d\d Gbit/s, where other pairs have 0\.\d+ → check the cable", text), pair
    assert "⚑ node3: its clock is 7.5 s behind this machine's → let both follow a time server" in text
    assert re.search(r"✗ torch is not the same on all hosts: .* on node1, node2, node4; 1\.0\.0 on node3", text)


@pytest.mark.hosts
def test_nothing_is_left_on_hosts_that_answered(troubled: subprocess.CompletedProcess[str], lab: Lab) -> None:
    until(lambda: not any(lab.processes(name) for name in lab.hosts[:-1]), "the end of all keepers")
    # A set-up line that hangs is not ours to end; when it is over, so is the rest.
    assert all("sleep 1000" in line for line in lab.processes(lab.hosts[-1]))


@pytest.mark.hosts
def test_a_firewall_between_hosts_is_told(lab: Lab, tmp_path: Path) -> None:
    hosts_file(tmp_path, lab.hosts[:2])
    firewall = "table inet f { chain i { type filter hook input priority 0; tcp dport >= 10000 ct state new drop; }; }"
    lab.on("node2", ["nft", "-f", "-"], input=firewall, check=True)
    try:
        done = check(lab, tmp_path, "--hosts", "nodes")
    finally:
        lab.on("node2", ["nft", "flush", "ruleset"], check=True)
    assert done.returncode == 1, done.stderr
    text = plain(done.stdout)
    assert "2 of 2 hosts can be used" in text
    assert "✗ node1 → node2: no connection between them: no answer in time → training connects the hosts" in text
    assert "node2 → node1: no connection" not in text


@pytest.mark.hosts
def test_the_network_of_training_is_the_one_that_is_named(lab: Lab, tmp_path: Path) -> None:
    hosts_file(tmp_path, lab.hosts[:2])
    done = check(lab, tmp_path, "--hosts", "nodes", "--interface", "eth7")
    assert done.returncode == 1
    stdout = plain(done.stdout)
    assert "interface 'eth7': node1 has none of this name with an address; it has" in stdout
    assert "0 of 2 hosts can be used" in stdout
    done = check(lab, tmp_path, "--hosts", "nodes", "--interface", lab.address("node1").rpartition(".")[0] + ".0/24")
    assert done.returncode == 0, done.stdout
