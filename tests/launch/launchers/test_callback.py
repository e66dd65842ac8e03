"""Keepers that call back: who is let in, and what is said when one does not come."""

import socket
from collections.abc import Sequence
from pathlib import Path

import pytest
from keepers import Here, events_of, opened, read_until, ready, start_task, try_ready
from processes import marked

from trainscale.errors import TrainscaleError
from trainscale.launch.connection import HostError, HostLost, select_causes
from trainscale.launch.launchers.callback import (
    CALLBACK_VARIABLE,
    CallbackEndpoint,
    CommandReport,
    find_outward_address,
)
from trainscale.worker.events import Exit, LogLine
from trainscale.worker.inspection.host import list_addresses

# ---- keepers that come


@pytest.mark.processes
def test_every_keeper_calls_and_works_and_what_it_starts_does_not_know_the_token(folder: Path) -> None:
    with opened(Here(3)) as keepers:
        ports = ready(keepers, {"host0": 2, "host1": 2, "host2": 2})
        assert {host: len(numbers) for host, numbers in ports.items()} == {"host0": 2, "host1": 2, "host2": 2}
        program = f"import os; print('token' if '{CALLBACK_VARIABLE}' in os.environ else 'none', os.environ['INDEX'])"
        for number, keeper in enumerate(keepers):
            start_task(keeper, program, 30, rank=number)
        received = read_until(keepers, lambda received: len(events_of(received, Exit)) == 3)
    assert sorted(line.text for line in events_of(received, LogLine)) == ["none 0", "none 1", "none 2"]
    assert events_of(received, HostLost) == []


@pytest.mark.processes
def test_the_token_is_another_for_every_command_and_in_no_argument(folder: Path) -> None:
    launcher = Here(1)
    tokens = set()
    for _ in range(2):
        with opened(launcher) as keepers:
            ready(keepers, {})
            assert launcher.process is not None
            environment = Path(f"/proc/{launcher.process.pid}/environ").read_bytes().decode().split("\0")
            token = next(pair for pair in environment if pair.startswith(CALLBACK_VARIABLE)).split(",")[-1]
            assert len(token) == 32
            assert all(token not in Path(f"/proc/{pid}/cmdline").read_text() for pid in marked(str(folder)))
            tokens.add(token)
    assert len(tokens) == 2


@pytest.mark.processes
def test_a_command_that_prints_more_than_a_pipe_holds_goes_on(folder: Path) -> None:
    with opened(Here(1, first="print('a line of a very talkative command\\n' * 100_000, flush=True)\n")) as keepers:
        assert ready(keepers, {"host0": 1})["host0"]


@pytest.mark.processes
def test_keepers_may_call_an_ipv6_address(folder: Path) -> None:
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        pytest.skip("this machine has no IPv6")
    with opened(Here(1, controller="::1")) as keepers:
        assert ready(keepers, {"host0": 1})["host0"]


# ---- keepers that do not come


@pytest.mark.processes
def test_a_host_that_never_calls_is_named_and_the_others_are_not(folder: Path) -> None:
    with opened(Here(2, numbers=[1])) as keepers:
        answers = try_ready(keepers, {}, 2.0)
    assert answers["host1"] == []
    error = answers["host0"]
    assert isinstance(error, HostError)
    assert "host0: did not call back within 2 s on 127.0.0.1:" in str(error)
    assert "--controller-address" in str(error)


@pytest.mark.processes
def test_where_no_keeper_calls_no_host_is_named(folder: Path) -> None:
    launcher = Here(2, first="import time; time.sleep(600)\n")
    with (
        opened(launcher) as keepers,
        pytest.raises(HostError, match=r"^no keeper that python\S* should start called within 1 s on 127.0.0.1:"),
    ):
        ready(keepers, {}, 1.0)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("import sys; sys.exit('no room on this cluster')\n", r"^no room on this cluster"),
        ("import os; os.kill(os.getpid(), 9)\n", r"^python\S* was ended by SIGKILL"),
    ],
    ids=["quoted", "killed"],
)
def test_a_command_that_ends_too_early_says_why(first: str, message: str, folder: Path) -> None:
    with opened(Here(2, first)) as keepers, pytest.raises(HostError, match=message):
        ready(keepers, {})


@pytest.mark.processes
def test_a_command_that_is_stopped_says_so_and_no_host_is_named(folder: Path) -> None:
    launcher = Here(2, first="import os, signal; os.kill(os.getpid(), signal.SIGSTOP)\n")
    with opened(launcher) as keepers:
        answers = try_ready(keepers, {}, 2.0)
    assert launcher.process is not None
    program, pid = launcher.process.program, launcher.process.pid
    message = f"{program} (process {pid}) is stopped, so it does not start or end keepers"
    assert {str(answer) for answer in answers.values()} == {message}
    assert {answer.host for answer in answers.values() if isinstance(answer, HostError)} == {""}


@pytest.mark.processes
def test_the_host_that_the_command_complains_of_is_blamed_and_the_others_are_consequences(folder: Path) -> None:
    complaint = "import sys; print('ssh: connect to host host1 port 22: No route to host'); sys.exit(1)\n"
    with opened(Here(3, first=complaint)) as keepers:
        answers = try_ready(keepers, {})
    errors = [answer for answer in answers.values() if isinstance(answer, HostError)]
    assert [error.consequence for error in errors] == [True, False, True]
    assert str(errors[1]).startswith("host1: no route")
    assert str(errors[2]).startswith("host2: not started because of host1: no route")
    assert select_causes(errors) == [errors[1]]


@pytest.mark.processes
def test_a_keeper_that_is_ended_because_of_another_host_while_it_becomes_ready_is_a_consequence(folder: Path) -> None:
    """srun ends all keepers if one cannot start. Some have called already."""
    call_and_end = (
        "import os, socket, sys, time\n"
        f"address, port, token = os.environ['{CALLBACK_VARIABLE}'].split(',')\n"
        "connection = socket.create_connection((address, int(port)))\n"
        "connection.sendall((token + ' 0 host0\\n').encode())\n"
        "connection.recv(1)\n"
        "connection.close()\n"
        "time.sleep(0.5)\n"
        "sys.exit('host1: cannot start a keeper')\n"
    )
    with opened(Here(2, first=call_and_end)) as keepers:
        answers = try_ready(keepers, {})
    errors = [answer for answer in answers.values() if isinstance(answer, HostError)]
    assert str(errors[0]) == "host0: not started because of host1: host1: cannot start a keeper"
    assert [error.host for error in select_causes(errors)] == ["host1"]


@pytest.mark.processes
def test_a_keeper_that_cannot_call_says_so(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        nobody = server.getsockname()[1]

    class Wrong(Here):
        def environment(self, endpoint: CallbackEndpoint) -> dict[str, str]:
            return {**super().environment(endpoint), CALLBACK_VARIABLE: f"{endpoint.address},{nobody},{endpoint.token}"}

        def read_output(self, output: str, hosts: Sequence[str]) -> CommandReport:
            return CommandReport({"host0": output} if output else {})

    with (
        opened(Wrong(1)) as keepers,
        pytest.raises(HostError, match="cannot call this machine: Connection refused; is there a firewall"),
    ):
        ready(keepers, {})


def test_a_command_that_does_not_exist_is_an_error_before_anything_starts(folder: Path) -> None:
    class Missing(Here):
        def command(self, hosts: Sequence[str], endpoint: CallbackEndpoint) -> list[str]:
            return ["no-such-mpirun"]

    with pytest.raises(TrainscaleError, match="cannot start no-such-mpirun"):
        Missing(1).open(["host0"])


# ---- where they call


def test_the_address_for_call_backs_is_the_one_by_which_hosts_are_reached() -> None:
    """Those of this machine itself, as a hosts file may name it, say nothing about the others."""
    assert find_outward_address(["127.0.0.1"]) == "127.0.0.1"
    outward = [address for address in list_addresses().values() if not address.startswith("127.")]
    if outward:
        assert find_outward_address(["localhost", outward[0]]) == outward[0]
        assert find_outward_address(["no such host"]) in outward
        assert find_outward_address([]) in outward
    else:
        assert find_outward_address([]) == socket.gethostname()
