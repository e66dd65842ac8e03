"""The YARN launcher: runs on a stand-in for Hadoop's programs that really starts containers.

Beside it is a ResourceManager that answers as a real one did.
"""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command import Command
from lab_runs import list_trials
from processes import marked, read_arguments, until
from yarn_cluster import YarnCluster, running_yarn

ARGUMENTS = ("--models", "mnist:8", "--warmup", "2", "-g", "1", "-o", "out")
SHORT = (*ARGUMENTS, "--steps", "3", "--repeats", "1")
LONG = (*ARGUMENTS, "--steps", "100000", "--repeats", "1")


class YarnRun(Command):
    """``trainscale run --launcher yarn`` on a machine with the cluster's programs."""

    def __init__(self, cluster: YarnCluster, folder: Path, *arguments: str) -> None:
        folder.mkdir(exist_ok=True)
        self.cluster, self.folder = cluster, folder
        command = ("run", "--launcher", "yarn", "--remote-python", sys.executable, *arguments)
        super().__init__(folder, *command, PATH=cluster.path)

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
    victim = next(pid for pid in marked(run.mark) if b"NM_HOST=node2" in _environment(pid) and _stands_by(pid))
    os.kill(victim, signal.SIGKILL)
    done = run.finish()
    assert done.returncode == 1, done.stderr
    lost = [trial for trial in run.trials() if trial["status"] == "lost"]
    assert {trial["devices"] for trial in lost} == {2}
    assert all("node2" in trial["failure"]["message"] for trial in lost), lost
    good = [trial for trial in run.trials() if trial["devices"] == 1]
    assert {trial["status"] for trial in good} == {"ok"}
    run.assert_nothing_is_left()


def _environment(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []


def _stands_by(pid: int) -> bool:
    return any(argument == b"keeper" for argument in read_arguments(pid))


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
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", "--timeout", "4s", "--cores-per-device", "8", *SHORT)
    done = run.finish()
    assert done.returncode == 1
    assert "yarn: a container gets 3000 MB of memory, not 4096: this is the cluster's maximum\n" in done.stderr
    assert "yarn: a container gets 4 cores, not 8: this is the cluster's maximum\n" in done.stderr
    (name, app), *_ = cluster.applications.items()
    assert "0 of 2 hosts called back within 4 s (--timeout), on " in done.stderr
    assert f"{name} is ACCEPTED in queue 'default': it waits for its turn" in done.stderr
    assert "8192 of 8192 MB and 8 of 8 cores are free on 2 nodes" in done.stderr
    assert app["state"] == "KILLED"
    run.assert_nothing_is_left()


@pytest.mark.processes
def test_ctrl_c_while_the_application_waits_takes_it_back(cluster: YarnCluster, tmp_path: Path) -> None:
    cluster.set(nodes=["node1"], full=True)
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", *SHORT)
    assert run.popen.stderr is not None
    line = run.popen.stderr.readline()
    assert "is ACCEPTED in queue default" in line
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
def test_ctrl_c_before_the_client_has_printed_the_id_takes_the_application_back(
    cluster: YarnCluster, tmp_path: Path
) -> None:
    cluster.set(nodes=["node1"], full=True, silent=True)
    run = YarnRun(cluster, tmp_path / "run", "--nodes", "2", *SHORT)
    until(lambda: bool(cluster.applications), "the application", seconds=60.0)
    run.popen.send_signal(signal.SIGINT)
    assert run.finish().returncode == 130
    assert [app["state"] for app in cluster.applications.values()] == ["KILLED"]
    run.assert_nothing_is_left()


@pytest.mark.processes
def test_check_takes_what_it_asks_for(cluster: YarnCluster, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainscale", "check", "--launcher", "yarn", "--remote-python", sys.executable]
    environment = {**os.environ, "PATH": cluster.path, "COLUMNS": "160"}

    def check(*argv: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*command, *argv], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    assert "name their number by --nodes" in check().stderr
    done = check("--nodes", "2", "--queue", "default")
    assert "2 of 2 hosts can be used" in done.stdout, done.stderr


@pytest.mark.framework
@pytest.mark.slow
def test_several_containers_of_one_machine_are_several_hosts(cluster: YarnCluster, tmp_path: Path) -> None:
    cluster.set(nodes=["node1"])
    plan = [sys.executable, "-m", "trainscale", "plan", "--launcher", "yarn", "--nodes", "2", "--models", "mnist:8"]
    done = subprocess.run(
        [*plan, "--remote-python", sys.executable],
        cwd=tmp_path,
        env={**os.environ, "PATH": cluster.path, "COLUMNS": "160"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "node1-1, node1-2" in done.stdout
    assert "several containers are on node1, and share its cores" in done.stderr


@pytest.mark.processes
def test_without_the_number_of_containers_nothing_is_started(cluster: YarnCluster, tmp_path: Path) -> None:
    run = YarnRun(cluster, tmp_path / "run", *SHORT)
    done = run.finish()
    assert done.returncode == 2
    assert "launcher yarn: how many containers? name their number by --nodes" in done.stderr
    assert cluster.applications == {}
