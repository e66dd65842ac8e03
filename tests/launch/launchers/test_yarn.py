"""The YARN launcher: its commands to the letter, what it reads from Hadoop's output, and runs on a stand-in for
Hadoop's programs that really starts containers. Beside it is a ResourceManager that answers as a real one did.
"""

import base64
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from command import Command
from lab_runs import list_trials
from processes import marked, program, read_arguments, until
from yarn_cluster import EXCHANGES, YarnCluster, running_yarn

from trainscale.cluster.hosts import HostAccess
from trainscale.cluster.yarn import Application, YarnClient
from trainscale.errors import InputError, TrainscaleError
from trainscale.launch.launchers import yarn
from trainscale.launch.launchers.callback import CallbackEndpoint
from trainscale.launch.launchers.yarn import (
    YarnLauncher,
    YarnSettings,
    summarise_diagnostics,
)

CALL = CallbackEndpoint("10.0.0.1", 4711, "5ec3e7")
NASTY = """a'; echo "foo" > $HOME `id` \\ !"""


def launcher(**request: Any) -> YarnLauncher:
    settings = YarnSettings(**{key: request.pop(key) for key in ("queue", "yarn") if key in request})
    yarn_launcher = YarnLauncher(HostAccess(**{"nodes": 2, **request}), settings)
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
    assert values.pop("-shell_command").endswith("| base64 -d > trainscale.sh && exec /bin/bash trainscale.sh")
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


@pytest.mark.parametrize(
    ("option", "message"),
    [
        *(
            (option, "trainscale sets this option itself")
            for option in ("-num_containers 3", "--shell_command x", "-queue q")
        ),
        ("-node_label_expression 'gpu", "yarn -node_label_expression 'gpu: No closing quotation"),
    ],
)
def test_options_that_are_ours_and_open_quotes_are_refused(option: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        launcher(yarn=(option,)).command(CALL)


def test_the_token_is_neither_in_the_clients_environment_nor_in_what_everybody_reads_on_the_nodes() -> None:
    yarn_launcher = launcher()
    assert not [value for value in yarn_launcher.environment(CALL).values() if CALL.token in value]
    assert "-shell_env" not in yarn_launcher.command(CALL)


# ---- the containers' command


def test_a_containers_command_has_nothing_that_a_shell_reads_between_double_quotes() -> None:
    command = options(launcher(python=NASTY, setup=(NASTY,)).command(CALL))["-shell_command"]
    assert not set(command) & set("\"'$`\\!*?{}()<\n")
    echo, wrapped, rest = command.split(" ", 2)
    assert (echo, rest) == ("echo", "| base64 -d > trainscale.sh && exec /bin/bash -l trainscale.sh")
    script = base64.b64decode(wrapped).decode()
    assert script.startswith("export TRAINSCALE_CALL=10.0.0.1,4711,5ec3e7\n" + NASTY + " && exec ")


@pytest.mark.processes
def test_a_containers_command_runs_what_it_says(tmp_path: Path) -> None:
    """Between double quotes in a script, as a NodeManager puts it."""
    python = program(tmp_path, 'it\'s; a "python"', 'echo "$0|$WORD|$TRAINSCALE_CALL|$1" > printed')
    argv = launcher(python=str(python), setup=("export WORD='two words; $5'",)).command(CALL)
    command = options(argv)["-shell_command"]
    script = tmp_path / "launch_container.sh"
    script.write_text(f'#!/bin/bash\nexec /bin/bash -c "{command}  1>out 2>err "\n')
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

    command: Sequence[str] = ()

    def __init__(self, output: str) -> None:
        self.output, self.has_ended = output, False

    def wait(self, _: float) -> bool:
        return self.has_ended

    def stop(self, *_: float) -> int:
        self.has_ended = True
        return 0


class Manager:
    """A ResourceManager that answers with these states, one after the other."""

    yarn: str
    managers: tuple[str, ...]

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
    manager.yarn, manager.managers = program, ("http://rm:8088",)
    application.client = manager
    return application


def running(count: int | None) -> Application:
    return Application("RUNNING", "UNDEFINED", "default", running=count)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yarn, "_STATE_SECONDS", -1.0)
    monkeypatch.setattr(yarn, "_KILL_SECONDS", 0.3)


def checks(application: Any, count: int, output: str = f"Submitted application {ID}\n") -> None:
    for _ in range(count):
        application.count_hosts(Process(output))


# ---- waiting


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


# ---- runs

ARGUMENTS = ("--models", "mnist:8", "--warmup", "2", "-g", "1", "-o", "out")
SHORT = (*ARGUMENTS, "--steps", "3", "--repeats", "1")
LONG = (*ARGUMENTS, "--steps", "100000", "--repeats", "1")


class YarnRun(Command):
    """A command with ``--launcher yarn`` on a machine with the cluster's programs."""

    def __init__(self, cluster: YarnCluster, folder: Path, *arguments: str, verb: str = "run") -> None:
        folder.mkdir(exist_ok=True)
        self.cluster, self.folder = cluster, folder
        command = (verb, "--launcher", "yarn", "--remote-python", sys.executable, *arguments)
        super().__init__(folder, *command, columns=160, PATH=cluster.path)

    def trials(self) -> list[dict[str, Any]]:
        return list_trials(self.folder)

    def wait_for_ranks(self, count: int) -> None:
        """Until a trial trains with so many."""

        def there() -> bool:
            assert self.popen.poll() is None, self.finish().stderr
            return len(self.ranks()) == count

        until(there, f"{count} ranks", seconds=200.0)

    def assert_nothing_is_left(self) -> None:
        """Neither processes of the client, of containers or of ranks, nor files of the user or of containers."""
        until(lambda: marked(self.mark) == [], "the end of the cluster's own programs", seconds=30.0)
        assert self.cluster.left() == []


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[YarnCluster]:
    with running_yarn(tmp_path / "hadoop") as running:
        yield running


@pytest.mark.framework
def test_a_ladder_over_two_containers_and_nothing_is_left(cluster: YarnCluster, tmp_path: Path) -> None:
    run = YarnRun(cluster, tmp_path / "it's; here", "--nodes", "2", "--queue", "default", *SHORT)
    done = run.finish()
    assert done.returncode == 0, done.stderr + cluster.logs()
    trials = run.trials()
    assert [(trial["devices"], trial["status"], trial["hosts"]) for trial in trials] == [(1, "ok", 1), (2, "ok", 2)]
    (app,) = cluster.applications.values()
    assert (app["state"], app["final"]) == ("FINISHED", "SUCCEEDED")
    subcommands = [call[1] for call in cluster.calls if call[0] == "yarn"]
    assert subcommands == ["classpath", "jar"]  # one application for all trials, and it ended by itself
    run.assert_nothing_is_left()


@pytest.mark.framework
@pytest.mark.slow
def test_a_container_that_dies_in_a_trial_costs_that_point_only(cluster: YarnCluster, tmp_path: Path) -> None:
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", *ARGUMENTS, "--steps", "50", "--repeats", "2")
    run.wait_for_ranks(2)
    keepers = [pid for pid in marked(run.mark) if b"keeper" in read_arguments(pid)]
    (victim,) = [pid for pid in keepers if b"NM_HOST=node2" in Path(f"/proc/{pid}/environ").read_bytes()]
    os.kill(victim, signal.SIGKILL)
    done = run.finish()
    assert done.returncode == 1, done.stderr
    lost = [trial for trial in run.trials() if trial["status"] == "lost"]
    assert {trial["devices"] for trial in lost} == {2}
    assert all("node2" in trial["failure"]["message"] for trial in lost), lost
    good = [trial for trial in run.trials() if trial["devices"] == 1]
    assert {trial["status"] for trial in good} == {"ok"}
    run.assert_nothing_is_left()


@pytest.mark.framework
def test_ctrl_c_ends_the_application(cluster: YarnCluster, tmp_path: Path) -> None:
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", *LONG)
    run.wait_for_ranks(1)
    run.popen.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130
    (app,) = cluster.applications.values()
    assert app["state"] == "FINISHED"
    run.assert_nothing_is_left()


@pytest.mark.framework
def test_a_controller_that_is_killed_leaves_no_container(cluster: YarnCluster, tmp_path: Path) -> None:
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", *LONG)
    run.wait_for_ranks(1)
    run.popen.kill()
    run.finish()
    until(lambda: marked(run.mark) == [], "the end of the application")
    (app,) = cluster.applications.values()
    assert (app["state"], app["final"]) == ("FINISHED", "SUCCEEDED")


@pytest.mark.processes
def test_a_full_queue_is_told_and_the_application_does_not_stay_in_it(cluster: YarnCluster, tmp_path: Path) -> None:
    """Also told: that containers would get less than was requested."""
    cluster.set(nodes=["node1"], full=True, maximum=[3000, 4])
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", "--timeout", "4s", "--yarn=--container_vcores 8", *SHORT)
    done = run.finish()
    assert done.returncode == 1
    for less in ("3000 MB of memory, not 4096", "4 cores, not 8"):
        assert done.stderr.count(f"yarn: a container gets {less}: this is the cluster's maximum\n") == 1
    (name, app), *_ = cluster.applications.items()
    assert "0 of 2 hosts called back within 4 s (--timeout), on " in done.stderr
    assert f"{name} is ACCEPTED in queue 'default': it waits for its turn" in done.stderr
    assert "8192 of 8192 MB and 8 of 8 cores are free on 2 nodes" in done.stderr
    assert app["state"] == "KILLED"
    run.assert_nothing_is_left()


@pytest.mark.processes
@pytest.mark.parametrize("silent", [False, True], ids=["while it waits", "before the client has printed its id"])
def test_ctrl_c_takes_an_application_back(silent: bool, cluster: YarnCluster, tmp_path: Path) -> None:
    cluster.set(nodes=["node1"], full=True, silent=silent)
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", *SHORT)
    if silent:
        until(lambda: bool(cluster.applications), "the application", seconds=60.0)
    else:
        assert run.popen.stderr is not None
        assert "is ACCEPTED in queue default" in run.popen.stderr.readline()
    run.popen.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130
    assert [app["state"] for app in cluster.applications.values()] == ["KILLED"]
    run.assert_nothing_is_left()


CONNECT_ERROR = "java.net.ConnectException: Call From here/10.0.0.1 to rm:8032 failed: Connection refused"
NO_PYTHON = "no-such-python3: not found"


@pytest.mark.processes
@pytest.mark.parametrize(
    ("settings", "arguments", "messages"),
    [
        (
            {},
            ["--queue", "no'such; queue"],
            ["FAILED: Application application_", "submitted by user nobody to unknown queue: no'such; queue"],
        ),
        (
            {"refuses": CONNECT_ERROR},
            [],
            [f"launcher yarn: no application was submitted to queue 'default': {CONNECT_ERROR}"],
        ),
        (
            {},
            ["--setup", "exit 3"],
            [
                "{name} ended before its containers called back: FINISHED: Diagnostics., total=2",
                "yarn logs -applicationId {name}",
            ],
        ),
        (
            {"failing": [2]},  # with the default time limit of half an hour
            [],
            [
                "launcher yarn: 1 of 2 containers of {name} ended before they called back",
                "yarn: {name} is FINISHED: ",
                NO_PYTHON,
            ],
        ),
        ({"failing": [1, 2]}, [], ["ended before its containers called back: FINISHED: ", NO_PYTHON]),
    ],
    ids=["unknown queue", "refused", "set-up", "one container", "all containers"],
)
def test_what_ends_before_all_containers_call_is_told(
    settings: dict[str, Any], arguments: list[str], messages: list[str], cluster: YarnCluster, tmp_path: Path
) -> None:
    cluster.set(nodes=["node1", "node2"], **settings)
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", *arguments, *SHORT)
    done = run.finish()
    assert done.returncode == 1
    name = next(iter(cluster.applications), "")
    assert [message for message in messages if message.format(name=name) not in done.stderr] == [], done.stderr
    assert "Exception from container-launch" not in done.stderr
    run.assert_nothing_is_left()


@pytest.mark.processes
def test_check_takes_what_it_asks_for(cluster: YarnCluster, tmp_path: Path) -> None:
    done = YarnRun(cluster, tmp_path, "--nodes", "2", "--queue", "default", verb="check").finish()
    assert "2 of 2 hosts can be used" in done.stdout, done.stderr


@pytest.mark.framework
@pytest.mark.slow
def test_several_containers_of_one_machine_are_several_hosts(cluster: YarnCluster, tmp_path: Path) -> None:
    cluster.set(nodes=["node1"])
    done = YarnRun(cluster, tmp_path, "--nodes", "2", "--models", "mnist:8", verb="plan").finish()
    assert done.returncode == 0, done.stderr
    assert "node1-1, node1-2" in done.stdout
    assert "several containers are on node1, and share its cores" in done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("verb", ["run", "check"])
def test_without_the_number_of_containers_nothing_is_started(verb: str, cluster: YarnCluster, tmp_path: Path) -> None:
    done = YarnRun(cluster, tmp_path / "run", *(SHORT if verb == "run" else ()), verb=verb).finish()
    assert done.returncode == 2
    assert "launcher yarn: how many containers? name their number by --nodes" in done.stderr
    assert cluster.applications == {}
