"""Hosts that are leased for a whole run: real programs of this machine, started by one command as a cluster would."""

import ast
import os
import resource
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from keepers import shared_copies
from processes import MARK, is_living, marked, until

from trainscale.cluster.hosts import HostAccess
from trainscale.errors import TrainscaleError
from trainscale.launch.callback import LauncherProcess
from trainscale.launch.connection import HostError, HostLost, NoFreePorts, find_last_line
from trainscale.launch.hosts import visit_hosts
from trainscale.launch.launchers.base import ITS_PYTHON
from trainscale.launch.launchers.callback import CallbackEndpoint, make_callback_program
from trainscale.launch.launchers.leased import LeasedHostsLauncher
from trainscale.spec.devices import Host
from trainscale.worker.events import LogLine
from trainscale.worker.inspection.host import HostFacts
from trainscale.worker.job import Task

# Starts one program for each "number name address" on its command line, and waits for them.
BRING = """
import subprocess, sys
program, *hosts = sys.argv[1:]
started = [subprocess.Popen([sys.executable, "-c", program, *host.split()]) for host in hosts]
sys.exit(max(process.wait() for process in started))
"""
PROGRAM = make_callback_program("int(sys.argv[1])", "sys.argv[2]", "sys.argv[3]")


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
        folder_of_copies = str(copies or shared_copies())
        super().__init__(HostAccess(remote_dir=folder_of_copies, patience_seconds=patience_seconds))
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
        return TrainscaleError(f"it ended: {find_last_line(process.output)}")

    def explain_missing(self, process: LauncherProcess) -> str:
        return "nobody knows why"

    def explain_lost(self, host: str) -> str:
        return f"ask the lender about {host}"

    def release_hosts(self, process: LauncherProcess, complete: bool) -> None:
        process.stop(10.0 if complete else 0.0)


def run_program(lender: Lender, host: str, program: str) -> list[str]:
    """Run a Python program on a host. Return the lines that it prints."""
    with lender.connect([host]) as connected:
        connected.start([Task(host, 0, [ITS_PYTHON, "-c", program])], 60.0)
        return [event.event.text for event in connected.read_events(60.0) if isinstance(event.event, LogLine)]


def find_keeper(lender: Lender, host: str) -> int:
    """Return the process id of a host's keeper."""
    return int(run_program(lender, host, "import os; print(os.getppid())")[0])


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
    assert len(marked(lender.mark)) == 4  # the command and three keepers
    other = Lender(Path(lender.mark), "1 node 10.0.0.1", "2 node 10.0.0.1", "3 node-1 10.0.0.2")
    with closing(other) as launcher:  # a name that is made up is not that of another host
        assert [host.name for host in launcher.hosts()] == ["node-2", "node-3", "node-1"]


@pytest.mark.processes
def test_every_host_answers_again_and_again_with_the_same_keeper(lender: Lender) -> None:
    for _ in range(2):
        answers = visit_hosts(lender, {})
        assert [type(answer) for answer in answers.values()] == [HostFacts] * 3
    assert find_keeper(lender, "beta") == find_keeper(lender, "beta")
    assert len(marked(lender.mark)) == 4


@pytest.mark.processes
def test_an_error_costs_no_host_that_answers(lender: Lender) -> None:
    lender.hosts()
    with pytest.raises(NoFreePorts), lender.connect(["beta", "alpha-1"]) as connected:
        connected.find_ports({"beta": 100_000, "alpha-1": 1})
    interrupt_tasks(lender, ValueError())
    assert lender.find_lost_hosts() == []
    with lender.connect(["beta", "alpha-1"]) as connected:
        assert len(connected.find_ports({"beta": 2, "alpha-1": 1})["beta"]) == 2


def interrupt_tasks(lender: Lender, error: BaseException) -> None:
    """Raise the error while a task runs on a host."""
    with suppress(type(error)), lender.connect(["beta"]) as connected:
        connected.start([Task("beta", 0, ["sleep", "600"])], 600.0)
        until(lambda: len(marked(lender.mark)) == 5, "the command, three keepers and the task")
        raise error


@pytest.mark.processes
def test_what_a_keeper_started_ends_with_the_connections(lender: Lender) -> None:
    lender.hosts()
    interrupt_tasks(lender, KeyboardInterrupt())
    lender.close()
    assert lender.process.exit_code == 0
    assert marked(lender.mark) == []


@pytest.mark.processes
def test_a_host_that_is_gone_is_known_at_once_and_the_others_go_on(lender: Lender) -> None:
    lender.hosts()
    gone = find_keeper(lender, "beta")
    os.kill(gone, signal.SIGKILL)
    until(lambda: not is_living(gone), "the end of the keeper, which has closed its connection then")
    with (
        pytest.raises(HostError, match=r"^beta: is gone; ask the lender about beta$"),
        lender.connect(["alpha-1", "beta"]),
    ):
        pass
    with lender.connect(["alpha-1"]) as connected:
        assert len(connected.find_ports({"alpha-1": 1})["alpha-1"]) == 1


@pytest.mark.processes
def test_a_keeper_that_is_lost_ends_what_it_started_and_the_lender_says_why(lender: Lender) -> None:
    lender.hosts()
    keeper = find_keeper(lender, "beta")
    with lender.connect(["beta"]) as connected:
        connected.start([Task("beta", 0, ["sleep", "600"])], 600.0)
        os.kill(keeper, signal.SIGKILL)
        (lost,) = [received.event for received in connected.read_events(60.0)]
    assert lost == HostLost("beta", ("ask the lender about beta",))
    until(lambda: len(marked(lender.mark)) == 3, "only the command and two keepers")


@pytest.mark.processes
def test_the_token_is_worth_nothing_once_all_have_called_and_programs_do_not_find_it(lender: Lender) -> None:
    lender.hosts()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", lender.endpoint.port), 5)
    program = "import os; print([name for name in os.environ if name.startswith('TRAINSCALE_CALL')])"
    assert run_program(lender, "beta", program) == ["[]"]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("lent", "wanted", "message"),
    [
        ("x alpha 10.0.0.1", 1, "it ended: ValueError: invalid literal for int"),  # its program fails
        ("1 alpha 10.0.0.1", 2, r"launcher lender: 1 of 2 hosts called back within 3 s \(--timeout\), on "),
    ],
    ids=["the command ends", "a host does not call"],
)
def test_without_all_hosts_the_error_says_why(lent: str, wanted: int, message: str, tmp_path: Path) -> None:
    patience = 3.0 if wanted > 1 else 60.0
    launcher = Lender(tmp_path, lent, wanted=wanted, patience_seconds=patience)
    with pytest.raises(TrainscaleError, match=message):
        launcher.hosts()
    assert marked(str(tmp_path)) == []


def test_the_program_can_be_read_by_any_python_3() -> None:
    """So that the host can report a Python that is too old."""
    tree = ast.parse(PROGRAM, feature_version=(3, 4))
    younger = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef)
    assert not [node for node in ast.walk(tree) if isinstance(node, younger)]


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
        with launcher.connect(["alpha", "beta"]) as connected:
            ports = connected.find_ports({"alpha": 1, "beta": 2})
        assert {host: len(numbers) for host, numbers in ports.items()} == {"alpha": 1, "beta": 2}
    finally:
        launcher.close()
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.processes
def test_a_lease_has_ended_when_all_of_its_hosts_are_gone_not_when_one_is(lender: Lender) -> None:
    lender.hosts()
    first, *others = [find_keeper(lender, host.name) for host in lender.hosts()]
    assert lender.find_end() == ""
    os.kill(first, signal.SIGKILL)
    until(lambda: len(lender.find_lost_hosts()) == 1, "the loss of a host")
    assert lender.find_end() == ""
    for pid in others:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(lender.find_lost_hosts()) == 3, "the loss of all hosts")
    assert lender.find_end() == "the lease of lender has ended: the connections to all of its hosts are gone"
