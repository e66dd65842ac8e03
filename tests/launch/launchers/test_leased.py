"""Hosts that are leased for a whole run: real programs of this machine, started by one command as a cluster would."""

from __future__ import annotations

import ast
import json
import os
import resource
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from keepers import ready, try_ready
from processes import MARK, is_living, marked, until
from worker_copies import shared_copies

from trainscale.cluster.hosts import HostAccess, HostRequest
from trainscale.errors import TrainscaleError
from trainscale.launch.callback import LauncherProcess
from trainscale.launch.connection import HostError, stop_all
from trainscale.launch.inspection.hosts import visit_hosts
from trainscale.launch.launchers.base import ITS_PYTHON
from trainscale.launch.launchers.callback import CallbackEndpoint
from trainscale.launch.launchers.leased import LeasedHostsLauncher, make_leased_host_program
from trainscale.spec.devices import Host
from trainscale.worker.inspection.host import HostFacts
from trainscale.worker.job import Task, TasksRequest, encode_request

# Starts one program for each "number name address" on its command line, and waits for them.
BRING = """
import subprocess, sys
program, *hosts = sys.argv[1:]
started = [subprocess.Popen([sys.executable, "-c", program, *host.split()]) for host in hosts]
sys.exit(max(process.wait() for process in started))
"""
PROGRAM = make_leased_host_program("int(sys.argv[1])", "sys.argv[2]", "sys.argv[3]")


class Lender(LeasedHostsLauncher):
    """Stands for a cluster: it leases this machine under the given names. ``copies``: where the worker is copied to."""

    name = "lender"

    def __init__(
        self,
        folder: Path,
        *lent: str,
        wanted: int | None = None,
        patience_seconds: float = 60.0,
        copies: Path | None = None,
    ) -> None:
        request = HostRequest(patience_seconds=patience_seconds)
        super().__init__(HostAccess(remote_dir=str(copies or shared_copies()), request=request))
        self.mark = str(folder)
        self.lent = lent
        self.wanted = len(lent) if wanted is None else wanted

    def command(self, endpoint: CallbackEndpoint) -> list[str]:
        self.endpoint = endpoint
        return [sys.executable, "-c", BRING, PROGRAM, *self.lent]

    def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
        return {**super().environment(endpoint), MARK: self.mark}

    def controller_address(self) -> str:
        return "127.0.0.1"

    def count_hosts(self, process: LauncherProcess) -> int | None:
        self.process = process
        return self.wanted

    def explain_end(self, process: LauncherProcess) -> TrainscaleError:
        return TrainscaleError(f"it ended: {process.find_last_line()}")

    def explain_missing(self, process: LauncherProcess) -> str:
        return "nobody knows why"

    def explain_lost(self, host: str) -> str:
        return f"ask the lender about {host}"

    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        self.code = process.stop(10.0 if complete else 0.0)


def programs(mark: str) -> list[int]:
    """Return the processes that serve as leased hosts."""
    pids = []
    for pid in marked(mark):
        try:
            arguments = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if PROGRAM.encode() in arguments and BRING.encode() not in arguments:
            pids.append(pid)
    return pids


@pytest.fixture
def lender(tmp_path: Path) -> Iterator[Lender]:
    launcher = Lender(tmp_path, "1 alpha 10.0.0.10", "2 beta 10.0.0.9", "3 alpha 10.0.0.10")
    yield launcher
    launcher.close()
    assert marked(str(tmp_path)) == []


@pytest.mark.processes
def test_hosts_come_in_the_order_of_their_addresses_with_names_of_their_own(lender: Lender) -> None:
    assert lender.hosts() == (
        Host("10.0.0.9", alias="beta"),
        Host("10.0.0.10", alias="alpha-1"),
        Host("10.0.0.10", alias="alpha-2"),
    )
    assert lender.hosts() == lender.access.hosts
    assert len(programs(lender.mark)) == 3


@pytest.mark.processes
def test_a_name_that_is_made_up_is_not_that_of_another_host(tmp_path: Path) -> None:
    launcher = Lender(tmp_path, "1 node 10.0.0.1", "2 node 10.0.0.1", "3 node-1 10.0.0.2")
    try:
        assert [host.name for host in launcher.hosts()] == ["node-2", "node-3", "node-1"]
    finally:
        launcher.close()


@pytest.mark.processes
def test_every_host_answers_again_and_again_with_a_keeper_of_its_own(lender: Lender) -> None:
    for _ in range(2):
        answers = visit_hosts(lender, {})
        assert [type(answer) for answer in answers.values()] == [HostFacts] * 3
    first, second = lender.open(["beta"]), lender.open(["beta"])
    assert len(ready([*first], {"beta": 2})["beta"]) == 2
    assert len(ready([*second], {"beta": 3})["beta"]) == 3
    stop_all([*first, *second])
    until(lambda: len(marked(lender.mark)) == 4, "only the command and the programs of the hosts")


@pytest.mark.processes
def test_a_keeper_that_nobody_waits_for_does_not_stay(lender: Lender) -> None:
    lender.hosts()
    (keeper,) = lender.open(["beta"])
    keeper.stop()
    until(lambda: len(marked(lender.mark)) == 4, "only the command and the programs of the hosts")


@pytest.mark.processes
def test_what_a_keeper_started_ends_with_the_connections(lender: Lender, tmp_path: Path) -> None:
    lender.hosts()
    (keeper,) = lender.open(["beta"])
    ready([keeper], {})
    sign = tmp_path / "sign"
    program = f"import pathlib, time; pathlib.Path({str(sign)!r}).touch(); time.sleep(600)"
    keeper.write(encode_request(TasksRequest([Task("beta", 0, [ITS_PYTHON, "-c", program])], 600.0)))
    until(sign.exists, "what the keeper shall start")
    lender.close()
    assert lender.code == 0
    assert marked(lender.mark) == []
    keeper.stop()


@pytest.mark.processes
def test_a_host_that_is_gone_is_known_at_once_and_the_others_go_on(lender: Lender) -> None:
    lender.hosts()
    (gone,) = [
        pid for pid in programs(lender.mark) if b"beta" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    ]
    os.kill(gone, signal.SIGKILL)
    until(lambda: not is_living(gone), "the end of the program, which has closed its connections then")
    keepers = lender.open(["beta", "alpha-1"])
    answers = try_ready(keepers, {"beta": 1, "alpha-1": 1})
    assert isinstance(answers["beta"], HostError)
    assert str(answers["beta"]) == "beta: is gone (it closed its connection); ask the lender about beta"
    assert isinstance(answers["alpha-1"], list)
    stop_all(keepers)


@pytest.mark.processes
def test_a_keeper_ends_with_the_program_that_started_it(lender: Lender) -> None:
    lender.hosts()
    (keeper,) = lender.open(["beta"])
    ready([keeper], {})
    before = set(marked(lender.mark))
    for pid in programs(lender.mark):
        os.kill(pid, signal.SIGKILL)
    until(lambda: marked(lender.mark) == [], f"the end of {before}")
    keeper.stop()


@pytest.mark.processes
def test_the_token_is_worth_nothing_once_all_have_called(lender: Lender) -> None:
    lender.hosts()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", lender.endpoint.port), 5)


@pytest.mark.processes
def test_a_caller_with_a_wrong_key_is_closed(lender: Lender) -> None:
    lender.hosts()
    assert lender._server is not None
    with socket.create_connection(("127.0.0.1", lender._server.port), 5) as stranger:
        stranger.sendall(f"{lender._token} 2 beta somethingelse\n".encode())
        stranger.settimeout(30)
        assert stranger.recv(1) == b""


@pytest.mark.processes
def test_programs_do_not_find_the_token_in_their_environment(lender: Lender, tmp_path: Path) -> None:
    lender.hosts()
    (keeper,) = lender.open(["beta"])
    ready([keeper], {})
    seen = tmp_path / "seen"
    program = (
        f"import json, os; open({str(seen)!r} + '.part', 'w').write(json.dumps(dict(os.environ)));"
        f" os.rename({str(seen)!r} + '.part', {str(seen)!r})"
    )
    keeper.write(encode_request(TasksRequest([Task("beta", 0, [ITS_PYTHON, "-c", program])], 60.0)))
    until(seen.exists, "the program")
    keeper.stop()
    assert not [name for name in json.loads(seen.read_text()) if name.startswith("TRAINSCALE_CALL")]


@pytest.mark.processes
def test_a_command_that_ends_says_why(tmp_path: Path) -> None:
    launcher = Lender(tmp_path, "x alpha 10.0.0.1")  # whose program fails
    with pytest.raises(TrainscaleError, match="it ended: ValueError: invalid literal for int"):
        launcher.hosts()
    assert marked(str(tmp_path)) == []


@pytest.mark.processes
def test_hosts_that_do_not_call_are_an_error_after_the_timeout(tmp_path: Path) -> None:
    launcher = Lender(tmp_path, "1 alpha 10.0.0.1", wanted=2, patience_seconds=3.0)
    with pytest.raises(
        TrainscaleError, match=r"launcher lender: 1 of 2 hosts called back within 3 s \(--timeout\), on "
    ):
        launcher.hosts()
    assert marked(str(tmp_path)) == []


def test_the_program_can_be_read_by_any_python_3() -> None:
    """So that the keeper can report a Python that is too old."""
    tree = ast.parse(PROGRAM, feature_version=(3, 4))
    younger = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef)
    assert not [node for node in ast.walk(tree) if isinstance(node, younger)]
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert imported == {"collections.abc"}  # typing came with Python 3.5
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    annotations = [part for function in functions for argument in function.args.args if (part := argument.annotation)]
    assert not [part for part in annotations if isinstance(part, ast.Subscript)]


@pytest.mark.processes
def test_leases_work_above_1024_descriptors(tmp_path: Path) -> None:
    """select() refuses such descriptors, and a controller of many hosts has them."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 1200:
        pytest.skip("this machine allows too few open files")
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 1200), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    launcher = Lender(tmp_path, "1 alpha 10.0.0.1", "2 beta 10.0.0.2")
    try:
        assert [host.name for host in launcher.hosts()] == ["alpha", "beta"]
        keepers = launcher.open(["alpha", "beta"])
        assert {host: len(ports) for host, ports in ready(keepers, {"alpha": 1, "beta": 2}).items()} == {
            "alpha": 1,
            "beta": 2,
        }
        stop_all(keepers)
    finally:
        launcher.close()
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.processes
def test_a_program_that_cannot_reach_the_controller_says_so(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "1", "alpha", "-"],
        env={**os.environ, "TRAINSCALE_CALL": f"127.0.0.1,{port},token"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    assert f"alpha: no controller at 127.0.0.1:{port}" in done.stderr


# A controller of its own, so that it can be killed.
CONTROLLER = """
import sys, time
from pathlib import Path
sys.path[:0] = [{launch!r}, {support!r}]
from test_leased import Lender
from keepers import ready
launcher = Lender(Path({folder!r}), "1 alpha 10.0.0.1", "2 beta 10.0.0.2", copies=Path({copies!r}))
launcher.hosts()
keepers = launcher.open(["alpha", "beta"])
ready(keepers, {{}})
print("ready", flush=True)
time.sleep(600)
"""


@pytest.mark.processes
def test_nothing_is_left_when_the_controller_is_killed(tmp_path: Path) -> None:
    here = Path(__file__).parent
    text = CONTROLLER.format(
        launch=str(here), support=str(here.parents[1] / "support"), folder=str(tmp_path), copies=str(shared_copies())
    )
    with subprocess.Popen([sys.executable, "-c", text], stdout=subprocess.PIPE) as controller:
        assert controller.stdout is not None
        assert controller.stdout.readline() == b"ready\n"
        assert len(marked(str(tmp_path))) == 5  # the command, two programs, two keepers
        controller.kill()
    until(lambda: marked(str(tmp_path)) == [], "the end of everything", seconds=30.0)


@pytest.mark.processes
def test_a_lease_has_ended_when_all_of_its_hosts_are_gone_not_when_one_is(lender: Lender) -> None:
    lender.hosts()
    first, *others = programs(lender.mark)
    assert lender.find_end() == ""
    os.kill(first, signal.SIGKILL)
    until(lambda: len(lender.find_lost_hosts()) == 1, "the loss of a host")
    assert lender.find_end() == ""
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(lender.find_lost_hosts()) == 3, "the loss of all hosts")
    assert lender.find_end() == "the lease of lender has ended: the connections to all of its hosts are gone"
