"""Questions to hosts: all are asked at once, each answers or is named with the reason; and which network is meant."""

import io
import json
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from keepers import ThisMachineLauncher
from processes import MARK, marked, program

from trainscale.cluster.hosts import HostAccess
from trainscale.errors import InputError
from trainscale.launch.connection import HostError, SocketConnection, decode_line
from trainscale.launch.hosts import (
    add_facts,
    choose_network,
    choose_pythons,
    decode_facts,
    visit_hosts,
)
from trainscale.launch.launchers.base import ITS_PYTHON
from trainscale.launch.tasks import TaskAnswer, make_role_task, run_host_tasks
from trainscale.spec.devices import Host
from trainscale.worker.events import LIMIT, AnswerPiece, Exit, FrameworkFacts, encode
from trainscale.worker.frameworks.catalog import FRAMEWORKS
from trainscale.worker.inspection import host as host_facts
from trainscale.worker.inspection.host import (
    FrameworkLocation,
    Gpu,
    HostFacts,
    HostFactsRequest,
    Machine,
    list_usable_cores,
)
from trainscale.worker.inspection.probe import ProbeRequest
from trainscale.worker.job import Task


def facts_task(host: str, rank: int = 0, python: str = ITS_PYTHON) -> Task:
    return make_role_task(host, rank, "look", HostFactsRequest(), python)


def ask(launcher: ThisMachineLauncher, *tasks: Task) -> dict[str, list[TaskAnswer] | HostError]:
    """Run the tasks of each host as an inspection does."""
    by_host: dict[str, list[Task]] = {}
    for task in tasks:
        by_host.setdefault(task.host, []).append(task)
    with launcher.connect(list(by_host), tolerates_errors=True) as connected:
        return run_host_tasks(connected, by_host, 60.0)


@pytest.mark.processes
def test_every_host_answers_every_question_in_order() -> None:
    launcher = ThisMachineLauncher(["a", "b"])
    probe = make_role_task("a", 1, "probe", ProbeRequest("mxnet"))
    answers = ask(launcher, facts_task("a"), probe, facts_task("a", 2), facts_task("b"))
    assert not isinstance(answers["a"], HostError)
    assert [type(answer.events[0]) for answer in answers["a"]] == [AnswerPiece, FrameworkFacts, AnswerPiece]
    assert not isinstance(answers["b"], HostError)
    assert len(answers["b"]) == 1
    # One host in trouble does not spoil the others.
    launcher = ThisMachineLauncher(["a", "b"], {"a": "echo broken >&2; exit 1"})
    answers = ask(launcher, facts_task("a"), facts_task("b"))
    assert isinstance(answers["a"], HostError)
    assert answers["a"].why == "broken"
    assert not isinstance(answers["b"], HostError)


@pytest.mark.processes
def test_a_role_that_ends_without_an_answer_says_how() -> None:
    launcher = ThisMachineLauncher(["a"])
    unknown = make_role_task("a", 0, "no-such-role", HostFactsRequest())
    answers = ask(launcher, unknown, facts_task("a", 1, "/no/such/python"))
    assert not isinstance(answers["a"], HostError)
    first, second = answers["a"]
    assert first.exit is not None
    assert first.exit.code == 2
    assert first.last_line.startswith("usage: start.py")
    assert second.exit == Exit(127, "cannot start /no/such/python: No such file or directory")


@pytest.mark.processes
def test_a_host_whose_task_does_not_end_in_time_keeps_the_answers_of_the_others() -> None:
    launcher = ThisMachineLauncher(["a"])
    quick = Task("a", 0, ["printf", encode(FrameworkFacts(True)).decode().replace("\n", "\\n")])
    sleeper = Task("a", 1, ["sleep", "1000"])
    with launcher.connect(["a"]) as connected:
        answers = run_host_tasks(connected, {"a": [quick, sleeper]}, 2.0)["a"]
    assert not isinstance(answers, HostError)
    assert answers[0].select_events(FrameworkFacts) == [FrameworkFacts(True)]
    assert answers[1].exit is None


@pytest.mark.processes
def test_a_host_that_stops_answering_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    stuck = program(tmp_path, "stuck", "exec sleep 1000")
    with ThisMachineLauncher(["a", "b"]).connect(["a", "b"]) as connected:
        assert {host: len(ports) for host, ports in connected.find_ports({"a": 1, "b": 1}).items()} == {"a": 1, "b": 1}
        tasks = {"a": [facts_task("a")], "b": [facts_task("b", 0, str(stuck))]}
        answers = run_host_tasks(connected, tasks, 5.0)
        late = answers["b"]
        problem = late if isinstance(late, HostError) else decode_facts(late[0], connected.connections["b"])
    assert not isinstance(answers["a"], HostError)
    assert isinstance(problem, HostError)
    assert problem.why == "cannot be inspected: it did not answer in time"
    assert marked(str(tmp_path)) == []


@pytest.mark.processes
def test_an_error_that_is_not_tolerated_is_raised_and_nothing_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(MARK, str(tmp_path))
    launcher = ThisMachineLauncher(["a", "b"], {"b": "echo broken >&2; exit 1"})
    with pytest.raises(HostError, match=r"^b: broken$"), launcher.connect(["a", "b"]):
        pass
    assert marked(str(tmp_path)) == []


# ---- looking


@pytest.mark.framework
def test_a_host_says_what_it_is(tmp_path: Path) -> None:
    launcher = ThisMachineLauncher(["a", "b"], {"b": "exit 1"}, tmp_path)
    facts = visit_hosts(launcher, choose_pythons(FRAMEWORKS, {}), [ProbeRequest("torch"), ProbeRequest("mxnet")])
    assert isinstance(facts["b"], HostError)
    answer = facts["a"]
    assert not isinstance(answer, HostError)
    assert answer.worker_copied is True
    assert answer.clock_ahead_seconds is not None
    least, most = answer.clock_ahead_seconds
    assert least <= 0 <= most
    assert answer.python_version == sys.version.split()[0]
    assert (answer.disk_free_bytes or 0) > 0
    assert answer.addresses["lo"] == "127.0.0.1"
    import torch

    assert answer.frameworks["torch"] == FrameworkLocation(sys.executable, {"torch": torch.__version__})
    host = add_facts(launcher.hosts()[0], answer, launcher.access)
    assert answer.machine.cores == list_usable_cores()
    assert host.pythons["torch"] == sys.executable
    assert answer.probes["torch"].version == torch.__version__
    assert answer.probes["mxnet"].is_available == ("mxnet" in host.pythons)
    assert answer.python == sys.executable
    facts = replace(answer, addresses={"eth0": "10.0.0.1"})
    host = add_facts(Host("10.0.0.1", "a", slots=3), facts, HostAccess())
    assert (host.name, host.address, host.interface, host.slots) == ("a", "10.0.0.1", "eth0", 3)


@pytest.mark.processes
def test_a_python_that_was_named_is_tried_before_the_hosts_own(tmp_path: Path) -> None:
    named = tmp_path / "python"
    named.symlink_to(sys.executable)
    location = host_facts.find_interpreter(["json"], [str(tmp_path / "none"), str(named)], ("json",))
    assert location == FrameworkLocation(str(named), {"json": "unknown"})
    assert host_facts.find_interpreter(["json"], [], ("json",)) == FrameworkLocation(
        sys.executable, {"json": "unknown"}
    )


@pytest.mark.processes
def test_environments_that_were_made_on_the_host_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "trainscale" / "envs" / "main" / "bin"
    home.mkdir(parents=True)
    package = tmp_path / "odd_framework"
    package.mkdir()
    (package / "__init__.py").touch()
    python = program(home, "python", f'PYTHONPATH={tmp_path} exec {sys.executable} "$@"')
    monkeypatch.chdir(tmp_path.parent)
    monkeypatch.setenv("XDG_DATA_HOME", tmp_path.name)  # a relative one is ignored, as the controller does
    assert host_facts.find_interpreter(["odd_framework"], [], ("odd_framework",)) is None
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    location = host_facts.find_interpreter(["odd_framework"], [], ("odd_framework",))
    assert location == FrameworkLocation(str(python), {"odd_framework": "unknown"})
    (package / "__init__.py").unlink()  # a folder alone is no module
    host_facts._find_versions.cache_clear()
    assert host_facts.find_interpreter(["odd_framework"], [], ("odd_framework",)) is None


@pytest.mark.processes
@pytest.mark.parametrize("name", ["tensorflow", "tensorflow-cpu", "tensorflow_gpu"])
def test_the_version_of_a_build_with_another_name(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "tensorflow").mkdir()
    (tmp_path / "tensorflow" / "__init__.py").touch()
    facts = tmp_path / f"{name.replace('-', '_')}-2.21.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 2.21.0\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    host_facts._find_versions.cache_clear()
    location = host_facts.find_interpreter(["tensorflow"], [sys.executable], ("tensorflow",))
    assert location is not None
    assert location.versions == {"tensorflow": "2.21.0"}


def test_the_addresses_of_this_machine_and_the_one_that_ssh_came_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.9 51234 10.0.0.1 22")
    assert host_facts.find_reached_address() == "10.0.0.1"
    monkeypatch.delenv("SSH_CONNECTION")
    assert host_facts.find_reached_address() == ""
    addresses = host_facts.list_addresses()
    assert addresses["lo"] == "127.0.0.1"
    assert set(addresses) <= {name for _, name in socket.if_nameindex()}


# ---- networks

ADDRESSES = {"eth1": "10.1.0.7", "lo": "127.0.0.1", "eth0": "192.168.0.7", "docker0": "172.17.0.1"}


@pytest.mark.parametrize(
    ("address", "wanted", "reached_at", "expected"),
    [
        ("192.168.0.7", None, "", ("192.168.0.7", "eth0")),
        ("10.1.0.7", None, "192.168.0.7", ("10.1.0.7", "eth1")),
        ("localhost", None, "192.168.0.7", ("192.168.0.7", "eth0")),  # its name here is not its address there
        ("no.such.name.invalid", None, "192.168.0.7", ("192.168.0.7", "eth0")),
        ("no.such.name.invalid", None, "203.0.113.5", ("10.1.0.7", "eth1")),  # behind a gateway: its own word counts
        ("192.168.0.7", "eth1", "", ("10.1.0.7", "eth1")),
        ("192.168.0.7", "10.1.0.0/16", "", ("10.1.0.7", "eth1")),
        ("192.168.0.7", "10.1.99.99/16", "", ("10.1.0.7", "eth1")),
    ],
)
def test_the_network_for_training(address: str, wanted: str | None, reached_at: str, expected: tuple[str, str]) -> None:
    assert choose_network(Host(address), ADDRESSES, wanted, reached_at) == expected
    # A host without an address keeps the name that it has.
    assert choose_network(Host("fe80::7"), {"lo": "127.0.0.1"}, None) == ("fe80::7", None)


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ("eth7", "interface 'eth7': node1 has none of this name with an address; it has eth1 10.1.0.7, lo 127.0.0.1"),
        ("10.9.0.0/16", "interface 10.9.0.0/16: node1 has no address in this range; it has eth1 10.1.0.7"),
        ("10.9.0.0/99", "interface '10.9.0.0/99': .*; valid: a range such as 10.0.0.0/16, or a name"),
    ],
)
def test_a_network_that_a_host_is_not_in_is_told_with_those_it_has(wanted: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        choose_network(Host("node1"), ADDRESSES, wanted)


def test_a_large_host_fits_into_the_lines_of_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 GPUs, every other one of 448 cores, many interfaces, long paths."""
    gpus = tuple(Gpu(n, "NVIDIA H100 80GB HBM3", 80 << 30, "550.54.15", f"GPU-{'8f3e2c1d' * 5}") for n in range(16))
    large = Machine("node", "CPU", tuple(range(0, 448, 2)), 2, 1 << 41, 1 << 40, gpus, "", 0.1, 3.0)
    long = f"/{'long' * 40}/bin/python"
    lines: list[bytes] = []
    modules = {name: list(framework.imports) for name, framework in FRAMEWORKS.items()}
    request = {"frameworks": {name: {"modules": names, "pythons": []} for name, names in modules.items()}}
    monkeypatch.setattr(host_facts, "read_machine", lambda: large)
    location = FrameworkLocation(long, {"torch": "2.21.0"})
    monkeypatch.setattr(host_facts, "find_interpreter", lambda *_: location)
    monkeypatch.setattr(host_facts, "claim_stdout", lambda: 1)
    monkeypatch.setattr(socket, "if_nameindex", lambda: [(n, f"interface{n}") for n in range(400)])
    monkeypatch.setattr(host_facts.fcntl, "ioctl", lambda *_: bytes(20) + socket.inet_aton("10.0.0.1") + bytes(232))
    monkeypatch.setattr(host_facts.os, "write", lambda _, line: lines.append(line))
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(request) + "\n"))
    assert host_facts.main([]) == 0
    assert max(map(len, lines)) <= LIMIT
    pieces = [decode_line(line.decode()) for line in lines]
    answer = TaskAnswer([piece.event for piece in pieces if piece is not None])
    facts = decode_facts(answer, SocketConnection("node", None))
    assert isinstance(facts, HostFacts)
    assert facts.machine == large
    assert facts.frameworks == dict.fromkeys(FRAMEWORKS, location)
