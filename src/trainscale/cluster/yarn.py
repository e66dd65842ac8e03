"""A YARN cluster as its client configuration and its ResourceManager tell it: the programs, the distributed shell's
jar, where the ResourceManager answers, and how an application stands. Nothing here starts or ends anything.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InputError

_JAR = "hadoop-yarn-applications-distributedshell"
_HOMES = ("HADOOP_YARN_HOME", "HADOOP_HOME", "HADOOP_PREFIX")
_CONFIGURATIONS = ("YARN_CONF_DIR", "HADOOP_CONF_DIR")
_PROGRAM_SECONDS = 60.0  # each begins with a Java machine
_ANSWER_SECONDS = 5.0
_HTTP_PORT, _HTTPS_PORT = 8088, 8090
_ANY = "0.0.0.0"  # YARN's own default: a cluster of one machine
_REFERENCE = re.compile(r"\$\{([^}$]+)\}")

ENDED = ("FINISHED", "FAILED", "KILLED")


@dataclass(frozen=True)
class Client:
    """What a machine needs to submit to YARN."""

    yarn: str  # the program
    jar: str  # of the distributed shell
    managers: tuple[str, ...] = ()  # where ResourceManagers answer over HTTP; several where one stands in for another

    @property
    def manager_hosts(self) -> list[str]:
        return [url.partition("://")[2].rpartition(":")[0] for url in self.managers]


@dataclass(frozen=True)
class Application:
    """How one stands. ``running`` counts containers, that of the ApplicationMaster among them."""

    state: str
    final: str = ""
    queue: str = ""
    diagnostics: str = ""
    running: int | None = None

    @property
    def ended(self) -> bool:
        return self.state in ENDED


def find_client(environment: Mapping[str, str] = os.environ) -> Client:
    """An InputError where something is missing, with what it is."""
    # Hadoop's own folder first: on the PATH, yarn may be JavaScript's.
    folders = [str(Path(home) / "bin") for home in _set(environment, _HOMES)]
    yarn = shutil.which("yarn", path=os.pathsep.join([*folders, environment.get("PATH", "")]))
    if yarn is None:
        raise InputError("launcher yarn: there is no program yarn on the PATH, nor below HADOOP_HOME")
    places = [Path(entry) for entry in _classpath(yarn, environment)]
    jar = find_jar([Path(home) for home in _set(environment, _HOMES)], places)
    configured = [Path(folder) for folder in _set(environment, _CONFIGURATIONS)]
    return Client(yarn, str(jar), manager_urls(configuration([*configured, *places])))


def _set(environment: Mapping[str, str], names: Sequence[str]) -> list[str]:
    return [environment[name] for name in names if environment.get(name)]


def _classpath(yarn: str, environment: Mapping[str, str]) -> list[str]:
    """Folders of the client's configuration and jars, in its order."""
    try:
        done = subprocess.run(
            [yarn, "classpath"],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_PROGRAM_SECONDS,
            check=False,
        )
    except OSError as error:
        raise InputError(f"launcher yarn: {yarn} cannot be started: {error.strerror}") from None
    except subprocess.TimeoutExpired:
        raise InputError(f"launcher yarn: no answer within {_PROGRAM_SECONDS:.0f} s from {yarn} classpath") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise InputError(
            f"launcher yarn: {yarn} classpath: {last}; is this Hadoop's yarn? HADOOP_HOME says where that is"
        )
    entries = (done.stdout.strip().splitlines() or [""])[-1].split(":")
    return [entry.removesuffix("*") for entry in entries if entry]


def find_jar(homes: Sequence[Path], places: Sequence[Path]) -> Path:
    """Of the distributed shell, which every Hadoop brings; vendors put it into other folders than Apache."""
    folders = [folder for home in homes for folder in (home / "share/hadoop/yarn", home)]
    for folder in [*folders, *places]:
        found = [path for path in sorted(folder.glob(f"{_JAR}*.jar")) if not path.stem.endswith(("tests", "sources"))]
        if found:
            return found[-1]
    raise InputError(
        f"launcher yarn: no {_JAR}-*.jar below HADOOP_YARN_HOME, HADOOP_HOME, or what `yarn classpath` names"
    )


def configuration(folders: Sequence[Path]) -> dict[str, str]:
    """The properties of the first yarn-site.xml in these folders, with references to one another filled in."""
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
        return {name: _filled(value, values) for name, value in values.items()}
    return {}


def _filled(value: str, values: Mapping[str, str]) -> str:
    for _ in range(10):  # a reference may lead to another, but not for ever
        match = _REFERENCE.search(value)
        if not match:
            break
        value = value.replace(match[0], values.get(match[1], ""))
    return value


def manager_urls(properties: Mapping[str, str]) -> tuple[str, ...]:
    """By yarn-site.xml; one for each of a pair, of which only the active one answers for itself."""
    secure = properties.get("yarn.http.policy") == "HTTPS_ONLY"
    kind, port = ("webapp.https.address", _HTTPS_PORT) if secure else ("webapp.address", _HTTP_PORT)
    suffixes = [""]
    if properties.get("yarn.resourcemanager.ha.enabled") == "true":
        names = properties.get("yarn.resourcemanager.ha.rm-ids", "").split(",")
        suffixes = [f".{name.strip()}" for name in names if name.strip()] or suffixes
    found = []
    for suffix in suffixes:
        host = properties.get(f"yarn.resourcemanager.hostname{suffix}") or _ANY
        address = properties.get(f"yarn.resourcemanager.{kind}{suffix}") or f"{host}:{port}"
        found.append(f"{'https' if secure else 'http'}://{address.replace(_ANY, 'localhost')}")
    return tuple(found)


class ResourceManager:
    """Read-only. Where the web answers only to those with a ticket, the client's own program is asked instead."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def application(self, name: str) -> Application | None:
        """None where nobody knows it, or nobody can be asked."""
        answer = self._get(f"apps/{name}")
        if answer is not None:
            app = answer.get("app")
            return _from_web(app) if app else None
        return _from_program(self._run("application", "-status", name))

    def room(self) -> str:
        """What the cluster has left, in words; nothing where it does not say."""
        answer = self._get("metrics") or {}
        found = answer.get("clusterMetrics")
        if not found:
            return ""
        return (
            f"{found['availableMB']} of {found['totalMB']} MB and {found['availableVirtualCores']} of"
            f" {found['totalVirtualCores']} cores are free on {found['activeNodes']} nodes"
        )

    def _get(self, what: str) -> dict[str, Any] | None:
        """None if no ResourceManager can be asked this way; an empty answer if it does not know."""
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # it is in the cluster's own network
        for url in self._client.managers:
            request = urllib.request.Request(f"{url}/ws/v1/cluster/{what}", headers={"Accept": "application/json"})
            try:
                with opener.open(request, timeout=_ANSWER_SECONDS) as response:
                    answer = json.load(response)
            except urllib.error.HTTPError as error:
                with error:
                    if error.code in (400, 404):
                        return {}
                continue
            except (OSError, ValueError):
                continue
            if isinstance(answer, dict):
                return answer
        return None

    def _run(self, *words: str) -> str:
        try:
            done = subprocess.run(
                [self._client.yarn, *words],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_PROGRAM_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return done.stdout


def _from_web(app: Mapping[str, Any]) -> Application:
    running = app.get("runningContainers")
    return Application(
        state=app["state"],
        final=app.get("finalStatus", ""),
        queue=app.get("queue", ""),
        diagnostics=(app.get("diagnostics") or "").strip(),
        running=running if running is not None and running >= 0 else None,
    )


def _from_program(text: str) -> Application | None:
    """From lines such as «State : ACCEPTED»."""
    said = dict(re.findall(r"^\s*([\w-]+) : (.*)$", text, re.MULTILINE))
    if "State" not in said:
        return None
    diagnostics = said.get("Diagnostics", "").strip()
    return Application(said["State"], said.get("Final-State", ""), said.get("Queue", ""), diagnostics)
