"""Asks the interpreter of a framework for its facts. The controller itself never imports a framework."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...errors import TrainscaleError
from ...spec.devices import LOCALHOST, HostDevices
from ...worker.events import FrameworkFacts
from ...worker.inspection.probe import ProbeRequest
from ..connected_hosts import ConnectOptions
from ..connection import HostError, select_causes
from ..events import describe_exit
from ..launchers.base import Launcher
from ..launchers.local import LocalLauncher
from .host_tasks import TaskAnswer, make_role_task, run_host_tasks

_SECONDS = 120.0


class HostsLost(TrainscaleError):
    """Hosts do not answer any more. Its message has a line for each."""


def probe(python: str, request: ProbeRequest) -> FrameworkFacts:
    """Return the facts of one framework on this machine."""
    return probe_here({request.framework: python}, [request])[request.framework]


def probe_here(pythons: Mapping[str, str], requests: Sequence[ProbeRequest]) -> dict[str, FrameworkFacts]:
    """Return the facts of frameworks on this machine. All are asked at once."""
    return probe_hosts(LocalLauncher(), [HostDevices(LOCALHOST, ())], pythons, requests)


def probe_hosts(
    launcher: Launcher, sites: Sequence[HostDevices], pythons: Mapping[str, str], requests: Sequence[ProbeRequest]
) -> dict[str, FrameworkFacts]:
    """Return the facts of frameworks, each of which all hosts must have, in the same version.

    A HostsLost is raised if a host that answered before does not answer now: that says nothing about its frameworks.
    """

    def choose_python(site: HostDevices, request: ProbeRequest) -> str:
        return site.pythons.get(request.framework) or pythons[request.framework]

    tasks = {
        site.name: [
            make_role_task(site.name, number, "probe", request, choose_python(site, request))
            for number, request in enumerate(requests)
        ]
        for site in sites
    }
    with launcher.connect(list(tasks), ConnectOptions(_SECONDS, tolerates_errors=True)) as connected:
        answers = run_host_tasks(connected, tasks, _SECONDS)
    errors = [answer for answer in answers.values() if isinstance(answer, HostError)]
    if errors and not launcher.local:
        raise HostsLost("\n".join(str(error) for error in select_causes(errors)))
    facts: dict[str, dict[str, FrameworkFacts]] = {request.framework: {} for request in requests}
    for site in sites:
        for number, request in enumerate(requests):
            answer = answers[site.name]
            facts[request.framework][site.name] = (
                FrameworkFacts(False, answer.why)
                if isinstance(answer, HostError)
                else _read_facts(answer[number], request.framework, choose_python(site, request))
            )
    return {name: _combine_facts(by_host, launcher.local) for name, by_host in facts.items()}


def _read_facts(answer: TaskAnswer, framework: str, python: str) -> FrameworkFacts:
    facts = answer.find_last(FrameworkFacts)
    if facts is not None:
        return replace(facts, reason=find_explaining_line(facts.reason))
    if answer.exit is None:
        return FrameworkFacts(False, f"no answer within {_SECONDS:.0f} s from {python}")
    if answer.last_line.startswith("cannot start "):
        return FrameworkFacts(False, answer.last_line)
    last_line = f": {answer.last_line}" if answer.last_line else ""
    return FrameworkFacts(False, f"the Python of {framework} {describe_exit(answer.exit.code)}{last_line}")


def _combine_facts(by_host: Mapping[str, FrameworkFacts], is_local: bool) -> FrameworkFacts:
    """Return one answer for all hosts. A training with two versions of a framework would measure neither of them."""
    for host, facts in by_host.items():
        if not facts.is_available:
            return facts if is_local else replace(facts, reason=f"{host}: {facts.reason}")
    versions = {host: facts.version for host, facts in by_host.items()}
    if len(set(versions.values())) > 1:
        listed = ", ".join(f"{host} {version}" for host, version in versions.items())
        return FrameworkFacts(False, f"the hosts have different versions: {listed}")
    return next(iter(by_host.values()))


def find_explaining_line(text: str) -> str:
    """Return the line of a message that explains the most. Some frameworks put a whole traceback into theirs."""
    first, *others = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if not first.endswith("Traceback (most recent call last):"):
        return first
    causes = [line for line in others if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return first.removesuffix("Traceback (most recent call last):") + (causes or others or [""])[-1]
