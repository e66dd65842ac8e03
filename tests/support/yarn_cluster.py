"""A YARN cluster for tests: the simulated programs and their files in a folder, and a ResourceManager that answers over
HTTP with what a real one (Hadoop 3.3.6) was recorded to say.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from processes import program
from web import reply, serving

SUPPORT = Path(__file__).parent
EXCHANGES = {exchange["name"]: exchange for exchange in json.loads((SUPPORT / "yarn_rest.json").read_text())}
JAR = "hadoop-yarn-applications-distributedshell-3.3.6.jar"


class YarnCluster:
    address = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for place in ("bin", "etc/hadoop", "share/hadoop/yarn", "home", "applications"):
            (folder / place).mkdir(parents=True)
        (folder / "share/hadoop/yarn" / JAR).write_text("the shell")
        self.set(nodes=["node1", "node2"])
        for name in ("yarn", "hadoop"):
            program(folder / "bin", name, f'exec {sys.executable} {SUPPORT}/simulated_yarn.py {name} {folder} "$@"')

    def set(self, **facts: Any) -> None:
        """Write cluster.json, which simulated_yarn.py reads."""
        (self.folder / "cluster.json").write_text(json.dumps(facts))

    @property
    def path(self) -> str:
        """The PATH of a machine with Hadoop's client."""
        return f"{self.folder / 'bin'}:/usr/bin:/bin"

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of every call of its programs, in order."""
        path = self.folder / "calls"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    @property
    def applications(self) -> dict[str, dict[str, Any]]:
        return {
            path.stem: json.loads(path.read_text()) for path in sorted((self.folder / "applications").glob("*.json"))
        }

    def logs(self) -> str:
        """Return everything that containers printed, for the message of a failed test."""
        return "\n".join(f"{path}: {path.read_text()}" for path in sorted(self.folder.glob("logs/*/*/std*")))

    def left(self) -> list[Path]:
        """Return the files of the user and of containers that nobody removed."""
        return [*(self.folder / "home").iterdir(), *self.folder.glob("work/*/*")]

    def _live_applications(self) -> list[dict[str, str]]:
        ended = ("FINISHED", "FAILED", "KILLED")
        return [
            {"id": name, "name": app["name"]} for name, app in self.applications.items() if app["state"] not in ended
        ]

    def handle(self, handler: BaseHTTPRequestHandler) -> None:
        status, body = self.answer(handler.path)
        reply(handler, body.encode(), status=status)

    def answer(self, path: str) -> tuple[int, str]:
        """Return the recorded response for the current state of the application."""
        what = path.removeprefix("/ws/v1/cluster/")
        if what.startswith("apps?states="):
            return 200, json.dumps({"apps": {"app": self._live_applications()} if self._live_applications() else None})
        if what == "metrics":
            return 200, EXCHANGES["metrics_idle"]["body"]
        name = what.removeprefix("apps/")
        if not name.startswith("application_"):
            return 400, EXCHANGES["bad_app"]["body"]
        if name not in self.applications:
            return 404, EXCHANGES["unknown_app"]["body"].replace("application_1_0001", name)
        app = self.applications[name]
        recorded = {"ACCEPTED": "app_ACCEPTED", "RUNNING": "app_RUNNING", "FINISHED": "app_final", "KILLED": "killed"}
        body = json.loads(EXCHANGES[recorded.get(app["state"], "failing_state")]["body"])
        body["app"].update(id=name, queue=app["queue"], name=app["name"], diagnostics=app["diagnostics"])
        body["app"]["finalStatus"] = app["final"]
        if app["state"] == "RUNNING":
            body["app"]["runningContainers"] = app.get("running", 1)
        return 200, json.dumps(body)


def write_site(folder: Path, properties: dict[str, str]) -> None:
    entries = "".join(
        f"<property><name>{name}</name><value>{value}</value></property>" for name, value in properties.items()
    )
    (folder / "yarn-site.xml").write_text(f'<?xml version="1.0"?>\n<configuration>{entries}</configuration>\n')


@contextmanager
def running_yarn(folder: Path) -> Iterator[YarnCluster]:
    cluster = YarnCluster(folder)
    with serving(cluster) as address:
        write_site(folder / "etc/hadoop", {"yarn.resourcemanager.webapp.address": address.partition("//")[2]})
        yield cluster
