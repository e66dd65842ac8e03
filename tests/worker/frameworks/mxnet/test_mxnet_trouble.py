"""Users' own networks in MXNet, and what becomes of a trial when a process of it fails or its port is taken."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
import trials
from environments import python_for
from processes import MARK, marked
from trials import run_trial

from trainscale.launch.connected_hosts import ConnectedHosts
from trainscale.worker.config import Config
from trainscale.worker.inspection.probe import ProbeRequest, run_probes

pytestmark = pytest.mark.framework


@pytest.fixture(autouse=True)
def networks_of_this_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "SUPPORT", str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):  # type: ignore[no-untyped-def]
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    assert marked(str(tmp_path)) == []


def test_a_users_network_trains_with_parameter_servers(tmp_path: Path) -> None:
    outcome = run_trial(
        tmp_path, framework="mxnet", devices=2, strategies=("ps:1",), models=("gluon_networks:small:4",)
    )
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.parameters == 3 * 9 * 8 + 8 + 2 * 8 + 8 * 16 * 16 * 10 + 10
    assert trials.largest_difference(*outcome.weights) == 0.0


def test_a_network_of_the_model_zoo_trains(tmp_path: Path) -> None:
    outcome = run_trial(
        tmp_path, framework="mxnet", strategies=("local",), models=("gluon:mobilenet0.25:2",), image_size=32
    )
    assert outcome.record.ok, outcome.record.failure


@pytest.mark.parametrize("strategy", ["ps:1", "ps-async:1"])
def test_an_exception_in_one_rank_is_a_crash_of_that_rank(tmp_path: Path, strategy: str) -> None:
    """MXNet itself would wait for the lost rank, in every other process and for ever."""
    outcome = run_trial(
        tmp_path, framework="mxnet", devices=2, strategies=(strategy,), models=("gluon_networks:raises:4",)
    )
    failure = outcome.record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", 1)
    assert "does not like this image" in failure.message


def test_a_killed_server_is_named(tmp_path: Path) -> None:
    network = "gluon_networks:kills_the_server:4"
    outcome = run_trial(tmp_path, framework="mxnet", devices=2, strategies=("ps:1",), models=(network,))
    failure = outcome.record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", 2)
    assert "SIGKILL" in failure.message


@pytest.mark.slow
def test_a_scheduler_whose_port_is_taken_gets_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[list[int]] = []
    find_ports = ConnectedHosts.find_ports
    with socket.socket() as other:

        def taken_once(connected: ConnectedHosts, counts: dict[str, int]) -> dict[str, list[int]]:
            answer = find_ports(connected, counts)
            tries.append(answer["localhost"])
            if len(tries) == 1:
                other.bind(("127.0.0.1", tries[0][2]))  # worker, server, scheduler, meeting
                other.listen()
            return answer

        monkeypatch.setattr(ConnectedHosts, "find_ports", taken_once)
        outcome = run_trial(tmp_path, framework="mxnet", strategies=("ps:1",), models=("plain-graph:8",))
    assert outcome.record.ok, outcome.record.failure
    assert len(tries) == 2


def test_the_probe_counts_a_users_network_or_says_what_is_wrong_with_it() -> None:
    names = ("gluon_networks:small", "gluon_networks:not_a_block", "gluon_networks:missing")
    asked = [Config("mxnet", name, 4, "local", image_size=16, classes=10) for name in names]
    request = ProbeRequest("mxnet", asked, [str(Path(__file__).parent)])
    answer = run_probes({"mxnet": python_for("mxnet")}, [request])["mxnet"]
    assert answer.is_available, answer
    assert answer.gpus == []
    good, wrong, missing = (answer.models[name] for name in names)
    assert good == {"parameters": 20_730}
    assert wrong == "TypeError: gluon_networks:not_a_block returned str, not a mxnet.gluon.Block"
    assert "missing" in missing
