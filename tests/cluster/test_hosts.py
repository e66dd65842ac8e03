"""Hosts files in every dialect, with wrong lines named by file and line, and the devices of hosts."""

from pathlib import Path
from typing import Any

import pytest
from this_machine import GIB

from trainscale.cluster.hosts import (
    HostAccess,
    find_local_devices,
    list_devices,
    read_hosts,
    select_first_hosts,
)
from trainscale.errors import InputError
from trainscale.launch.launchers.target import make_launcher
from trainscale.spec.devices import Host
from trainscale.spec.experiment import Experiment
from trainscale.spec.groups import SETTINGS, SshSettings
from trainscale.spec.plan import make_plan
from trainscale.worker.inspection.host import Gpu, Machine


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parse(text: str) -> tuple[Host, ...]:
    Path("nodes").write_text(text)
    return read_hosts(Path("nodes"))


@pytest.mark.parametrize(
    ("line", "host"),
    [
        ("node1", Host("node1")),
        ("  node1.cluster.example \t", Host("node1.cluster.example")),
        ("10.0.0.1", Host("10.0.0.1")),
        ("10.0.0.1 worker1", Host("10.0.0.1", alias="worker1")),
        ("10.0.0.1\tworker1", Host("10.0.0.1", alias="worker1")),
        ("10.0.0.1:2222", Host("10.0.0.1", port=2222)),
        ("node1:2222 worker1", Host("node1", alias="worker1", port=2222)),
        ("10.0.0.1 slots=4", Host("10.0.0.1", slots=4)),
        ("node1 slots=4 max_slots=8", Host("node1", slots=4)),
        ("node1 slots=4 max-slots=8", Host("node1", slots=4)),
        ("ubuntu@node1", Host("node1", user="ubuntu")),
        ("ubuntu@node1:2222", Host("node1", user="ubuntu", port=2222)),
        ("node1 user=ubuntu port=2222", Host("node1", user="ubuntu", port=2222)),
        (
            "10.0.0.1 w1 slots=2 python=/opt/py/bin/python3",
            Host("10.0.0.1", "w1", slots=2, python="/opt/py/bin/python3"),
        ),
        ("fe80::1", Host("fe80::1")),
        ("[fe80::1]", Host("fe80::1")),
        ("[fe80::1]:2222", Host("fe80::1", port=2222)),
        ("fe80::1%eth0", Host("fe80::1%eth0")),
        ("node_1 # the first one", Host("node_1")),
        (
            "node1 setup='module load cuda; export A=\"b c\"'",
            Host("node1", setup=('module load cuda; export A="b c"',)),
        ),
        ("node1 setup=", Host("node1")),
    ],
)
def test_a_line_of_each_dialect(line: str, host: Host) -> None:
    assert parse(line) == (host,)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("# all of them\r\n\r\n10.0.0.1 a\r\n   \r\n  # not this one: 10.0.0.9\r\n10.0.0.2 b # 2\r\n", ["a", "b"]),
        ("10.0.0.1 a\n10.0.0.2\n", ["a", "10.0.0.2"]),
        ("10.0.0.1:2201 a\n10.0.0.1:2202 b\n", ["a", "b"]),
        ("\ufeffnode1\nnode2\n", ["node1", "node2"]),
    ],
    ids=["comments and blank lines", "alias or address", "two ports of one address", "a mark at the beginning"],
)
def test_the_hosts_of_a_file_have_names(text: str, names: list[str]) -> None:
    assert [host.name for host in parse(text)] == names


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("10.0.0.1 a b", "'10.0.0.1 a b' is not a host; valid: ADDRESS [SSH_ALIAS] [slots=N]"),
        ("slots=4", "'slots=4' is not a host"),
        ("slots=4 node1", "is not a host"),
        ("node1 slots=4 alias", "is not a host"),
        ("node1 slots 4", "is not a host"),
        ("-oProxyCommand=evil", "is not a host"),
        ("-evil", "'-evil' is not a host name or an address"),
        ("node1;reboot", "'node1;reboot' is not a host name or an address"),
        ("node$(reboot)", "is not a host name or an address"),
        ("nöde1", "'nöde1' is not a host name or an address"),
        ("10.0.0.1 a;b", "'a;b' is not a host name"),
        ("node1 'two words'", "'two words' is not a host name"),
        ("node1 slots=0", "'0' is not valid; valid: slots 1 … 65536"),
        ("node1 slots=" + 4000 * "9", "characters) is not valid; valid: slots 1 … 65536"),
        (10_000_000 * "a", "this line has 10000000 characters; valid: at most 4096"),
        (300 * "a", "is not a host name or an address"),
        ("node1 slots=two", "'two' is not valid; valid: slots 1 … 65536"),
        ("node1 slots=-1", "'-1' is not valid; valid: slots"),
        ("node1 slots=1 slots=2", "slots is given twice"),
        ("node1:0", "'0' is not valid; valid: port 1 … 65535"),
        ("node1:70000", "'70000' is not valid; valid: port 1 … 65535"),
        ("node1 port=70000", "'70000' is not valid; valid: port 1 … 65535"),
        ("node1 port=ssh", "'ssh' is not valid; valid: port 1 … 65535"),
        ("node1 gpus=4", "unknown key 'gpus'; valid: slots, port, user, python, setup"),
        ("node1 setup='module load", "No closing quotation"),
    ],
)
def test_a_wrong_line_is_named_by_file_and_line(line: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse(f"# hosts\n\ngood\n{line}\n")
    assert str(caught.value).startswith("nodes:4: ")
    assert message in str(caught.value)


@pytest.mark.parametrize("again", ["a", "10.0.0.1 b", "10.0.0.3 a", "10.0.0.1"])
def test_a_host_that_is_there_twice_is_refused_with_both_lines(again: str) -> None:
    with pytest.raises(InputError, match=r"^nodes:3: host '.*' is also on line 1; valid: each once, with slots=N"):
        parse(f"10.0.0.1 a\n10.0.0.2\n{again}\n")


@pytest.mark.parametrize("text", ["", "\n \n", "# only a comment\n"])
def test_a_file_without_hosts_is_refused(text: str) -> None:
    with pytest.raises(InputError, match="hosts nodes: no host in this file; valid: a name or an address on each line"):
        parse(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nodes: cannot read this hosts file: No such file or directory"):
        read_hosts(tmp_path / "nodes")
    (tmp_path / "nodes").write_bytes(b"n\xf6de\n")
    with pytest.raises(InputError, match="nodes: this hosts file is not UTF-8 text"):
        read_hosts(tmp_path / "nodes")


def test_setup_lines_and_the_first_hosts() -> None:
    hosts = parse("a\nb\nc\n")
    assert select_first_hosts(hosts, None, "nodes") == hosts
    assert [host.name for host in select_first_hosts(hosts, 2, "nodes")] == ["a", "b"]
    with pytest.raises(InputError, match="hosts count 4: nodes has 3; valid: 1 … 3"):
        select_first_hosts(hosts, 4, "nodes")
    (host,) = parse("node1 setup='conda activate mine'")
    assert HostAccess((host,), setup=("module load conda",)).join_setup(host) == (
        "module load conda",
        "conda activate mine",
    )


def test_the_ssh_configuration_must_exist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "nodes").write_text("node1\n")
    (tmp_path / "my config").write_text("Host *\n")
    experiment = Experiment.of(hosts=str(tmp_path / "nodes"), ssh_config=str(tmp_path / "no config"))
    with pytest.raises(InputError, match=r"ssh config .*no config: there is no such file"):
        make_launcher(experiment, environment={})
    monkeypatch.setenv("HOME", str(tmp_path))
    place = make_launcher(Experiment.of(hosts="~/nodes", ssh_config="~/my config"), environment={})
    assert isinstance(place.settings, SshSettings)
    assert place.settings.find_config() == tmp_path / "my config"
    assert [host.name for host in place.access.hosts] == ["node1"]


def test_a_python_that_only_the_hosts_have_may_be_named(tmp_path: Path) -> None:
    (tmp_path / "nodes").write_text("node1\n")
    python = SETTINGS["python"].read_text("torch=/only/on/hosts/python", "--python")
    assert python == (("torch", "/only/on/hosts/python"),)
    assert make_launcher(Experiment.of(python=python, hosts=str(tmp_path / "nodes")), environment={}).name == "ssh"
    with pytest.raises(InputError, match="--python: there is no Python at /only/on/hosts/python"):
        make_launcher(Experiment.of(python=python), environment={})


def a_machine(cores: int = 2, gpus: int = 0) -> Machine:
    return Machine(
        name="here",
        cpu="A Fine Processor",
        cores=tuple(range(cores)),
        threads_per_core=1,
        memory_bytes=8 * GIB,
        memory_available_bytes=6 * GIB,
        gpus=tuple(Gpu(index, "NVIDIA L4", 22 * GIB, "570.1") for index in range(gpus)),
        gpu_note="" if gpus else "no nvidia-smi on this machine",
        load=0.0,
        pressure=0.0,
    )


@pytest.mark.parametrize(
    ("machine", "settings", "devices", "description"),
    [
        (a_machine(1), {}, [(0,)], "1 CPU device (1 core, 1 each)"),
        (a_machine(2), {}, [(0,), (1,)], "2 CPU devices (2 cores, 1 each)"),
        (a_machine(16), {}, [(n, n + 1) for n in range(0, 16, 2)], "8 CPU devices (16 cores, 2 each)"),
        (a_machine(7), {"cores_per_device": 3}, [(0, 1, 2), (3, 4, 5)], "2 CPU devices (7 cores, 3 each)"),
        (
            a_machine(4),
            {"gpus_per_host": 3},
            [(0,), (1,), (2,)],
            "4 CPU devices (4 cores, 1 each), 3 per host requested",
        ),
        (a_machine(4, gpus=1), {}, [()], "1 GPU device (1 × NVIDIA L4)"),
        (a_machine(4, gpus=2), {}, [(), ()], "2 GPU devices (2 × NVIDIA L4)"),
        (a_machine(2, gpus=2), {"device": "cpu"}, [(0,), (1,)], "2 CPU devices (2 cores, 1 each)"),
    ],
)
def test_devices_of_a_machine(
    machine: Machine, settings: dict[str, Any], devices: list[tuple[int, ...]], description: str
) -> None:
    available = find_local_devices(machine, Experiment.of(**settings))
    assert [device.cores for device in available.hosts[0].devices] == devices
    assert [device.index for device in available.hosts[0].devices] == list(range(len(devices)))
    assert (
        {device.kind for device in available.hosts[0].devices} == {available.kind} == {"cpu" if devices[0] else "cuda"}
    )
    assert available.description == description
    hardware = (available.device_name, available.memory_bytes, available.cores_per_device)
    assert devices[0] or hardware == ("NVIDIA L4", 22 * GIB, 0)


@pytest.mark.parametrize(("cores", "each"), [(8, 1), (12, 2), (15, 2), (16, 2), (31, 4), (128, 16)])
def test_a_large_machine_is_cut_into_at_most_eight_devices(cores: int, each: int) -> None:
    available = find_local_devices(a_machine(cores), Experiment())
    assert available.cores_per_device == each
    assert len(available.hosts[0].devices) <= 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cores_per_device": 3}, "cores per device 3: this machine has 2 cores; valid: 1 … 2"),
        ({"device": "cuda"}, "device 'cuda': this machine has no GPU (no nvidia-smi on this machine); valid: cpu"),
        ({"gpus_per_host": 3}, "devices per host 3: this machine has 2 CPU devices (2 cores, 1 each); valid: 1 … 2"),
    ],
)
def test_more_than_a_machine_has_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError) as caught:
        find_local_devices(a_machine(2), Experiment.of(**settings))
    assert str(caught.value) == message


def test_devices_per_host_limit_the_ladder_and_ranks_share_gpus() -> None:
    devices = list_devices(a_machine(4, gpus=2), "cuda", 1, ranks_per_gpu=2)
    assert [device.index for device in devices] == [0, 1, 0, 1]
    assert all(device.shared for device in devices)
    experiment = Experiment.of(models=("mnist",), gpus_per_host=2, max_devices=4)
    with pytest.raises(InputError) as caught:
        make_plan(experiment, find_local_devices(a_machine(4), experiment))
    assert "valid: 1 … 2" in str(caught.value)
    assert "per host" in str(caught.value)  # otherwise: «this machine has 4 CPU devices; valid: 1 … 2»
