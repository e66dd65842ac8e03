"""Reads a YARN cluster: its client, its ResourceManagers, and the state of an application."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..worker.type_aliases import JsonObject

_JAR = "hadoop-yarn-applications-distributedshell"
_HOMES = ("HADOOP_YARN_HOME", "HADOOP_HOME", "HADOOP_PREFIX")
_CONFIGURATIONS = ("YARN_CONF_DIR", "HADOOP_CONF_DIR")
_PROGRAM_SECONDS = 60.0  # each program starts a Java machine first
_ANY_ADDRESS = "0.0.0.0"  # YARN's own default: a cluster of one machine
_REFERENCE = re.compile(r"\$\{([^}$]+)\}")

_LIVE_STATES = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
END_STATES = ("FINISHED", "FAILED", "KILLED")


@dataclass(frozen=True)
class Application:
    """``running`` counts containers, with that of the ApplicationMaster."""

    state: str
    queue: str = ""
    diagnostics: str = ""
    running: int | None = None


@dataclass
class YarnClient:
    """Reads over HTTP, or by the client's program where HTTP needs a Kerberos ticket."""

    yarn: str  # the program
    jar: str  # of the distributed shell
    managers: tuple[str, ...] = ()  # URLs of ResourceManagers; several where one can replace another
    has_answered: bool = False  # whether any of them has answered over HTTP

    def read_application(self, name: str) -> Application | None:
        """Return None if the application is unknown, or nobody answers."""
        app = self._request(f"apps/{name}", "app")
        if app is None:  # lines such as "State : ACCEPTED"
            text = self._run("application", "-status", name)
            fields = dict(re.findall(r"^\s*([\w-]+) : (.*)$", text, re.MULTILINE))
            diagnostics = fields.get("Diagnostics", "").strip()
            return Application(fields["State"], fields.get("Queue", ""), diagnostics) if "State" in fields else None
        if not app:
            return None
        running = app.get("runningContainers")
        return Application(
            state=str(app.get("state", "")),
            queue=str(app.get("queue", "")),
            diagnostics=str(app.get("diagnostics") or "").strip(),
            running=running if isinstance(running, int) and running >= 0 else None,
        )

    def find_application(self, name: str, by_program: bool = True) -> str:
        """Return the id of a live application, or "". ``by_program``: may run the slow program."""
        apps = self._request(f"apps?states={','.join(_LIVE_STATES)}", "apps")
        if apps is not None:
            listed = apps.get("app")
            found = [app for app in listed if isinstance(app, dict)] if isinstance(listed, list) else []
            return next((str(app.get("id", "")) for app in found if app.get("name") == name), "")
        text = self._run("application", "-list", "-appStates", ",".join(_LIVE_STATES)) if by_program else ""
        match = re.search(rf"^\s*(application_\d+_\d+)\s+{re.escape(name)}\s", text, re.MULTILINE)
        return match[1] if match else ""

    def is_reachable(self) -> bool:
        """Return whether any answers over HTTP, even that a ticket is missing."""
        self.has_answered = False
        return self._request("info", "clusterInfo") is not None or self.has_answered

    def count_pending_containers(self) -> int | None:
        pending = (self._request("metrics", "clusterMetrics") or {}).get("containersPending")
        return pending if isinstance(pending, int) else None

    def describe_free_resources(self) -> str:
        metrics = self._request("metrics", "clusterMetrics")
        if not metrics:
            return ""
        names = ("availableMB", "totalMB", "availableVirtualCores", "totalVirtualCores", "activeNodes")
        free, total, free_cores, cores, nodes = (metrics.get(name, "?") for name in names)
        return f"{free} of {total} MB and {free_cores} of {cores} cores are free on {nodes} nodes"

    def _request(self, path: str, key: str) -> JsonObject | None:
        """Return the object ``key`` of the answer, or {}; None if nobody answers over HTTP."""
        import http.client  # slow to import, and every command that has settings imports this module
        import urllib.error
        import urllib.request

        # It is in the cluster's own network, so no proxy leads there.
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for url in self.managers:
            request = urllib.request.Request(f"{url}/ws/v1/cluster/{path}", headers={"Accept": "application/json"})
            try:
                with opener.open(request, timeout=5.0) as response:
                    self.has_answered = True
                    answer = json.load(response)
            except urllib.error.HTTPError as error:
                self.has_answered = True
                with error:
                    if error.code in (400, 404):
                        return {}
                continue
            except (OSError, ValueError, http.client.HTTPException, RecursionError):
                continue
            if isinstance(answer, dict):
                found = answer.get(key)
                return found if isinstance(found, dict) else {}
        return None

    def _run(self, *arguments: str) -> str:
        try:
            return _run_program([self.yarn, *arguments], os.environ).stdout
        except (OSError, subprocess.TimeoutExpired):
            return ""


def find_client(environment: Mapping[str, str] = os.environ) -> YarnClient:
    homes = [Path(environment[name]) for name in _HOMES if environment.get(name)]
    # Hadoop's own folder first: on the PATH, yarn may be JavaScript's.
    folders = [str(home / "bin") for home in homes]
    yarn = shutil.which("yarn", path=os.pathsep.join([*folders, environment.get("PATH", "")]))
    if yarn is None:
        raise InputError("launcher yarn: there is no program yarn on the PATH, nor below HADOOP_HOME")
    try:
        done = _run_program([yarn, "classpath"], environment)
    except OSError as error:
        raise InputError(f"launcher yarn: {yarn} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"launcher yarn: no answer within {_PROGRAM_SECONDS:.0f} s from {yarn} classpath") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(f"launcher yarn: {yarn} classpath: {last}; is this Hadoop's yarn? Set HADOOP_HOME")
    # The folders of the client's configuration and jars, in its order.
    entries = (done.stdout.strip().splitlines() or [""])[-1].split(":")
    classpath = [Path(entry.removesuffix("*")) for entry in entries if entry]
    configured = [Path(environment[name]) for name in _CONFIGURATIONS if environment.get(name)]
    urls = list_manager_urls(read_configuration([*configured, *classpath]))
    # Every Hadoop has the distributed shell, but vendors use other folders than Apache.
    for folder in [*(folder for home in homes for folder in (home / "share/hadoop/yarn", home)), *classpath]:
        paths = sorted(folder.glob(f"{_JAR}*.jar"))
        jars = [path for path in paths if not path.stem.endswith(("tests", "sources"))]
        if jars:
            return YarnClient(yarn, str(jars[-1]), urls)
    raise InputError(f"launcher yarn: no {_JAR}-*.jar below HADOOP_HOME, or what `yarn classpath` names")


def _run_program(command: list[str], environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        env=dict(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=_PROGRAM_SECONDS,
        check=False,
    )


def read_configuration(folders: Sequence[Path]) -> dict[str, str]:
    """Read the first yarn-site.xml, and resolve references between its properties."""
    from xml.etree import ElementTree  # slow to import, as above

    for folder in folders:
        path = folder / "yarn-site.xml"
        try:
            tree = ElementTree.parse(path)
        except OSError:
            continue
        except ElementTree.ParseError as error:
            raise InputError(f"{path}: not XML: {error}") from None
        values = {
            (entry.findtext("name") or "").strip(): (entry.findtext("value") or "").strip()
            for entry in tree.getroot().iter("property")
        }
        resolved = {}
        for name, value in values.items():
            for _ in range(10):  # a reference may lead to another, or back to itself
                if match := _REFERENCE.search(value):
                    value = value.replace(match[0], values.get(match[1], ""))
            resolved[name] = value
        return resolved
    return {}


def list_manager_urls(properties: Mapping[str, str]) -> tuple[str, ...]:
    is_secure = properties.get("yarn.http.policy") == "HTTPS_ONLY"
    kind, port = ("webapp.https.address", 8090) if is_secure else ("webapp.address", 8088)
    suffixes = [""]
    if properties.get("yarn.resourcemanager.ha.enabled") == "true":
        names = properties.get("yarn.resourcemanager.ha.rm-ids", "").split(",")
        suffixes = [f".{name.strip()}" for name in names if name.strip()] or suffixes
    urls = []
    for suffix in suffixes:
        host = properties.get(f"yarn.resourcemanager.hostname{suffix}") or _ANY_ADDRESS
        address = properties.get(f"yarn.resourcemanager.{kind}{suffix}") or f"{host}:{port}"
        urls.append(f"{'https' if is_secure else 'http'}://{address.replace(_ANY_ADDRESS, 'localhost')}")
    return tuple(urls)
