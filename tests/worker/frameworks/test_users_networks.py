"""Users' own networks in each framework, what is seen of networks that go wrong, and of a process that fails. PyTorch's
networks are in tests/support/nets.py.
"""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import trials
from environments import python_for
from forked_frameworks import forked_processes
from processes import MARK, marked
from trials import TrialOutcome, largest_difference

from trainscale.launch.connected_hosts import ConnectedHosts
from trainscale.record.trial import Failure
from trainscale.worker.config import Config
from trainscale.worker.inspection.probe import ProbeRequest, run_probes

pytestmark = pytest.mark.framework

HERE = Path(__file__).parent
# The folder and the module with a framework's networks.
MODULES = {
    "tensorflow": ("tensorflow", "tensorflow_nets"),
    "jax": ("jax", "jax_nets"),
    "keras-jax": ("keras", "keras_nets"),
    "keras-tensorflow": ("keras", "keras_nets"),
    "keras-torch": ("keras", "keras_nets"),
    "mxnet": ("mxnet", "gluon_networks"),
}
PARAMETERS = {
    "tensorflow_nets:plain": 3 * 3 * 3 * 8 + 8 + 8 + 8 * 10,
    "jax_nets:two_heads": 3 * 3 * 3 * 8 + 2 * 8 * 10,
    "keras_nets:plain": 3 * 3 * 3 * 8 + 8 + 2 * 8 + 8 * 10 + 10,
    "gluon_networks:small": 3 * 9 * 8 + 8 + 2 * 8 + 8 * 16 * 16 * 10 + 10,
}


def slow(*values: object) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


@pytest.fixture(autouse=True)
def nothing_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv(MARK, str(tmp_path))
    yield
    assert marked(str(tmp_path)) == []
    assert forked_processes() == []


@pytest.fixture
def train(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    def run(framework: str, strategy: str, network: str, devices: int = 2, **settings: object) -> TrialOutcome:
        folder, module = MODULES[framework]
        monkeypatch.setattr(trials, "SUPPORT", str(HERE / folder))  # where ranks find the networks
        model = network if ":" in network or network == "plain-graph" else f"{module}:{network}"
        options = {"models": (f"{model}:4",), "layout": "nchw" if framework == "mxnet" else "nhwc", **settings}
        return trials.run_trial(
            tmp_path, framework=framework, strategies=(strategy,), devices=devices, forks=True, **options
        )

    return run


@pytest.mark.parametrize(
    ("framework", "strategy", "network"),
    [
        ("tensorflow", "allreduce", "plain"),
        slow("tensorflow", "ps:2", "plain"),
        ("jax", "allreduce", "two_heads"),
        ("keras-tensorflow", "allreduce", "plain"),
        slow("keras-jax", "allreduce", "plain"),
        slow("keras-torch", "allreduce", "plain"),
        ("mxnet", "ps:1", "small"),
    ],
)
def test_a_network_of_ones_own_trains_alike_on_all_ranks(
    train: Any, framework: str, strategy: str, network: str
) -> None:
    outcome = train(framework, strategy, network)
    assert outcome.record.ok, outcome.record.failure
    assert outcome.record.parameters == PARAMETERS[f"{MODULES[framework][1]}:{network}"]
    assert largest_difference(*outcome.weights) == 0.0
    if framework == "jax":
        assert sorted(outcome.weights[0]) == ["conv.kernel", "heads.0", "heads.1"]


def test_a_network_of_mxnets_model_zoo_trains(train: Any) -> None:
    outcome = train("mxnet", "local", "gluon:mobilenet0.25", devices=1, image_size=32)
    assert outcome.record.ok, outcome.record.failure


def find_failure(outcome: TrialOutcome, rank: int) -> Failure:
    failure = outcome.record.failure
    assert failure is not None
    assert (failure.kind, failure.rank) == ("crash", rank)
    return failure


@pytest.mark.parametrize(
    ("framework", "strategy"),
    [
        ("jax", "allreduce"),
        slow("keras-jax", "allreduce"),
        slow("keras-tensorflow", "allreduce"),
        slow("keras-torch", "allreduce"),
        ("tensorflow", "allreduce"),
        ("tensorflow", "ps:1"),
        slow("tensorflow", "ps-async:1"),
        ("mxnet", "ps:1"),  # MXNet itself would wait for the lost rank, in every other process and for ever
        ("mxnet", "ps-async:1"),
    ],
)
def test_an_exception_in_one_rank_is_a_crash_of_that_rank(train: Any, framework: str, strategy: str) -> None:
    failure = find_failure(train(framework, strategy, "raises"), rank=1)
    if framework == "tensorflow":
        assert failure.message == "rank 1: ValueError: the network of rank 1 does not like this image"
    assert any("does not like this image" in line for line in (failure.message, *failure.tail))


@pytest.mark.parametrize(
    ("framework", "strategy", "network", "rank"),
    [("jax", "allreduce", "killed", 1), ("mxnet", "ps:1", "kills_the_server", 2)],
)
def test_a_killed_process_is_blamed_and_not_those_who_lost_it(
    train: Any, framework: str, strategy: str, network: str, rank: int
) -> None:
    assert "SIGKILL" in find_failure(train(framework, strategy, network), rank).message


# By framework, the parameters of a network, or what is wrong with it.
PROBED: dict[str, dict[str, int | str]] = {
    "jax": {
        "jax_nets:two_heads": PARAMETERS["jax_nets:two_heads"],
        "jax_nets:not_a_pair": "returned str, not a pair (parameters, apply)",
        "jax_nets:whole_numbers": "['w'] is not an array of floats",
        "jax_nets:missing": "has no attribute 'missing'",
    },
    "keras-torch": {
        "keras:MobileNetV2": 2_236_682,
        "keras_nets:plain": PARAMETERS["keras_nets:plain"],
        "keras_nets:of_a_class": 32 * 32 * 3 * 10,
        "keras_nets:not_a_model": "returned str, not a keras.Model",
        "keras_nets:too_large": "incompatible",
        "keras_nets:missing": "has no attribute 'missing'",
    },
    "mxnet": {
        "gluon_networks:small": PARAMETERS["gluon_networks:small"],
        "gluon_networks:not_a_block": "returned str, not a mxnet.gluon.Block",
        "gluon_networks:missing": "missing",
    },
}


@pytest.mark.parametrize("framework", ["jax", slow("keras-torch"), "mxnet"])
def test_the_probe_counts_a_network_and_says_what_is_wrong_with_another(framework: str) -> None:
    layout = "nchw" if framework == "mxnet" else "nhwc"
    size = 32 if framework == "keras-torch" else 16  # keras.applications have a smallest size
    sizes = {"image_size": size, "classes": 10, "layout": layout}
    configs = [Config(framework, name, 4, "local", **sizes) for name in PROBED[framework]]  # type: ignore[arg-type]
    request = ProbeRequest(framework, configs, [str(HERE / MODULES[framework][0])])
    facts = run_probes({framework: python_for(framework)}, [request])[framework]
    assert facts.is_available, facts
    for name, expected in PROBED[framework].items():
        if isinstance(expected, int):
            assert facts.models[name] == {"parameters": expected}
        else:
            assert expected in str(facts.models[name])


@pytest.mark.slow
def test_a_scheduler_whose_port_is_taken_gets_another(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
        outcome = train("mxnet", "ps:1", "plain-graph", devices=1)
    assert outcome.record.ok, outcome.record.failure
    assert len(tries) == 2
