"""The application of a run: what is read from Hadoop's output, and how it is ended where no ResourceManager answers."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from yarn_cluster import EXCHANGES

from trainscale.cluster.yarn import Application, YarnClient
from trainscale.errors import TrainscaleError
from trainscale.launch.launchers import yarn_application
from trainscale.launch.launchers.yarn_application import SubmittedApplication, summarise_diagnostics

ID = "application_1794729166207_0001"
RETRY = "INFO ipc.Client: Retrying connect to server: rm/10.0.0.1:8032. Already tried 7 time(s); retry policy is x\n"


class Process:
    """A client that runs until it is stopped."""

    def __init__(self, output: str = "") -> None:
        self.output, self.has_ended = output, False

    def wait(self, _: float) -> bool:
        return self.has_ended

    def stop(self, *_: float) -> int:
        self.has_ended = True
        return 0


class Manager:
    """A ResourceManager that answers with these states, one after the other."""

    def __init__(self, *states: Application | None, pending: int | None = 0, reachable: bool = True) -> None:
        self.states, self.pending, self.reachable = list(states), pending, reachable

    def read_application(self, _: str) -> Application | None:
        return self.states.pop(0) if len(self.states) > 1 else self.states[0]

    def count_pending_containers(self) -> int | None:
        return self.pending

    def is_reachable(self) -> bool:
        return self.reachable

    def find_application(self, _: str, by_program: bool = True) -> str:
        return ""


def submitted(manager: Manager, yarn: str = "/bin/false") -> Any:
    application: Any = SubmittedApplication(YarnClient(yarn, "shell.jar", ("http://rm:8088",)), "trainscale-1", 2)
    application.manager = manager
    return application


def running(count: int | None) -> Application:
    return Application("RUNNING", "UNDEFINED", "default", running=count)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yarn_application, "_STATE_SECONDS", -1.0)
    monkeypatch.setattr(yarn_application, "_KILL_SECONDS", 0.3)


def checks(application: Any, count: int, output: str = f"Submitted application {ID}\n") -> None:
    for _ in range(count):
        application.check(Process(output))


# ---- waiting


def test_containers_that_ended_are_noticed_by_the_count_of_those_that_run() -> None:
    application = submitted(Manager(running(3), running(2)))
    checks(application, 2)
    with pytest.raises(TrainscaleError, match=f"1 of 2 containers of {ID} ended before they called back"):
        checks(application, 1)


@pytest.mark.parametrize(
    "manager",
    [Manager(running(2), pending=1), Manager(running(3)), Manager(running(None)), Manager(running(1), pending=None),
     Manager(Application("ACCEPTED")), Manager(None)],
    ids=["it waits for more", "all run", "unknown", "pending unknown", "accepted", "no answer"],
)  # fmt: skip
def test_containers_that_may_still_come_are_waited_for(manager: Manager) -> None:
    checks(submitted(manager), 5)


def test_a_manager_that_stays_down_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    checks(submitted(Manager(None, reachable=False)), 3, RETRY)
    monkeypatch.setattr(yarn_application, "_DOWN_SECONDS", -1.0)
    checks(submitted(Manager(None, reachable=False)), 3, "Running Client")
    checks(submitted(Manager(None, reachable=True)), 3, RETRY)
    message = f"no ResourceManager answers at http://rm:8088, nor to the client: {RETRY.strip()}"
    with pytest.raises(TrainscaleError, match=re.escape(message)):
        checks(submitted(Manager(None, reachable=False)), 1, RETRY)


# ---- ending


@pytest.mark.processes
def test_an_application_that_nobody_can_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    yarn = tmp_path / "yarn"
    yarn.write_text("#!/bin/sh\nexec sleep 600\n")
    yarn.chmod(0o755)
    application = submitted(Manager(running(3), reachable=False), str(yarn))
    process = Process(f"Submitted application {ID}\n")
    application.release(process, complete=True)
    printed = capsys.readouterr().err
    assert f"yarn: no ResourceManager answers over HTTP; trying for 0 s to end {ID}\n" in printed
    assert f"yarn: {ID} could not be ended, and its ApplicationMaster may live until" in printed
    assert f"to end it then: yarn application -kill {ID}" in printed
    assert process.has_ended


@pytest.mark.processes
def test_an_application_that_ends_by_itself_is_not_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = Process(f"Submitted application {ID}\n")
    process.has_ended = True
    submitted(Manager(running(3)), str(tmp_path / "no-such-yarn")).release(process, complete=True)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


# ---- output


def test_diagnostics_are_cut_to_what_says_something() -> None:
    printed = "/bin/bash: line 1: /opt/python3: No such file or directory"
    text = (
        "[2026-11-15 07:53:28.181]Exception from container-launch.\nContainer id: container_1_0005_01_000002\n"
        "Exit code: 127\n\n"
        "[2026-11-15 07:53:28.206]Container exited with a non-zero exit code 127. Error file: prelaunch.err.\n"
        f"Last 4096 bytes of prelaunch.err :\nLast 4096 bytes of stderr :\n{printed}\n\n"
    )
    assert summarise_diagnostics(text) == printed
    assert summarise_diagnostics(text + text) == printed
    assert summarise_diagnostics(text.replace(printed, "")) == "a container exited with a non-zero exit code 127"
    assert summarise_diagnostics("") == ""


def test_recorded_diagnostics_keep_their_first_line() -> None:
    import json

    app = json.loads(EXCHANGES["failing_state"]["body"])["app"]
    summary = summarise_diagnostics(app["diagnostics"])
    assert summary.startswith("Application application_1794729166207_0005 failed 1 times")
    assert summary.endswith("exited with  exitCode: 7")


def test_long_diagnostics_are_cut() -> None:
    assert len(summarise_diagnostics("\n".join(f"{n} {'x' * 5000}" for n in range(5000)))) < 1000
