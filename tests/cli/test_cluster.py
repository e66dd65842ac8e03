"""``trainscale cluster`` as people type it, against a simulated AWS: up, status, hosts, ssh, down, questions."""

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from cluster_commands import HERE, UP, output_of
from command import trainscale, trainscale_at_terminal
from processes import until
from simulated_aws import IMAGE, REGION, Server

from trainscale import cli
from trainscale.cluster import aws as stacks
from trainscale.cluster.hosts import read_hosts

# ---- the whole way

pytestmark = [pytest.mark.usefixtures("aws"), pytest.mark.processes]


def test_up_shows_the_cost_makes_the_cluster_and_says_what_comes_next(account: Server, tmp_path: Path) -> None:
    output = output_of(tmp_path, *UP, *HERE, "--yes", "--zone", f"{REGION}b")
    assert "3 workers p4d.24xlarge (8 × NVIDIA A100 40GB, 4 EFA each) and a master" in output
    assert "AWS bills for this until you run cluster down:\n  3 × p4d.24xlarge\n  a master, m7i.xlarge\n" in output
    assert "from 203.0.113.7/32, with the key pair key" in output
    assert "trainscale: ready in " in output
    assert f"trainscale cluster down --name trainscale --region {REGION}" in output
    resources = account.resources()
    assert resources["stacks"] == ["trainscale"]
    assert len(resources["instances"]) == 4
    (stack,) = account.client("cloudformation").describe_stacks()["Stacks"]
    parameters = {item["ParameterKey"]: str(item["ParameterValue"]) for item in stack["Parameters"]}
    assert parameters["WorkerImage"] == parameters["MasterImage"] == IMAGE
    assert (parameters["Nodes"], parameters["Zone"], parameters["SshFrom"]) == ("3", f"{REGION}b", "203.0.113.7/32")


def test_status_lists_the_nodes_and_what_they_cost(
    cluster: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = output_of(tmp_path, "cluster", "status", *HERE)
    assert f"cluster trainscale in {REGION}: CREATE_COMPLETE" in output
    assert re.search(r"created \d+ s ago; AWS bills for it until cluster down", output)
    rows = [line.split() for line in output.splitlines() if line.startswith("  trainscale-")]
    assert [row[:3] for row in rows] == [
        ["trainscale-master", "m7i.xlarge", "running"],
        *(["trainscale-worker" + str(n), "p4d.24xlarge", "running"] for n in (1, 2, 3)),
    ]
    monkeypatch.setenv("AWS_REGION", REGION)  # names the region where no flag does; --wait ends if nothing goes on
    assert "CREATE_COMPLETE" in output_of(tmp_path, "cluster", "status", "--wait")


def test_a_name_that_is_taken_is_told(cluster: Server, tmp_path: Path, refused: Callable[..., str]) -> None:
    assert "there is already a cluster 'trainscale' in us-west-2 (CREATE_COMPLETE" in refused(*UP, *HERE, "--yes")


@pytest.mark.skipif(shutil.which("ssh") is None, reason="there is no ssh here (tests/needs.sh installs it on Debian)")
def test_hosts_writes_the_nodes_file_and_an_ssh_configuration_that_openssh_understands(
    cluster: Server, tmp_path: Path
) -> None:
    output = output_of(tmp_path, "cluster", "hosts", *HERE, "-i", "my key.pem")
    assert "trainscale run --hosts nodes --ssh-config nodes.ssh_config -g 8\n" in output
    assert "on the master: trainscale run --hosts /shared/nodes -g 8\n" in output
    hosts = read_hosts(tmp_path / "nodes")
    assert [host.alias for host in hosts] == ["trainscale-worker1", "trainscale-worker2", "trainscale-worker3"]
    assert all(re.fullmatch(r"10\.0\.16\.\d+", host.address) for host in hosts)

    def seen_by_ssh(alias: str) -> dict[str, str]:
        shown = subprocess.run(
            ["ssh", "-G", "-F", "nodes.ssh_config", alias], cwd=tmp_path, capture_output=True, text=True, check=True
        )
        return dict(line.split(" ", 1) for line in shown.stdout.splitlines() if " " in line)

    worker = seen_by_ssh("trainscale-worker2")
    assert (worker["hostname"], worker["user"]) == (hosts[1].address, "ubuntu")
    assert worker["proxyjump"] == "trainscale-master"
    assert worker["hostkeyalias"].startswith("i-")
    assert worker["identityfile"] == str(tmp_path / "my key.pem")
    assert worker["forwardagent"] == "no"
    (address,) = (item for item in cluster.client("ec2").describe_addresses()["Addresses"] if item["InstanceId"])
    assert seen_by_ssh("trainscale-master")["hostname"] == address["PublicIp"]


def test_hosts_replaces_its_own_files_and_no_others(
    cluster: Server, tmp_path: Path, refused: Callable[..., str]
) -> None:
    output_of(tmp_path, "cluster", "hosts", *HERE)
    output_of(tmp_path, "cluster", "hosts", *HERE)
    (tmp_path / "mine").write_text("10.1.1.1 precious\n")
    assert "mine exists and was not written by this command" in refused("cluster", "hosts", *HERE, "-o", "mine")
    assert (tmp_path / "mine").read_text() == "10.1.1.1 precious\n"
    output_of(tmp_path, "cluster", "hosts", *HERE, "-o", "other")
    assert (tmp_path / "other").read_text() == (tmp_path / "nodes").read_text()


def test_ssh_is_openssh_to_the_master_without_the_agent_unless_asked(cluster: Server, tmp_path: Path) -> None:
    output = output_of(tmp_path, "cluster", "ssh", *HERE, "--print", "--", "echo", "a b; c")
    *options, target, _, command = shlex.split(output)
    assert re.fullmatch(r"ubuntu@[\d.]+", target)
    assert re.fullmatch(r"ssh -o HostKeyAlias=i-\w+ -o StrictHostKeyChecking=accept-new -a", " ".join(options))
    assert shlex.split(command) == ["echo", "a b; c"]  # what the master's shell will make of it
    kept = output_of(tmp_path, "cluster", "ssh", *HERE, "--print", "--debug", "--", "train", "--debug")
    assert kept.rstrip().endswith("-- 'train --debug'")
    assert " -A -i key.pem ubuntu@" in output_of(tmp_path, "cluster", "ssh", *HERE, "--print", "-A", "-i", "key.pem")


def test_ssh_becomes_the_ssh_program(cluster: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 7\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=os.pathsep)
    done = trainscale(tmp_path, "cluster", "ssh", *HERE, "--", "nvidia-smi")
    assert done.returncode == 7
    assert done.stdout.splitlines()[-2:] == ["--", "nvidia-smi"]


def test_hosts_writes_nothing_while_workers_are_missing(
    own_cluster: Server, tmp_path: Path, refused: Callable[..., str]
) -> None:
    instances = own_cluster.client("autoscaling").describe_auto_scaling_instances()["AutoScalingInstances"]
    own_cluster.client("ec2").stop_instances(InstanceIds=[instances[0]["InstanceId"]])
    assert "2 of 3 workers of 'trainscale' are running" in refused("cluster", "hosts", *HERE, code=1)


def test_down_leaves_nothing(own_cluster: Server, tmp_path: Path) -> None:
    output = output_of(tmp_path, "cluster", "down", *HERE, "--yes")
    assert re.search(r"trainscale: removed in \d+ s, nothing is left", output)
    assert own_cluster.resources() == {}
    assert "nothing is left of one" in output_of(tmp_path, "cluster", "down", *HERE, "--yes")


def test_down_after_a_half_failed_up_leaves_nothing(
    account: Server, tmp_path: Path, refused: Callable[..., str]
) -> None:
    with account.refusing_groups("VcpuLimitExceeded: more than your current vCPU limit of 0 allows"):
        done = trainscale(tmp_path, *UP, *HERE, "--yes")
    assert done.returncode == 1
    assert "trainscale was not created (ROLLBACK_FAILED): Workers: VcpuLimitExceeded: more than" in done.stderr
    assert "your account's quota for this family is too small" in done.stderr
    assert f"trainscale cluster down --name trainscale --region {REGION}" in done.stderr
    assert {"stacks", "networks", "nat", "addresses", "instances", "files", "roles"} <= set(account.resources())

    shown = trainscale(tmp_path, "cluster", "status", *HERE)
    assert shown.returncode == 1
    assert "VcpuLimitExceeded" in shown.stdout
    assert "the remains of a failed start" in refused(*UP, *HERE, "--yes")

    output_of(tmp_path, "cluster", "down", *HERE, "--yes")
    assert account.resources() == {}


def test_workers_that_cannot_be_had_end_up_at_once_and_what_was_made_is_taken_down(
    account: Server, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The simulated AWS starts every instance; here its group says that it could not."""

    def fail(*_: object) -> None:
        assert len(account.resources()["instances"]) == 4
        raise stacks.CannotStartWorkers("VcpuLimitExceeded\n  ask for more")

    monkeypatch.setattr(stacks, "wait_until_settled", fail)
    assert cli.main([*UP, *HERE, "--yes"]) == 1
    output = capsys.readouterr()
    assert "AWS cannot start the workers; removing what was created" in output.out
    assert output.err == "trainscale: trainscale was not created: VcpuLimitExceeded\n  ask for more\n"
    assert account.resources() == {}


@pytest.mark.slow
def test_down_touches_no_other_cluster_and_no_other_stack(
    own_cluster: Server, tmp_path: Path, refused: Callable[..., str]
) -> None:
    output_of(tmp_path, *UP, *HERE, "--yes", "--name", "second")
    template = '{"Resources": {"Net": {"Type": "AWS::EC2::VPC", "Properties": {"CidrBlock": "10.9.0.0/16"}}}}'
    formation = own_cluster.client("cloudformation")
    formation.create_stack(StackName="theirs", TemplateBody=template)
    output_of(tmp_path, "cluster", "down", *HERE, "--yes")
    assert sorted(own_cluster.resources()["stacks"]) == ["second", "theirs"]
    assert len(own_cluster.resources()["instances"]) == 4
    assert "'theirs' in us-west-2 was not made by trainscale" in refused(
        "cluster", "down", *HERE, "--yes", "--name", "theirs"
    )
    output_of(tmp_path, "cluster", "down", *HERE, "--yes", "--name", "second")
    assert own_cluster.resources()["stacks"] == ["theirs"]
    formation.delete_stack(StackName="theirs")


# ---- asking


@pytest.mark.parametrize("answer", ["n\n", "\n", "what?\n", "\x04"], ids=["no", "enter", "nonsense", "end of input"])
def test_anything_but_yes_makes_nothing(answer: str, account: Server, tmp_path: Path) -> None:
    code, output = trainscale_at_terminal(tmp_path, answer, *UP, *HERE)
    assert code == 1
    assert "3 × p4d.24xlarge" in output
    assert "nothing was created" in output
    assert account.resources() == {}


def test_yes_at_the_terminal_makes_it_and_yes_removes_it(account: Server, tmp_path: Path) -> None:
    code, output = trainscale_at_terminal(tmp_path, "y\n", *UP, *HERE)
    assert code == 0, output
    assert account.resources()["stacks"] == ["trainscale"]
    code, output = trainscale_at_terminal(tmp_path, "no\n", "cluster", "down", *HERE)
    assert code == 1
    assert "nothing was removed" in output
    code, output = trainscale_at_terminal(tmp_path, "yes\n", "cluster", "down", *HERE)
    assert code == 0, output
    assert account.resources() == {}


def test_ctrl_c_at_the_question_makes_nothing(account: Server, tmp_path: Path) -> None:
    code, output = trainscale_at_terminal(tmp_path, "\x03", *UP, *HERE)
    assert code == 130
    assert "interrupted" in output
    assert account.resources() == {}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_while_it_is_made_says_how_to_go_on_and_how_to_remove_it(
    number: signal.Signals, account: Server, tmp_path: Path
) -> None:
    """The simulated AWS makes a stack at once, so the command is held while it waits for it."""
    script = (
        "import sys; from pathlib import Path; from trainscale import cli; from trainscale.cluster import aws;"
        "aws.wait_until_settled = lambda *_: (Path('held').touch(), sys.stdin.read()); sys.exit(cli.main(sys.argv[1:]))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, *UP, *HERE, "--yes"],
        cwd=tmp_path,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    until((tmp_path / "held").exists, "the stack")
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "AWS continues to create it, and bills for it" in out
    assert f"trainscale cluster status --name trainscale --region {REGION} (--wait" in out
    assert f"remove all: trainscale cluster down --name trainscale --region {REGION}" in out
    assert err == "trainscale: interrupted\n"


def test_without_a_terminal_it_must_be_said_that_nobody_is_asked(
    account: Server, tmp_path: Path, refused: Callable[..., str]
) -> None:
    assert (
        "AWS bills for 3 × p4d.24xlarge and a master, and there is no terminal to ask on; --yes starts them"
        in refused(*UP, *HERE)
    )
    assert "removes the cluster 'trainscale' and its shared file system; --yes" in refused("cluster", "down", *HERE)
