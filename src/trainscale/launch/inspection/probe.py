"""Asks a framework's own interpreter what it is. The controller itself never imports a framework."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

from ...spec.devices import HostDevices
from ...worker.events import decode
from ..connections.keeper import HostError
from ..launchers.base import START, Launcher
from .host_query import Question, ask

_SECONDS = 120


def question(
    framework: str, models: Sequence[dict[str, Any]] = (), python_path: Sequence[str] = (),
    plugins: Sequence[dict[str, str]] = (), needs: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """``needs``: modules that the trials want besides the framework's own."""
    return {
        "framework": framework, "models": list(models), "python_path": list(python_path), "plugins": list(plugins),
        "needs": list(needs),
    }  # fmt: skip


def probe(
    python: str, framework: str, models: Sequence[dict[str, Any]] = (), python_path: Sequence[str] = (),
    plugins: Sequence[dict[str, str]] = (), needs: Sequence[str] = (),
) -> dict[str, Any]:  # fmt: skip
    """{"found": True, "version", "versions", "gpus", "models"} or {"found": False, "reason"}."""
    asked = question(framework, models, python_path, plugins, needs)
    try:
        done = subprocess.run(
            [python, str(START), "probe"],
            input=json.dumps(asked) + "\n",
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return {"found": False, "reason": f"there is no Python at {python}"}
    except subprocess.TimeoutExpired:
        return {"found": False, "reason": f"no answer within {_SECONDS} s from {python}"}
    except OSError as error:
        return {"found": False, "reason": f"{python} cannot be started: {error.strerror}"}
    events = [event for event in map(decode, done.stdout.splitlines()) if event is not None]
    if events:
        return _tidy(events[-1], python)
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return {"found": False, "reason": f"{framework} {_end_words(done.returncode)}{f': {last}' if last else ''}"}


def probe_hosts(
    launcher: Launcher, sites: Sequence[HostDevices], pythons: Mapping[str, str], asked: Mapping[str, dict[str, Any]]
) -> dict[str, dict[str, Any]]:
    """The same for frameworks on several hosts at once: found where all have it, in the same version."""
    names = list(asked)
    questions = {
        site.name: [Question("probe", asked[name], site.pythons.get(name) or pythons[name]) for name in names]
        for site in sites
    }
    answers = ask(launcher, questions, _SECONDS)
    found: dict[str, dict[str, dict[str, Any]]] = {name: {} for name in names}
    for host, answer in answers.items():
        for number, name in enumerate(names):
            python = questions[host][number].python
            found[name][host] = _host_answer(answer, number, name, python)
    return {name: _agreed(by_host) for name, by_host in found.items()}


def _host_answer(answer: list[dict[str, Any]] | HostError, number: int, name: str, python: str) -> dict[str, Any]:
    if isinstance(answer, HostError):
        return {"found": False, "reason": str(answer).partition(": ")[2]}
    one = answer[number]
    if one["kind"] != "exit":
        return _tidy(one, python)
    last = (one["tail"].strip().splitlines() or [""])[-1]
    return {"found": False, "reason": f"{name} {_end_words(one['code'])}{f': {last}' if last else ''}"}


def _agreed(by_host: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
    """One answer for all hosts. Two versions of a framework in one training would be measured as neither."""
    first = next(iter(by_host.values()))
    for host, answer in by_host.items():
        if not answer["found"]:
            return {**answer, "reason": f"{host}: {answer['reason']}"}
    versions = {host: answer["version"] for host, answer in by_host.items()}
    if len(set(versions.values())) > 1:
        words = ", ".join(f"{host} {version}" for host, version in versions.items())
        return {"found": False, "reason": f"the hosts have different versions: {words}"}
    return first


def _tidy(event: dict[str, Any], python: str) -> dict[str, Any]:
    answer = {**event, "python_path": python}
    return {**answer, "reason": one_line(answer["reason"])} if "reason" in answer else answer


def one_line(text: str) -> str:
    """The line of a message that says the most; some frameworks put a whole traceback into theirs."""
    first, *rest = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if not first.endswith("Traceback (most recent call last):"):
        return first
    causes = [line for line in rest if re.match(r"[\w.]*(Error|Exception)\b", line)]
    return first.removesuffix("Traceback (most recent call last):") + (causes or rest or [""])[-1]


def _end_words(code: int) -> str:
    if code < 0:
        names = {number.value: number.name for number in signal.Signals}
        return f"ended its Python by {names.get(-code, f'signal {-code}')}"
    return f"ended its Python with exit code {code}"
