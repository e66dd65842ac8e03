"""Simulates Hadoop's programs ``yarn`` and ``hadoop`` and a YARN cluster.

It behaves towards trainscale like the distributed shell's client, its ApplicationMaster and a NodeManager, as their
sources and a real Hadoop 3.3.6 showed: the client's options and messages, a launch script with the command between
double quotes, the containers' variables without the client's environment, files in the user's folder. Containers are
processes of this machine. ``folder/cluster.json`` describes the cluster: "nodes", "full" (an application waits for
ever), "queues", "refuses" (the message with which the client fails), "failing" (numbers of containers that end at
once), "silent" (the client prints no id), "maximum" (memory and cores of a container).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CLUSTER = 1794729166207
TAKES_NOTHING = {"debug", "help", "create", "keep_containers_across_application_attempts"}
OPTIONS = {
    "appname", "priority", "queue", "timeout", "master_memory", "master_vcores", "master_resources", "jar",
    "shell_command", "shell_script", "shell_args", "shell_env", "shell_cmd_priority", "container_type",
    "container_memory", "container_vcores", "container_resources", "num_containers", "node_label_expression",
    "container_retry_policy", "container_max_retries", "container_retry_interval", "log_properties",
}  # fmt: skip
POLL_SECONDS = 0.05
LONG_SECONDS = 600.0
KILL_SECONDS = 0.25  # between TERM and KILL, as a NodeManager has it


class SimulatedCluster:
    """The files of the cluster: one for each application, and a second one when that is to end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.facts: dict[str, Any] = json.loads((folder / "cluster.json").read_text())

    def path(self, name: str) -> Path:
        return self.folder / "applications" / f"{name}.json"

    def read(self, name: str) -> dict[str, Any]:
        return json.loads(self.path(name).read_text())

    def write(self, name: str, /, **changes: Any) -> None:
        path = self.path(name)
        known = self.read(name) if path.exists() else {}
        fresh = path.with_suffix(".new")
        fresh.write_text(json.dumps({**known, **changes}))
        fresh.replace(path)


def log(message: str) -> None:
    print(f"2026-11-15 07:52:53,123 INFO distributedshell.Client: {message}", file=sys.stderr, flush=True)


def fail(exception: str) -> int:
    print("2026-11-15 07:52:53,123 ERROR distributedshell.Client: Error running Client", file=sys.stderr)
    print(f"{exception}\n\tat org.apache.hadoop.yarn.applications.distributedshell.Client.run(Client.java:842)",
          file=sys.stderr, flush=True)  # fmt: skip
    return 1


def client(cluster: SimulatedCluster, argv: list[str]) -> int:
    """``yarn jar JAR CLASS …``"""
    jar, kind, *rest = argv
    assert Path(jar).is_file()
    assert kind == "org.apache.hadoop.yarn.applications.distributedshell.Client"
    given = parse(rest)
    if cluster.facts.get("refuses"):
        return fail(cluster.facts["refuses"])
    log("Running Client")
    memory, cores = cluster.facts.get("maximum", (8192, 4))
    log(f"Max mem capability of resources in this cluster {memory}")
    log(f"Max virtual cores capabililty of resources in this cluster {cores}")
    number = len(list((cluster.folder / "applications").glob("*.json"))) + 1
    name = f"application_{CLUSTER}_{number:04d}"
    queue, label = given.get("queue", "default"), given.get("appname", "DistributedShell")
    log("Copy App Master jar from local filesystem and add to local environment")
    files = cluster.home / label / name
    files.mkdir(parents=True)
    shutil.copy(given["jar"], files / "AppMaster.jar")
    (files / "shellCommands").write_text(given["shell_command"])
    state = {"state": "ACCEPTED", "final": "UNDEFINED", "queue": queue, "name": label, "diagnostics": ""}
    cluster.write(name, **state, request=given)
    if queue not in cluster.facts.get("queues", ["default"]):
        diagnostics = f"Application {name} submitted by user nobody to unknown queue: {queue}"
        cluster.write(name, state="FAILED", final="FAILED", diagnostics=diagnostics)
        return fail(f"org.apache.hadoop.yarn.exceptions.YarnException: Failed to submit {name} to YARN : {diagnostics}")
    subprocess.Popen(
        [sys.executable, __file__, "master", str(cluster.folder), name],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=(cluster.folder / f"{name}.master").open("w"),
        start_new_session=True,
    )  # fmt: skip
    if cluster.facts.get("silent"):
        time.sleep(LONG_SECONDS)
    print(
        f"2026-11-15 07:52:54,301 INFO impl.YarnClientImpl: Submitted application {name}", file=sys.stderr, flush=True
    )
    return monitor(cluster, name)


def parse(argv: list[str]) -> dict[str, str]:
    """As commons-cli does it: of an option that is given twice the first counts."""
    given: dict[str, str] = {}
    rest = iter(argv)
    for argument in rest:
        option = argument.lstrip("-")
        if not argument.startswith("-") or option not in OPTIONS | TAKES_NOTHING:
            raise SystemExit(f"org.apache.commons.cli.UnrecognizedOptionException: Unrecognized option: {argument}")
        value = "" if option in TAKES_NOTHING else next(rest)
        given.setdefault(option, value)
    return given


def monitor(cluster: SimulatedCluster, name: str) -> int:
    while True:
        app = cluster.read(name)
        log(f"Got application report from ASM for, appId=1, appDiagnostics={app['diagnostics']},"
            f" yarnAppState={app['state']}, distributedFinalState={app['final']}")  # fmt: skip
        if app["state"] == "FINISHED" and app["final"] == "SUCCEEDED":
            log("Application has completed successfully. Breaking monitoring loop")
            return 0
        if app["state"] in ("FINISHED", "FAILED", "KILLED"):
            log(f"Application did not finish. YarnState={app['state']}, DSFinalStatus={app['final']}."
                " Breaking monitoring loop")  # fmt: skip
            print("ERROR distributedshell.Client: Application failed to complete successfully", file=sys.stderr)
            return 2
        time.sleep(POLL_SECONDS)


def master(cluster: SimulatedCluster, name: str) -> int:
    """The ApplicationMaster, and the NodeManagers that start and end its containers."""
    killed = cluster.path(name).with_suffix(".kill")
    while cluster.facts.get("full") and not killed.exists():
        time.sleep(POLL_SECONDS)
    request = cluster.read(name)["request"]
    count = int(request.get("num_containers", "1"))
    containers: list[subprocess.Popen[bytes]] = []
    if not killed.exists():
        cluster.write(name, state="RUNNING")
        containers = [start_container(cluster, name, number, request) for number in range(1, count + 1)]
        cluster.write(name, running=1 + count)
    running = count
    while running and not killed.exists():
        if running != (running := sum(container.poll() is None for container in containers)):
            cluster.write(name, running=1 + running)
        time.sleep(POLL_SECONDS)
    for container in containers:
        end_session(container)
    shutil.rmtree(cluster.folder / "work" / name, ignore_errors=True)
    if killed.exists():
        cluster.write(name, state="KILLED", final="KILLED", diagnostics=f"Application {name} was killed by user nobody")
        return 0
    failed = sum(container.returncode != 0 for container in containers)
    diagnostics = "".join(
        describe_failure(cluster, name, number, container.returncode)
        for number, container in enumerate(containers, 1)
        if container.returncode
    )
    if failed and not diagnostics:
        diagnostics = f"Diagnostics., total={count}, completed={count}, allocated={count}, failed={failed}"
    shutil.rmtree(cluster.home / request.get("appname", "DistributedShell") / name)  # since 3.3
    cluster.write(name, state="FINISHED", final="FAILED" if failed else "SUCCEEDED", diagnostics=diagnostics)
    return 0


def start_container(
    cluster: SimulatedCluster, name: str, number: int, request: dict[str, str]
) -> subprocess.Popen[bytes]:
    node = cluster.facts["nodes"][(number - 1) % len(cluster.facts["nodes"])]
    container = f"{name.replace('application', 'container')}_01_{number + 1:06d}"
    work, logs = cluster.folder / "work" / name / container, cluster.folder / "logs" / name / container
    work.mkdir(parents=True)
    logs.mkdir(parents=True)
    variables = {
        "CONTAINER_ID": container, "NM_HOST": node, "NM_PORT": "45233", "NM_HTTP_PORT": "8042",
        "LOCAL_DIRS": str(work), "LOG_DIRS": str(logs), "PWD": str(work), "HOME": "/home/", "USER": "nobody",
        "YARN_SHELL_ID": str(number), **cluster.facts.get("environment", {}),
    }  # fmt: skip
    shell = request["shell_command"] if number not in cluster.facts.get("failing", ()) else "exec no-such-python3"
    command = f"{shell}  1>{logs}/stdout 2>{logs}/stderr "
    lines = [f'export {key}="{value}"' for key, value in variables.items()]
    script = work / "launch_container.sh"
    script.write_text("\n".join(["#!/bin/bash", *lines, f'exec /bin/bash -c "{command}"', ""]))
    inherited = {key: os.environ[key] for key in ("PATH", "TRAINSCALE_TEST_MARK") if key in os.environ}
    return subprocess.Popen(
        ["bash", str(script)], cwd=work, env=inherited, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip


def describe_failure(cluster: SimulatedCluster, name: str, number: int, code: int) -> str:
    """What a NodeManager reports about a container that ended with an error, if that wrote something."""
    container = f"{name.replace('application', 'container')}_01_{number + 1:06d}"
    printed = (cluster.folder / "logs" / name / container / "stderr").read_text()
    if not printed:
        return ""
    ended = f"[2026-11-15 07:53:28.206]Container exited with a non-zero exit code {code}. Error file: prelaunch.err."
    return (
        f"[2026-11-15 07:53:28.181]Exception from container-launch.\nContainer id: {container}\nExit code: {code}\n\n"
        f"{ended}\nLast 4096 bytes of prelaunch.err :\nLast 4096 bytes of stderr :\n{printed}\n\n"
    )


def end_session(container: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(container.pid, number)
            container.wait(KILL_SECONDS)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue
    container.wait()


def application(cluster: SimulatedCluster, argv: list[str]) -> int:
    """``yarn application -kill|-status ID``"""
    option, name = argv
    if not cluster.path(name).exists():
        print(f"Application with id '{name}' doesn't exist in RM or Timeline Server.", file=sys.stderr)
        return 255
    if option == "-kill":
        cluster.path(name).with_suffix(".kill").touch()
        while cluster.read(name)["state"] not in ("FINISHED", "FAILED", "KILLED"):
            time.sleep(POLL_SECONDS)
        print(f"Killed application {name}")
        return 0
    app = cluster.read(name)
    print(f"Application Report : \n\tApplication-Id : {name}\n\tApplication-Name : {app['name']}\n\tUser : nobody\n"
          f"\tQueue : {app['queue']}\n\tState : {app['state']}\n\tFinal-State : {app['final']}\n"
          f"\tTracking-URL : N/A\n\tDiagnostics : {app['diagnostics']}")  # fmt: skip
    return 0


def main(program: str, folder: Path, argv: list[str]) -> int:
    cluster = SimulatedCluster(folder)
    with (folder / "calls").open("a") as calls:
        calls.write(json.dumps([program, *argv]) + "\n")
    if program == "master":
        return master(cluster, argv[0])
    if program == "hadoop":
        assert argv[:5] == ["fs", "-rm", "-r", "-f", "-skipTrash"], argv
        shutil.rmtree(cluster.home / argv[5], ignore_errors=True)
        return 0
    if argv[0] == "classpath":
        print(f"{folder}/etc/hadoop:{folder}/share/hadoop/common/*:{folder}/share/hadoop/yarn/*")
        return 0
    return {"jar": client, "application": application}[argv[0]](cluster, argv[1:])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
