"""The YARN launcher: its commands to the letter, what it reads from Hadoop's output, and how an application ends."""

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from processes import program
from yarn_cluster import EXCHANGES

from trainscale.cluster.hosts import HostAccess, HostRequest
from trainscale.cluster.yarn import Application, YarnClient
from trainscale.errors import InputError, TrainscaleError
from trainscale.launch.launchers import yarn
from trainscale.launch.launchers.callback import CallbackEndpoint
from trainscale.launch.launchers.yarn import (
    YarnLauncher,
    YarnSettings,
    make_container_command,
    summarise_diagnostics,
)

CALL = CallbackEndpoint("10.0.0.1", 4711, "5ec3e7")
NASTY = """a'; echo "foo" > $HOME `id` \\ !"""


def launcher(**request: Any) -> YarnLauncher:
    settings = YarnSettings(**{key: request.pop(key) for key in ("queue", "yarn") if key in request})
    yarn_launcher = YarnLauncher(HostAccess(request=HostRequest(**{"nodes": 2, **request})), settings)
    yarn_launcher.client = YarnClient("/opt/hadoop/bin/yarn", "/opt/the jars/shell.jar")
    return yarn_launcher


def options(argv: list[str]) -> dict[str, str]:
    assert argv[:4] == [
        "/opt/hadoop/bin/yarn",
        "jar",
        "/opt/the jars/shell.jar",
        "org.apache.hadoop.yarn.applications.distributedshell.Client",
    ]
    return dict(zip(argv[4::2], argv[5::2], strict=True))


# ---- the client's command


def test_one_application_is_asked_for_with_a_container_for_each_node() -> None:
    yarn_launcher = launcher()
    values = options(yarn_launcher.command(CALL))
    assert values.pop("-shell_command") == make_container_command(CALL, yarn_launcher.access)
    assert values.pop("-appname").startswith("trainscale-")
    assert values == {
        "-jar": "/opt/the jars/shell.jar",
        "-queue": "default",
        "-num_containers": "2",
        "-container_memory": "4096",
        "-container_vcores": "1",
        "-timeout": "2147483647",
    }


def test_what_is_requested_grows_with_the_devices_of_a_host() -> None:
    values = options(launcher(nodes=8, devices=4, cores_per_device=2, queue=NASTY).command(CALL))
    assert values["-num_containers"] == "8"
    assert values["-container_vcores"] == "8"
    assert values["-container_memory"] == "16384"
    assert values["-queue"] == NASTY
    assert "-container_resources" not in values
    assert options(launcher(device="cuda", devices=4).command(CALL))["-container_resources"] == "yarn.io/gpu=4"


def test_the_persons_options_come_first_and_in_place_of_ours() -> None:
    argv = launcher(yarn=("-container_memory 8192", "--node_label_expression 'gpu nodes'")).command(CALL)
    assert argv[4:8] == ["-container_memory", "8192", "--node_label_expression", "gpu nodes"]
    assert argv.count("-container_memory") == 1


@pytest.mark.parametrize("option", ["-num_containers 3", "--shell_command date", "-queue q"])
def test_options_that_are_ours_are_refused(option: str) -> None:
    with pytest.raises(InputError, match="trainscale sets this option itself"):
        launcher(yarn=(option,)).command(CALL)


def test_an_open_quote_and_a_missing_number_of_containers_are_refused() -> None:
    with pytest.raises(InputError, match="yarn -node_label_expression 'gpu: No closing quotation"):
        launcher(yarn=("-node_label_expression 'gpu",)).command(CALL)
    with pytest.raises(InputError, match="how many containers"):
        launcher(nodes=None).command(CALL)


def test_the_token_is_neither_in_the_clients_environment_nor_in_what_everybody_reads_on_the_nodes() -> None:
    yarn_launcher = launcher()
    assert not [value for value in yarn_launcher.environment(CALL).values() if CALL.token in value]
    assert "-shell_env" not in yarn_launcher.command(CALL)


# ---- the containers' command


def test_a_containers_command_has_nothing_that_a_shell_reads_between_double_quotes() -> None:
    command = make_container_command(CALL, HostAccess(python=NASTY, setup=(NASTY,)))
    assert not set(command) & set("\"'$`\\!*?{}()<\n")
    echo, wrapped, rest = command.split(" ", 2)
    assert (echo, rest) == ("echo", "| base64 -d > trainscale.sh && exec /bin/bash -l trainscale.sh")
    script = base64.b64decode(wrapped).decode()
    assert script.startswith("export TRAINSCALE_CALL=10.0.0.1,4711,5ec3e7\n" + NASTY + " && exec ")


@pytest.mark.processes
def test_a_containers_command_runs_what_it_says(tmp_path: Path) -> None:
    """Between double quotes in a script, as a NodeManager puts it."""
    python = tmp_path / 'it\'s; a "python"'
    python.write_text('#!/bin/sh\necho "$0|$WORD|$TRAINSCALE_CALL|$1" > printed\n')
    python.chmod(0o755)
    where = HostAccess(python=str(python), setup=("export WORD='two words; $5'",))
    script = tmp_path / "launch_container.sh"
    script.write_text(f'#!/bin/bash\nexec /bin/bash -c "{make_container_command(CALL, where)}  1>out 2>err "\n')
    subprocess.run(["bash", str(script)], cwd=tmp_path, check=True, timeout=60)
    assert (tmp_path / "printed").read_text() == f"{python}|two words; $5|10.0.0.1,4711,5ec3e7|-c\n"


def test_the_worker_is_unpacked_in_the_containers_own_folder_unless_told() -> None:
    assert YarnLauncher(HostAccess()).access.remote_dir == "."
    assert YarnLauncher(HostAccess(remote_dir="/scratch")).access.remote_dir == "/scratch"


# ---- the application

ID = "application_1794729166207_0001"
RETRY = "INFO ipc.Client: Retrying connect to server: rm/10.0.0.1:8032. Already tried 7 time(s); retry policy is x\n"


class Process:
    """A client that runs until it is stopped."""

    def __init__(self, output: str = "", command: Sequence[str] = ()) -> None:
        self.output, self.command, self.has_ended = output, command, False

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


def submitted(manager: Manager, program: str = "/bin/false") -> Any:
    application: Any = launcher()
    application.client = YarnClient(program, "shell.jar", ("http://rm:8088",))
    application.manager = manager
    return application


def running(count: int | None) -> Application:
    return Application("RUNNING", "UNDEFINED", "default", running=count)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yarn, "_STATE_SECONDS", -1.0)
    monkeypatch.setattr(yarn, "_KILL_SECONDS", 0.3)


def checks(application: Any, count: int, output: str = f"Submitted application {ID}\n", *command: str) -> None:
    for _ in range(count):
        application.count_hosts(Process(output, command))


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


def test_a_manager_that_stays_down_is_told_and_ends_the_wait(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    application = submitted(Manager(None, reachable=False))
    checks(application, 3, RETRY)
    message = "no ResourceManager answers at http://rm:8088; the client tries again (rm/10.0.0.1:8032, tried 8 times)"
    assert capsys.readouterr().err == f"yarn: {message}\n"
    monkeypatch.setattr(yarn, "_DOWN_SECONDS", -1.0)
    checks(submitted(Manager(None, reachable=False)), 3, "Running Client")
    checks(submitted(Manager(None, reachable=True)), 3, RETRY)
    with pytest.raises(TrainscaleError, match="no ResourceManager answers at http://rm:8088, nor to the client"):
        checks(application, 1, RETRY)


@pytest.mark.parametrize("word", ["capability", "capabililty"])
def test_what_a_container_gets_at_most_is_told_once(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    output = (
        f"INFO Max mem {word} of resources in this cluster 8192\n"
        f"INFO Max virtual cores {word} of resources in this cluster 4\n"
    )
    checks(submitted(Manager(None)), 2, output, "-container_memory", "16384", "-container_vcores", "4")
    assert (
        capsys.readouterr().err
        == "yarn: a container gets 8192 MB of memory, not 16384: this is the cluster's maximum\n"
    )
    checks(submitted(Manager(None)), 1, output, "--container_vcores", "8")
    assert capsys.readouterr().err == "yarn: a container gets 4 cores, not 8: this is the cluster's maximum\n"


# ---- ending


@pytest.mark.processes
def test_an_application_that_nobody_can_end_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(tmp_path, "yarn", "exec sleep 600")
    application = submitted(Manager(running(3), reachable=False), str(tmp_path / "yarn"))
    process = Process(f"Submitted application {ID}\n")
    application.release_hosts(process, complete=True)
    printed = capsys.readouterr().err
    assert f"yarn: no ResourceManager answers over HTTP; trying for 0 s to end {ID}\n" in printed
    assert f"yarn: {ID} could not be ended, and its ApplicationMaster may live until" in printed
    assert f"to end it then: yarn application -kill {ID}" in printed
    assert process.has_ended


@pytest.mark.processes
def test_an_application_that_ends_by_itself_is_not_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    process = Process(f"Submitted application {ID}\n")
    process.has_ended = True
    submitted(Manager(running(3)), str(tmp_path / "no-such-yarn")).release_hosts(process, complete=True)  # type: ignore[arg-type]
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
    assert len(summarise_diagnostics("\n".join(f"{n} {'x' * 5000}" for n in range(5000)))) < 1000
    app = json.loads(EXCHANGES["failing_state"]["body"])["app"]
    summary = summarise_diagnostics(app["diagnostics"])
    assert summary.startswith("Application application_1794729166207_0005 failed 1 times")
    assert summary.endswith("exited with  exitCode: 7")
