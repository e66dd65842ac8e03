"""A run through real processes: what hosts, ports, frameworks and a cluster may do to it."""

import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
from forked_frameworks import launcher_for
from keepers import ThisMachineLauncher
from processes import program
from trials import SUPPORT

from trainscale.cluster import allocation
from trainscale.cluster.allocation import find_end_of_own_job
from trainscale.cluster.hosts import find_devices, find_local_devices
from trainscale.errors import AllocationEnded, InputError, TrainscaleError
from trainscale.launch.connected_hosts import ConnectedHosts
from trainscale.launch.connection import HostError, KeeperConnection
from trainscale.launch.hosts import connect_cluster
from trainscale.launch.launchers.base import Launcher
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure.context import RunContext, make_spec
from trainscale.measure.measure import RunListener, check_frameworks, make_probe_requests, measure_plan
from trainscale.record.journal import Journal, open_journal
from trainscale.record.run import RunInfo
from trainscale.spec.devices import Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.events import FrameworkFacts
from trainscale.worker.inspection.host import HostFacts, Machine, read_machine


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> Plan:
    monkeypatch.chdir(SUPPORT)  # where the network is found
    experiment = Experiment.of(
        models=("nets:plain:4",), image_size=16, classes=10, warmup=2, steps=3, repeats=1, devices=(2,)
    )
    return make_plan(experiment, find_local_devices(read_machine(), experiment))


@pytest.fixture
def journal(plan: Plan, tmp_path: Path) -> Iterator[Journal]:
    with open_journal(tmp_path / "out", RunInfo(make_spec(plan))) as opened:
        yield opened


def torch_launcher() -> Launcher:
    """The ranks are forked from a process that has imported PyTorch."""
    return launcher_for(sys.executable, "torch", "fp32")


def run(plan: Plan, journal: Journal, launcher: Launcher | None = None) -> None:
    context = RunContext(plan, launcher or torch_launcher(), {"torch": sys.executable})
    measure_plan(context, journal, RunListener())


@pytest.mark.framework
@pytest.mark.parametrize(
    "which", [pytest.param(0, marks=pytest.mark.slow), 2], ids=["the framework's", "the rendezvous'"]
)
def test_a_port_that_somebody_took_is_chosen_anew(
    plan: Plan, journal: Journal, monkeypatch: pytest.MonkeyPatch, which: int
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        tries: list[list[int]] = []
        find_ports = ConnectedHosts.find_ports

        def taken_once(connected: ConnectedHosts, counts: dict[str, int]) -> dict[str, list[int]]:
            answer = find_ports(connected, counts)
            tries.append(answer["localhost"])
            if len(tries) == 1:
                tries[0][which] = taken.getsockname()[1]
            return answer

        monkeypatch.setattr(ConnectedHosts, "find_ports", taken_once)
        run(plan, journal)
    assert len(tries) == 2
    assert [record.status for record in journal.records] == ["ok"]


@pytest.mark.framework
@pytest.mark.slow
def test_ports_that_are_always_taken_are_a_row(plan: Plan, journal: Journal, monkeypatch: pytest.MonkeyPatch) -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        monkeypatch.setattr(ConnectedHosts, "find_ports", lambda _, counts: {host: [taken] * 3 for host in counts})
        run(plan, journal)
    (record,) = journal.records
    assert record.status == "refused"
    assert "ports" in record.failure.message
    assert record.started


class BrokenLauncher(LocalLauncher):
    """Starts something that is no keeper, as an ssh to a host that is down would."""

    def command(self, host: str) -> list[str]:
        return [sys.executable, "-c", "import sys; sys.exit('no route to that host')"]


@pytest.mark.processes
def test_a_keeper_that_cannot_be_started_is_lost_with_its_last_words(plan: Plan, journal: Journal) -> None:
    run(plan, journal, BrokenLauncher())
    (record,) = journal.records
    assert record.status == "lost"
    assert "no route to that host" in record.failure.message


# ---- frameworks that cannot be had


@pytest.mark.framework
def test_a_missing_framework_is_a_row_and_the_others_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SUPPORT)
    experiment = Experiment.of(
        models=("nets:plain:4",), frameworks=("torch", "mxnet"), image_size=16, classes=10, strategies=("local",),
        warmup=2, steps=3, repeats=1,
    )  # fmt: skip
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    pythons = dict.fromkeys(("torch", "mxnet"), sys.executable)
    missing = {"mxnet": "no module 'mxnet' in this Python"}
    with open_journal(tmp_path, RunInfo(make_spec(plan))) as journal:
        for _ in range(2):  # a second time adds nothing
            measure_plan(RunContext(plan, torch_launcher(), pythons, missing=missing), journal, RunListener())
        assert [(r.trial.config.framework, r.status) for r in journal.records] == [
            ("mxnet", "missing"),
            ("torch", "ok"),
        ]
        assert "no module 'mxnet'" in journal.records[0].failure.message


@pytest.mark.framework
def test_a_framework_that_was_missing_is_tried_when_it_is_there(plan: Plan, journal: Journal) -> None:
    context = RunContext(plan, LocalLauncher(), {}, missing={"torch": "no module 'torch' in this Python"})
    measure_plan(context, journal, RunListener())
    assert [record.status for record in journal.records] == ["missing"]
    run(plan, journal)
    assert [record.status for record in journal.records] == ["ok"]


# ---- a cluster that took its hosts back

INSIDE = {"SLURM_JOB_ID": "12", "SLURM_JOB_NODELIST": "node[1-2]"}


class LostLauncher(Launcher):
    """Its hosts cannot be reached."""

    name = "lost"

    def __init__(self, end: str) -> None:
        super().__init__()
        self.end = end

    def open(self, hosts: Sequence[str]) -> list[KeeperConnection]:
        raise HostError(hosts[0], "no answer")

    def find_end(self) -> str:
        return self.end


@pytest.mark.parametrize("end", ["", "the allocation has ended"])
def test_only_a_host_that_still_belongs_to_the_run_is_recorded_as_lost(end: str, tmp_path: Path) -> None:
    experiment = Experiment.of(models=("mnist:8",), repeats=1, devices=(1,), strategies=("local",))
    plan = make_plan(experiment, find_local_devices(read_machine(), experiment))
    with open_journal(tmp_path / "out", RunInfo(make_spec(plan))) as journal:
        context = RunContext(plan, LostLauncher(end), {"torch": "python"})
        if end:
            with pytest.raises(AllocationEnded, match=end):
                measure_plan(context, journal, RunListener())
            assert journal.records == []
        else:
            measure_plan(context, journal, RunListener())
            assert [record.status for record in journal.records] == ["lost"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("answers", "end"),
    [
        (["JobState=RUNNING EndTime=Unknown"], ""),
        (["JobState=RUNNING TimeLimit=1-00:00:00 EndTime=2999-01-01T00:00:00"], ""),
        # Slurm starts no steps in it any more, and ends it within a minute.
        (["JobState=RUNNING TimeLimit=00:01:00 EndTime=2026-01-01T00:00:00"], "reached its time limit of 00:01:00"),
        (["JobState=SUSPENDED"], ""),
        (["JobState=COMPLETING", "JobState=CANCELLED"], "the allocation has ended: job 12 was cancelled"),
        (["JobState=TIMEOUT TimeLimit=00:01:00"], "job 12 reached its time limit of 00:01:00"),
        (["JobState=PENDING Reason=BeginTime"], "the allocation has ended: job 12 was requeued"),
        (["JobState=RUNNING Restarts=1"], "job 12 was requeued, and this process belongs to an earlier start of it"),
        (["fails: Invalid job id specified"], "the allocation has ended: job 12 is over"),
        (["fails: Unable to contact", "JobState=RUNNING"], ""),
        (["fails: Unable to contact"], "Slurm does not answer any more"),
    ],
)
def test_slurm_says_whether_this_process_still_has_its_hosts(
    answers: list[str], end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, answer in enumerate(answers):
        (tmp_path / f"answer-{number}").write_text(f"JobId=12 {answer}")
    # It gives its answers in their order, and the last of them again and again.
    program(tmp_path, "scontrol", f'cd {tmp_path} && [ "$*" = "show job --oneliner 12" ] || exit 9\n'
            "answer=$(ls answer-* | head -1); text=$(cat $answer); [ $(ls answer-* | wc -l) = 1 ] || rm $answer\n"
            'case $text in *fails*) echo "$text" >&2; exit 1;; *) echo "$text";; esac')  # fmt: skip
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(allocation, "_SILENT_PAUSE", 0.0)
    reason = find_end_of_own_job(INSIDE)
    assert reason.startswith(end) or (end and end in reason)
    assert bool(reason) == bool(end)
    assert find_end_of_own_job({**INSIDE, "SLURM_RESTART_COUNT": "1"}).count("earlier start") == 0


def test_outside_of_slurm_nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert find_end_of_own_job({}) == ""


# ---- what frameworks answered when the hosts were visited

MACHINE = Machine("node", "CPU", (0, 1), 1, 8 << 30, 8 << 30, (), "", 0.0, 0.0)
EXPERIMENT = Experiment.of(models=("mnist:8",), frameworks=("torch", "jax"), devices=(2,), hosts="my nodes")
GOOD = FrameworkFacts(True, version="2.13.0")


def check(**answers: list[FrameworkFacts]) -> RunContext:
    """``answers`` has those of node1 and node2 of each framework."""
    hosts = {
        f"node{n + 1}": HostFacts(MACHINE, probes={name: facts[n] for name, facts in answers.items()}) for n in range(2)
    }
    devices = find_devices([Host(name, facts=facts) for name, facts in hosts.items()], EXPERIMENT)
    context = RunContext(make_plan(EXPERIMENT, devices), ThisMachineLauncher(list(hosts)), {})
    return check_frameworks(context, hosts)


def test_what_one_host_lacks_or_has_in_another_version_is_missing() -> None:
    lacking = FrameworkFacts(False, "no module 'jax' in this Python", "trainscale env create jax")
    context = check(torch=[GOOD, GOOD], jax=[GOOD, lacking])
    assert context.frameworks == {"torch": GOOD}
    assert context.missing == {
        "jax": "node2: no module 'jax' in this Python; get it with: trainscale env create jax",
    }
    context = check(torch=[GOOD, replace(GOOD, version="2.12.0")], jax=[GOOD, GOOD])
    assert context.missing == {"torch": "the hosts have different versions: node1 2.13.0, node2 2.12.0"}


def test_frameworks_and_networks_that_no_host_can_use_are_wrong_input() -> None:
    with pytest.raises(InputError) as raised:
        check(torch=[FrameworkFacts(False, "gone")] * 2, jax=[FrameworkFacts(False, "gone")] * 2)
    assert str(raised.value).splitlines() == [
        "framework 'torch': node1: gone",
        "framework 'jax': node1: gone",
        "  see: trainscale check --hosts 'my nodes'",
    ]
    answer = replace(GOOD, models={"nets:mine": "TypeError: no"})
    with pytest.raises(InputError, match="model 'nets:mine' cannot be built: TypeError: no"):
        check(torch=[answer, answer], jax=[GOOD, GOOD])


def test_a_probe_builds_the_users_networks_and_no_others() -> None:
    experiment = Experiment.of(models=("mnist:8", "nets:mine:4"), frameworks=("torch",), classes=7)
    (request,) = make_probe_requests(experiment)
    assert [(config.model, config.classes) for config in request.models] == [("nets:mine", 7)]


@pytest.mark.processes
def test_a_host_that_does_not_answer_is_no_wrong_input() -> None:
    launcher = ThisMachineLauncher(["node1", "node2"], {"node2": "echo No route to host >&2; exit 255"})
    with pytest.raises(TrainscaleError) as raised:
        connect_cluster(launcher, EXPERIMENT, {})
    assert raised.value.exit_code == 1
    first, last = str(raised.value).splitlines()
    assert first.startswith("node2: no route: ")
    assert last.startswith("  see: trainscale check --hosts FILE")
