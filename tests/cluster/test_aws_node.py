"""The first boot of the nodes, on hosts of their own: node.sh runs as on EC2, with real sshd, keys and mounts.

Made up are only what a host without EC2 lacks: the metadata service, CloudFormation's ear, the package manager, the
service manager, and NFS, in whose place the lab's shared folder is mounted.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import pytest

from lab import CONTROLLER, Lab
from trainscale.cluster.aws import MASTER, WORKER, ClusterNode, Stack, format_ssh_config

pytestmark = pytest.mark.hosts

SCRIPT = resources.files("trainscale.cluster").joinpath("aws_node.sh").read_text()
SERVICES = Path(__file__).with_name("aws_boot.py")
FILE_SYSTEM = "fs-1.efs.us-west-2.amazonaws.com"
STAND_INS = {
    "apt-get": 'echo "$@" >> /var/log/apt-get.log',
    # What is in /etc/fstab is mounted, and nothing else.
    "mount": 'grep -q "^{file_system}:/ $1 nfs4 .*noresvport" /etc/fstab && exec /usr/bin/mount --bind {shared} "$1"',
    # sshd reads its configuration: the machine's own, not that of the lab.
    "systemctl": '[ "$*" = "try-reload-or-restart ssh" ] && exec /usr/sbin/sshd',
}


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    if shutil.which("curl") is None:
        pytest.skip("the nodes of a cluster on AWS have curl, this machine has not")
    lab = make_lab(4)
    for host in lab.hosts:
        for name, line in STAND_INS.items():
            text = line.format(file_system=FILE_SYSTEM, shared=lab.shared)
            file = lab.file(host, f"/usr/local/bin/{name}")
            file.write_text(f"#!/bin/sh\n{text}\n")
            file.chmod(0o755)
        # As on the image: a user who may log in with a key, and the machine's own ssh configuration.
        lab.on(host, "useradd --create-home --shell /bin/bash ubuntu && usermod --password '*' ubuntu", check=True)
        lab.on(host, "echo 'Include /etc/ssh/ssh_config.d/*.conf' > /etc/ssh/ssh_config", check=True)
        lab.on(host, "install -d -m 700 -o ubuntu /home/ubuntu/.ssh && rm -f /etc/ssh/ssh_host_*", check=True)
        # EC2 lets the owner of the key pair in.
        allowed = lab.file(host, "/home/ubuntu/.ssh/authorized_keys")
        allowed.write_text((lab.folder / "keys" / "client.pub").read_text())
        lab.signal(host, ["sshd"])
    return lab


@pytest.fixture(scope="module")
def services(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Their address, and the file of what nodes reported."""
    log_path = tmp_path_factory.mktemp("aws") / "heard"
    log_path.touch()
    argv = [sys.executable, str(SERVICES), lab.address(CONTROLLER), str(log_path)]
    process = lab.popen(argv, stdout=subprocess.PIPE, text=True)
    yield f"http://{lab.address(CONTROLLER)}:{process.stdout.readline().strip()}", log_path
    process.kill()
    process.communicate()


def boot(lab: Lab, host: str, address: str, role: str, nodes: int, login: str = "ubuntu") -> subprocess.Popen[str]:
    head = (
        f"export ROLE={role} NODES={nodes} CLUSTER=demo LOGIN={login} FILE_SYSTEM={FILE_SYSTEM}\n"
        f"export READY='{address}/ready?a=1&b=%2F' METADATA={address}\n"
        "export PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n"
    )
    return subprocess.Popen(
        [*lab.inside(host), "bash", "-c", head + SCRIPT],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.fixture(scope="module")
def cluster(lab: Lab, services: tuple[str, Path]) -> list[dict[str, str]]:
    """Three nodes that boot together, the master last in the order of addresses. What they reported."""
    address, log_path = services
    roles = {"node1": "worker", "node2": "worker", "node3": "master"}
    booting = {host: boot(lab, host, address, role, nodes=2) for host, role in roles.items()}
    for host, process in booting.items():
        out, _ = process.communicate(timeout=120)
        assert process.returncode == 0, f"{host}: {out}"
    return [json.loads(line) for line in log_path.read_text().splitlines()]


def as_user(lab: Lab, host: str, command: str) -> subprocess.CompletedProcess[str]:
    return lab.on(host, ["runuser", "-u", "ubuntu", "--", "sh", "-c", command])


def test_the_master_reports_once_when_all_workers_are_reached(lab: Lab, cluster: list[dict[str, str]]) -> None:
    master = lab.address("node3")
    assert cluster == [
        {"Status": "SUCCESS", "UniqueId": f"master-{master}", "Data": master, "Reason": "2 workers reached"}
    ]


def test_the_file_system_is_shared_with_its_list_of_nodes(lab: Lab, cluster: list[dict[str, str]]) -> None:
    expected = f"{lab.address('node1')} demo-worker1\n{lab.address('node2')} demo-worker2\n"
    for host in ("node1", "node2", "node3"):
        assert as_user(lab, host, "cat /shared/nodes").stdout == expected
    assert as_user(lab, "node1", "echo hello > /shared/file").returncode == 0
    assert as_user(lab, "node2", "cat /shared/file").stdout == "hello\n"
    assert as_user(lab, "node1", "echo x >> /shared/.trainscale/authorized_keys").returncode != 0
    assert "install nfs-common python3-venv" in lab.on("node1", "cat /var/log/apt-get.log").stdout
    private_keys = lab.on(
        "node1", "grep -rl 'PRIVATE KEY' /shared; grep -rc 'ssh-ed25519' /shared/.trainscale/authorized_keys"
    )
    assert private_keys.stdout == "3\n"


@pytest.mark.parametrize("source", ["node1", "node2", "node3"])
@pytest.mark.parametrize(
    ("alias", "target"), [("demo-worker1", "node1"), ("demo-worker2", "node2"), ("demo-master", "node3")]
)
def test_every_node_reaches_every_other_by_name_and_address_without_a_question(
    source: str, alias: str, target: str, lab: Lab, cluster: list[dict[str, str]]
) -> None:
    for name in (alias, lab.address(target)):
        done = as_user(lab, source, f"ssh -o BatchMode=yes -o StrictHostKeyChecking=yes {name} hostname")
        assert (done.stdout, done.returncode) == (f"{target}\n", 0), done.stderr


def test_the_ssh_configuration_leads_from_outside_through_the_master(
    lab: Lab, cluster: list[dict[str, str]], tmp_path: Path
) -> None:
    stack = Stack("demo", "id", "CREATE_COMPLETE", "", datetime.now(UTC), {"Login": "ubuntu"}, {})
    hostnames = [
        ClusterNode("i-3", MASTER, "demo-master", "m7i.xlarge", "running", "10.0.0.1", lab.address("node3")),
        ClusterNode("i-1", WORKER, "demo-worker1", "p2.xlarge", "running", lab.address("node1"), ""),
        ClusterNode("i-2", WORKER, "demo-worker2", "p2.xlarge", "running", lab.address("node2"), ""),
    ]
    config = tmp_path / "nodes.ssh_config"
    text = format_ssh_config("us-west-2", stack, hostnames, str(lab.folder / "keys" / "client"))
    config.write_text(f"{text}\nHost *\n    UserKnownHostsFile {tmp_path}/known_hosts\n")
    done = lab.run(["ssh", "-F", str(config), "-o", "BatchMode=yes", "demo-worker2", "hostname; echo $SSH_CONNECTION"])
    assert done.returncode == 0, done.stderr
    host, connection = done.stdout.splitlines()
    assert host == "node2"
    assert connection.split()[0] == lab.address("node3")  # the worker was called by the master
    assert sorted(line.split()[0] for line in (tmp_path / "known_hosts").read_text().splitlines()) == ["i-2", "i-3"]


def test_a_stranger_is_not_let_in(lab: Lab, cluster: list[dict[str, str]]) -> None:
    """A host of the same network that is no node, with the nodes' host keys but without a key of theirs."""
    lab.on("node4", ["runuser", "-u", "ubuntu", "--", "ssh-keygen", "-q", "-N", "", "-f", "/home/ubuntu/.ssh/id_rsa"])
    options = "-o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null"
    done = as_user(lab, "node4", f"ssh {options} {lab.address('node1')} hostname")
    assert done.returncode == 255
    assert "Permission denied" in done.stderr


def test_a_first_boot_that_fails_is_reported_with_its_reason(
    lab: Lab, cluster: list[dict[str, str]], services: tuple[str, Path]
) -> None:
    address, log_path = services
    process = boot(lab, "node4", address, "worker", nodes=2, login="nobody-of-this-name")
    out, _ = process.communicate(timeout=60)
    assert process.returncode != 0, out
    last = json.loads(log_path.read_text().splitlines()[-1])
    assert last["Status"] == "FAILURE"
    assert last["UniqueId"] == f"worker-{lab.address('node4')}"
    assert "of its first boot failed: chown" in last["Reason"]
