"""What is known of a YARN cluster: its client's files, its ResourceManager's answers as a real one gave them."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import program
from yarn_cluster import EXCHANGES, JAR, YarnCluster, running_yarn, write_site

from trainscale.cluster import yarn
from trainscale.cluster.yarn import (
    END_STATES,
    Application,
    YarnClient,
    list_manager_urls,
    read_configuration,
)
from trainscale.errors import InputError

ID = "application_1794729166207_0001"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[YarnCluster]:
    with running_yarn(tmp_path / "hadoop") as running:
        yield running


def client(cluster: YarnCluster) -> YarnClient:
    return yarn.find_client({"PATH": cluster.path})


@pytest.mark.processes
def test_all_is_found_from_the_program_on_the_path(cluster: YarnCluster, tmp_path: Path) -> None:
    yarn_client = client(cluster)
    assert yarn_client.yarn == str(cluster.folder / "bin/yarn")
    assert yarn_client.jar == str(cluster.folder / "share/hadoop/yarn" / JAR)
    assert yarn_client.managers == (cluster.address,)
    # Below HADOOP_HOME the program is certainly Hadoop's
    program(tmp_path, "yarn", "exit 1")
    yarn_client = yarn.find_client({"PATH": f"{tmp_path}:/usr/bin:/bin", "HADOOP_HOME": str(cluster.folder)})
    assert yarn_client.yarn == str(cluster.folder / "bin/yarn")
    with pytest.raises(InputError, match="no program yarn on the PATH, nor below HADOOP_HOME"):
        yarn.find_client({"PATH": "/usr/bin:/bin"})


@pytest.mark.processes
def test_the_jar_is_the_newest_and_not_that_of_the_tests(tmp_path: Path) -> None:
    program(tmp_path, "yarn", "echo 'ERROR: JAVA_HOME is not set and could not be found.' >&2\nexit 1")
    with pytest.raises(InputError, match="yarn classpath: ERROR: JAVA_HOME is not set"):
        yarn.find_client({"PATH": f"{tmp_path}:/bin"})
    home, vendor = tmp_path / "it's; a home", tmp_path / "vendor"
    (home / "share/hadoop/yarn").mkdir(parents=True)
    vendor.mkdir()
    program(tmp_path, "yarn", f"echo '/nothing:{vendor}/*'")
    environment = {"PATH": f"{tmp_path}:/bin", "HADOOP_HOME": str(home)}
    with pytest.raises(InputError, match=r"no hadoop-yarn-applications-distributedshell-\*\.jar below"):
        yarn.find_client(environment)
    jar = vendor / "hadoop-yarn-applications-distributedshell.jar"  # without a number
    jar.touch()
    assert yarn.find_client(environment).jar == str(jar)
    for name in ("3.3.5", "3.3.6", "3.3.6-tests", "3.3.6-sources"):
        (home / f"share/hadoop/yarn/hadoop-yarn-applications-distributedshell-{name}.jar").touch()
    assert yarn.find_client(environment).jar == str(home / "share/hadoop/yarn" / JAR)


def test_the_first_site_file_counts_with_its_references_filled_in(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    write_site(
        tmp_path / "one",
        {
            "yarn.resourcemanager.hostname": "${master}",
            "master": "rm.example.org",
            "yarn.resourcemanager.webapp.address": "${yarn.resourcemanager.hostname}:8188",
        },
    )
    write_site(tmp_path / "two", {"yarn.resourcemanager.hostname": "another"})
    configuration = read_configuration([tmp_path / "none", tmp_path / "one", tmp_path / "two"])
    assert configuration["yarn.resourcemanager.webapp.address"] == "rm.example.org:8188"
    assert list_manager_urls(configuration) == ("http://rm.example.org:8188",)
    (tmp_path / "yarn-site.xml").write_text("<configuration>")
    with pytest.raises(InputError, match=r"yarn-site\.xml: not XML"):
        read_configuration([tmp_path])


RM = "yarn.resourcemanager"


@pytest.mark.parametrize(
    ("properties", "urls"),
    [
        ({}, ["http://localhost:8088"]),
        ({f"{RM}.hostname": "rm"}, ["http://rm:8088"]),
        ({f"{RM}.hostname": "rm", "yarn.http.policy": "HTTPS_ONLY"}, ["https://rm:8090"]),
        (
            {
                f"{RM}.ha.enabled": "true",
                f"{RM}.ha.rm-ids": "rm1, rm2",
                f"{RM}.hostname.rm1": "one",
                f"{RM}.webapp.address.rm2": "two:8188",
            },
            ["http://one:8088", "http://two:8188"],
        ),
    ],
)
def test_managers_are_reached_as_yarn_has_it_unless_told(properties: dict[str, str], urls: list[str]) -> None:
    assert list(list_manager_urls(properties)) == urls


@pytest.fixture
def recorded(cluster: YarnCluster, monkeypatch: pytest.MonkeyPatch) -> YarnCluster:
    """Answers as they were recorded, to the byte, whatever the application is called here."""
    exchanges = {exchange["path"]: (exchange["status"], exchange["body"]) for exchange in EXCHANGES.values()}
    monkeypatch.setattr(cluster, "answer", lambda path: exchanges[path.removeprefix("/ws/v1/cluster")])
    return cluster


@pytest.mark.processes
@pytest.mark.parametrize(
    ("exchange", "state"),
    [
        ("app_ACCEPTED", Application("ACCEPTED", "default")),
        ("app_RUNNING", Application("RUNNING", "default", running=1)),
        ("app_final", Application("FINISHED", "default")),
    ],
)
def test_a_real_managers_words_are_understood(
    exchange: str, state: Application, recorded: YarnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "answer", lambda _: (200, EXCHANGES[exchange]["body"]))
    assert client(recorded).read_application(ID) == state
    assert (state.state in END_STATES) == (exchange == "app_final")


@pytest.mark.processes
def test_a_failure_comes_with_its_diagnostics(recorded: YarnCluster) -> None:
    manager = client(recorded)
    failed = manager.read_application("application_1794729166207_0005")
    assert (failed.state, failed.running) == ("FAILED", None)
    assert failed.diagnostics.splitlines()[0].endswith("exited with  exitCode: 7")
    unknown = manager.read_application("application_1794729166207_0004")
    assert unknown.diagnostics.endswith("submitted by user nobody to unknown queue: nosuch")
    killed = manager.read_application("application_1794729166207_0002")
    assert killed.state == "KILLED"
    assert manager.describe_free_resources() == "8192 of 8192 MB and 8 of 8 cores are free on 2 nodes"
    # What nobody knows is None, and the program is not asked again
    assert manager.read_application("application_1_0001") is None
    assert manager.read_application("xyz") is None
    assert [call for call in recorded.calls if call[:2] == ["yarn", "application"]] == []


@pytest.mark.processes
@pytest.mark.parametrize("answer", [(401, "<html>Authentication required</html>"), (200, "This is standby RM.")])
def test_where_the_web_gives_no_answer_the_program_is_asked(
    answer: tuple[int, str], cluster: YarnCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    app = {"state": "FAILED", "final": "FAILED", "queue": "a 'queue'; x", "name": "n", "diagnostics": "no: room"}
    (cluster.folder / "applications" / f"{ID}.json").write_text(json.dumps(app))
    monkeypatch.setattr(cluster, "answer", lambda _: answer)
    monkeypatch.setitem(os.environ, "PATH", cluster.path)
    manager = client(cluster)
    assert manager.read_application(ID) == Application("FAILED", "a 'queue'; x", "no: room")
    assert manager.read_application("application_1_0001") is None
    assert manager.describe_free_resources() == ""


def test_the_second_of_a_pair_answers_when_the_first_does_not(cluster: YarnCluster) -> None:
    yarn_client = YarnClient("/bin/false", "shell.jar", ("http://127.0.0.1:1", cluster.address))
    (cluster.folder / "applications" / f"{ID}.json").write_text(
        json.dumps({"state": "RUNNING", "final": "UNDEFINED", "queue": "default", "name": "n", "diagnostics": ""})
    )
    state = yarn_client.read_application(ID)
    assert state.state == "RUNNING"
