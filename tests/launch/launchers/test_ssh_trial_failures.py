"""Trials over two real hosts by ssh that fail: the row has the right cause and names the rank, its host and device."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import until

from lab import Lab

pytestmark = pytest.mark.hosts

LONG = (
    "--models", "mnist:8", "--warmup", "2", "--steps", "1000000", "-g", "1", "--devices", "2", "--repeats", "1",
    "--no-witness", "-o", "out",
)  # fmt: skip

Start = Callable[..., subprocess.Popen[Any]]

# Leaves 500 ports that are not for outgoing connections, and takes them all.
TAKE_PORTS = """
import socket, time
from pathlib import Path
Path("/proc/sys/net/ipv4/ip_local_port_range").write_text("10500 65535")
taken = [socket.create_server(("", port)) for port in range(10000, 10500)]
print("taken", flush=True)
time.sleep(1000)
"""


@pytest.fixture(scope="module")
def lab(make_lab: Callable[..., Lab]) -> Lab:
    return make_lab(2)


@pytest.fixture
def start(lab: Lab, tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a run on both hosts. It is ended, if it has not ended by itself."""
    started: list[subprocess.Popen[Any]] = []

    def start_run(*more: str) -> subprocess.Popen[Any]:
        (tmp_path / "nodes").write_text("node1\nnode2\n")
        command = [sys.executable, "-m", "trainscale", "run", "--hosts", "nodes", *LONG, *more]
        with (tmp_path / "log").open("w") as log:
            started.append(
                lab.popen(command, cwd=tmp_path, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
            )
        return started[-1]

    yield start_run
    for running in started:
        running.kill()
        running.wait()


def finish(lab: Lab, folder: Path, running: subprocess.Popen[Any]) -> dict[str, Any]:
    """Return the failure of the only row."""
    code = running.wait(200)
    output = (folder / "log").read_text()
    assert code == 1, output
    assert "Traceback" not in output
    assert [lab.processes(name) for name in lab.hosts] == [[], []]
    (record,) = [json.loads(line) for line in (folder / "out" / "trials.jsonl").read_text().splitlines()]
    return dict(record["failure"])


def signal_rank(lab: Lab, host: str, number: signal.Signals) -> None:
    """Send a signal to the rank on a host, once it trains."""

    def is_training() -> bool:
        return int(lab.on(host, "cat /sys/class/net/eth0/statistics/tx_bytes", check=True).stdout) > begin + 30_000_000

    begin = int(lab.on(host, "cat /sys/class/net/eth0/statistics/tx_bytes", check=True).stdout)
    until(is_training, f"traffic from {host}", 120)
    pids = lab.on(host, "ps -ewwo pid=,args= | awk '/start.py rank$/ {print $1}'", check=True).stdout.split()
    lab.on(host, ["kill", f"-{int(number)}", *pids], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("host", ["node1", "node2"])
def test_a_stopped_rank_is_named_with_its_host(lab: Lab, tmp_path: Path, start: Start, host: str) -> None:
    running = start("--stall-timeout", "8s")
    signal_rank(lab, host, signal.SIGSTOP)
    failure = finish(lab, tmp_path, running)
    assert (failure["kind"], failure["rank"], failure["host"]) == ("hang", int(host[-1]) - 1, host), failure


def test_a_host_without_free_ports_is_refused_and_named(lab: Lab, tmp_path: Path, start: Start) -> None:
    command = [*lab.inside("node2"), sys.executable, "-c", TAKE_PORTS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as taking:
        assert taking.stdout is not None
        try:
            assert taking.stdout.readline() == "taken\n"
            running = start()
            running.wait(200)
        finally:
            lab.kill_matching("node2", "taken = [socket")
    failure = finish(lab, tmp_path, running)
    assert (failure["kind"], failure["host"]) == ("refused", "node2"), failure
    assert "free ports" in failure["message"]
