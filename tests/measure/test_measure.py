"""A run through real processes: ports that others take are chosen anew, and a lost keeper says why."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from forked_frameworks import launcher_for
from trials import SUPPORT

from trainscale.cluster.hosts import find_local_devices
from trainscale.launch.connected_hosts import ConnectedHosts
from trainscale.launch.launchers.base import Launcher
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.measure.context import RunContext, make_spec
from trainscale.measure.measure import RunListener, measure_plan
from trainscale.record.journal import Journal, open_journal
from trainscale.record.run import RunInfo
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import Plan, make_plan
from trainscale.worker.inspection.host import read_machine


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
def test_ports_that_are_always_taken_are_a_row_that_says_so(
    plan: Plan, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as stack:
        taken = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
        monkeypatch.setattr(ConnectedHosts, "find_ports", lambda _, counts: {host: [taken] * 3 for host in counts})
        run(plan, journal)
    (record,) = journal.records
    assert record.status == "refused"
    assert record.failure is not None
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
    assert record.failure is not None
    assert "no route to that host" in record.failure.message


# ---- frameworks that cannot be had


@pytest.mark.framework
def test_a_missing_framework_is_a_row_with_its_reason_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
        assert journal.records[0].failure is not None
        assert "no module 'mxnet'" in journal.records[0].failure.message


@pytest.mark.framework
def test_a_framework_that_was_missing_is_tried_when_it_is_there(plan: Plan, journal: Journal) -> None:
    context = RunContext(plan, LocalLauncher(), {}, missing={"torch": "no module 'torch' in this Python"})
    measure_plan(context, journal, RunListener())
    assert [record.status for record in journal.records] == ["missing"]
    run(plan, journal)
    assert [record.status for record in journal.records] == ["ok"]
