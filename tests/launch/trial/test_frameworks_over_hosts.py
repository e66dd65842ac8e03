"""Every framework trains over two real hosts, on the network that it is told to use, and in spite of a proxy that the
hosts' environment names. Hosts have two networks here: names and ssh are on the first, training on the second.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from environments import python_for
from lab_runs import LabSshLauncher
from small_sets import write_mnist

from lab import Lab
from trainscale.cluster.hosts import find_devices
from trainscale.launch.connection import HostError
from trainscale.launch.hosts import add_facts, visit_hosts
from trainscale.launch.launchers.ssh import SshLauncher
from trainscale.launch.trial import trial as supervision
from trainscale.launch.trial.trial import TrialSettings, build_tasks
from trainscale.measure import context as one_trial
from trainscale.measure.context import RunContext
from trainscale.record.journal import read_trials
from trainscale.record.trial import TrialRecord
from trainscale.spec.config import Trial
from trainscale.spec.devices import Slot
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.job import Job, Measure, Task

pytestmark = [pytest.mark.framework, pytest.mark.hosts]

slow = pytest.mark.slow

MEASURE = Measure(warmup=2, steps=3)
STEPS = MEASURE.warmup + MEASURE.steps
PARAMETER_BYTES = 4 * 3_274_634  # of mnist: what a host sends to the other in a step, at least, whatever the strategy
# There is nothing at this address: who asks it for the way never gets there.
PROXY = "export http_proxy=http://192.0.2.1:3128 https_proxy=http://192.0.2.1:3128"


@dataclass(frozen=True)
class TwoNetworks:
    """Two hosts of one device each, and the address of each in the second network."""

    lab: Lab
    second: Mapping[str, str]

    @property
    def second_range(self) -> str:
        return self.second["node1"].rpartition(".")[0] + ".0/24"

    def launcher(self, **where: Any) -> SshLauncher:
        """ssh as the controller runs it; this process is not in its network."""
        return LabSshLauncher(self.lab, setup=(PROXY,), **where)

    def sent(self) -> dict[tuple[str, str], int]:
        """Bytes that each host has sent on each interface."""
        return {
            (name, interface): int(
                self.lab.on(name, ["cat", f"/sys/class/net/{interface}/statistics/tx_bytes"], check=True).stdout
            )
            for name in self.lab.hosts
            for interface in ("eth0", "eth1")
        }

    def assert_only_second_was_used(self, before: Mapping[tuple[str, str], int]) -> None:
        sent = {place: count - before[place] for place, count in self.sent().items()}
        for name in self.lab.hosts:
            assert sent[name, "eth1"] > 0.9 * STEPS * PARAMETER_BYTES, sent
            assert sent[name, "eth0"] < 0.1 * PARAMETER_BYTES, sent  # events, over ssh


@pytest.fixture(scope="module")
def cluster(make_lab: Callable[..., Lab]) -> TwoNetworks:
    lab = make_lab(2)
    return TwoNetworks(lab, lab.add_network())


def train(
    cluster: TwoNetworks, framework: str, strategy: str, logs: Path | None = None, data: str = "synthetic", **where: Any
) -> TrialRecord:
    """One trial on both hosts, as a run would do it."""
    experiment = Experiment.of(
        models=("mnist:4",),
        data=data,
        epochs=None if data == "synthetic" else 2,
        frameworks=(framework,),
        strategies=(strategy,),
        gpus_per_host=1,
        cores_per_device=1,
        devices=(2,),
        timeout=200.0,
    )
    launcher, pythons = cluster.launcher(**where), {framework: python_for(framework)}
    records = []
    for host, answer in visit_hosts(launcher, pythons).items():
        assert not isinstance(answer, HostError), answer
        records.append(add_facts(launcher.access.find_host(host), answer, launcher.access))
    plan = make_plan(experiment, find_devices(records, experiment))
    return one_trial.run_trial(RunContext(plan, launcher, pythons, logs=logs), Trial(plan.configs[0], 2, 0), MEASURE)


def printed(logs: Path) -> str:
    return "\n".join(f"{path.name}:\n{path.read_text()}" for path in sorted(logs.glob("*.log")))


@pytest.mark.parametrize(
    ("framework", "strategy"),
    [
        pytest.param("torch", "allreduce", marks=slow),
        ("tensorflow", "ps:2"),
        ("jax", "allreduce"),
        pytest.param("keras-tensorflow", "allreduce", marks=slow),
        pytest.param("keras-torch", "allreduce", marks=slow),
        pytest.param("mxnet", "ps:2", marks=slow),
        pytest.param("keras-jax", "allreduce", marks=slow),
        pytest.param("torch", "sharded", marks=slow),
        pytest.param("torch", "ps:2", marks=slow),
        pytest.param("torch", "ps-async:2", marks=slow),
        pytest.param("tensorflow", "allreduce", marks=slow),
        pytest.param("tensorflow", "ps-async:2", marks=slow),
        pytest.param("jax", "sharded", marks=slow),
        pytest.param("mxnet", "ps-async:2", marks=slow),
    ],
)
def test_a_framework_trains_over_two_hosts_on_the_network_it_is_told(
    cluster: TwoNetworks, framework: str, strategy: str, tmp_path: Path
) -> None:
    before = cluster.sent()
    record = train(cluster, framework, strategy, tmp_path, interface="eth1")
    assert record.ok, (record.failure, printed(tmp_path))
    assert (record.hosts, [rank.host for rank in record.ranks]) == (2, ["node1", "node2"])
    if not strategy.startswith("ps-async"):
        assert len({rank.weights_digest for rank in record.ranks}) == 1
        assert record.ranks[0].weights_digest
    cluster.assert_only_second_was_used(before)


@slow
def test_two_hosts_learn_from_images_that_each_has_in_the_same_place(cluster: TwoNetworks, tmp_path: Path) -> None:
    images = write_mnist(tmp_path / "images")
    for name in cluster.lab.hosts:  # whose disks are their own
        shutil.copytree(images, cluster.lab.file(name, images))
    record = train(cluster, "torch", "allreduce", data=f"mnist:{images}")
    assert record.ok, record.failure
    assert record.hosts == 2
    assert [epoch.valid_samples for epoch in record.epochs] == [103, 103]
    assert record.epochs[1].valid_accuracy > 0.5


@slow
def test_images_that_a_host_does_not_have_are_named_with_the_host(cluster: TwoNetworks, tmp_path: Path) -> None:
    images = write_mnist(tmp_path / "images")  # on the machine that starts it, and nowhere else
    record = train(cluster, "torch", "allreduce", data=f"mnist:{images}")
    assert record.failure is not None
    assert f": {images}/train-images-idx3-ubyte.gz is missing" in record.failure.message
    assert "on host node" in record.failure.message


@pytest.mark.parametrize(
    "framework",
    [
        pytest.param(name, marks=() if name == "jax" else slow)
        for name in FRAMEWORKS
        if "independent" in FRAMEWORKS[name].engines
    ],
)
def test_workers_that_exchange_nothing_still_meet(cluster: TwoNetworks, framework: str, tmp_path: Path) -> None:
    before = cluster.sent()
    record = train(cluster, framework, "independent", tmp_path, interface="eth1")
    assert record.ok, (record.failure, printed(tmp_path))
    assert {rank.host for rank in record.ranks} == {"node1", "node2"}
    assert all(cluster.sent()[place] - before[place] < PARAMETER_BYTES / 10 for place in before)


def test_hosts_find_environments_by_themselves(cluster: TwoNetworks) -> None:
    """As on hosts with another home folder, where nothing that this machine could name exists."""
    launcher = cluster.launcher()
    for host, answer in visit_hosts(launcher, {"tensorflow": "", "mxnet": ""}).items():
        assert not isinstance(answer, HostError), answer
        pythons = add_facts(launcher.access.find_host(host), answer, launcher.access).pythons
        environments = {framework: Path(python).parent.parent.name for framework, python in pythons.items()}
        assert environments == {"tensorflow": "main", "mxnet": "mxnet"}


LISTEN = """
import socket, sys
with socket.create_server(("", int(sys.argv[1]))):
    print("listening", flush=True)
    sys.stdin.read()
"""


@slow
@pytest.mark.parametrize("taken", [1, 3], ids=["once", "every time"])
def test_a_port_that_is_taken_on_the_other_host_is_chosen_anew(
    cluster: TwoNetworks, taken: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program of that host listens there after the keeper found it free and before TensorFlow listens."""
    listeners: list[subprocess.Popen[str]] = []
    tried = []

    def build_and_take(
        trial: Trial, slots: Sequence[Slot], ports: Mapping[str, list[int]], settings: TrialSettings
    ) -> list[Task]:
        tasks = build_tasks(trial, slots, ports, settings)
        (of_rank_1,) = [task for task in tasks if task.rank == 1]
        assert of_rank_1.host == "node2"
        port = Job.from_json(of_rank_1.job).ports[1]
        assert port in ports["node2"]
        tried.append(port)
        if len(tried) <= taken:
            command = [*cluster.lab.inside("node2"), sys.executable, "-c", LISTEN, str(port)]
            listeners.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            assert listeners[-1].stdout is not None
            assert listeners[-1].stdout.readline() == "listening\n"
        return tasks

    monkeypatch.setattr(supervision, "build_tasks", build_and_take)
    try:
        record = train(cluster, "tensorflow", "allreduce", tmp_path)
    finally:
        for listener in listeners:
            listener.communicate()
    if taken == 1:
        assert record.ok, (record.failure, printed(tmp_path))
        assert len(set(tried)) == 2
    else:
        assert record.status == "refused"
        assert (len(tried), record.hosts) == (3, 2)


def test_a_run_over_an_address_range_leaves_the_first_network_alone(cluster: TwoNetworks, tmp_path: Path) -> None:
    """By the command itself, up to the row that is the first on two hosts."""
    lab = cluster.lab
    hosts, output = tmp_path / "hosts", tmp_path / "run"
    hosts.write_text("".join(f"{lab.address(name)} {name} slots=1\n" for name in lab.hosts))
    arguments = [
        sys.executable, "-m", "trainscale", "run", "--hosts", str(hosts), "--interface", cluster.second_range,
        "--models", "mnist:4", "--warmup", "2", "--steps", "3", "--repeats", "1", "--cores-per-device", "1",
        "--output", str(output),
    ]  # fmt: skip
    before = cluster.sent()
    done = lab.run(arguments, cwd=tmp_path, env={**os.environ, "COLUMNS": "120"})
    assert done.returncode == 0, done.stdout + done.stderr
    assert [(record.trial.devices, record.hosts) for record in read_trials(output)] == [(1, 1), (2, 2)]
    cluster.assert_only_second_was_used(before)
    table = done.stdout.splitlines()
    (boundary,) = [number for number, line in enumerate(table) if set(line) == {"┄"}]
    assert [table[boundary + way].split()[:2] for way in (-1, 1)] == [["1", "1"], ["2", "2"]]


CHOSEN, SYSTEMS = "10000-32767", "32768-60999"  # ports that keepers choose among; the system's for outgoing connections
FIREWALL = """
table inet firewall {{
  chain input {{
    type filter hook input priority 0; policy accept;
    iif lo accept
    tcp dport {{ 22, {ports} }} accept
    tcp flags & (syn | ack) == syn drop
    meta l4proto != {{ tcp, icmp, icmpv6 }} drop
  }}
}}
"""


@slow
@pytest.mark.parametrize(
    ("framework", "strategy", "ports"),
    [
        ("tensorflow", "allreduce", CHOSEN),
        ("tensorflow", "ps:2", CHOSEN),
        ("mxnet", "ps:2", CHOSEN),
        ("torch", "allreduce", f"{CHOSEN}, {SYSTEMS}"),
        ("torch", "ps:2", f"{CHOSEN}, {SYSTEMS}"),
        ("jax", "allreduce", f"{CHOSEN}, {SYSTEMS}"),
    ],
)
def test_the_ports_that_the_docs_name_are_all_that_a_firewall_must_let_through(
    cluster: TwoNetworks, framework: str, strategy: str, ports: str, tmp_path: Path
) -> None:
    system_range = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    assert "-".join(system_range) == SYSTEMS, "this machine is set otherwise than the docs take for granted"
    try:
        for name in cluster.lab.hosts:
            cluster.lab.on(name, ["nft", "-f", "-"], input=FIREWALL.format(ports=ports), check=True)
        record = train(cluster, framework, strategy, tmp_path)
    finally:
        for name in cluster.lab.hosts:
            cluster.lab.on(name, ["nft", "delete", "table", "inet", "firewall"])
    assert record.ok, (record.failure, printed(tmp_path))
