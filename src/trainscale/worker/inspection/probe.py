"""Inspects a framework and users' networks in its own Python: the controller imports none."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from .. import plugins
from ..config import Config
from ..events import MARK, FrameworkFacts, claim_stdout, encode, find_explaining_line
from ..frameworks.catalog import FRAMEWORKS
from ..job import PluginReference
from ..start import START

_PACKAGES = {"PIL": "pillow"}  # packages that are not named like their module
_SECONDS = 120.0  # for an answer
_MESSAGE_LENGTH = 300  # characters, because all answers travel in one event line


@dataclass(frozen=True)
class ProbeRequest:
    framework: str
    models: Sequence[Config] = ()  # users' networks to build
    python_path: Sequence[str] = ()
    plugins: Sequence[PluginReference] = ()
    needs: Sequence[str] = ()  # modules that trials import besides the framework's own

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> ProbeRequest:
        values["models"] = [Config.from_dict(model) for model in values.get("models", ())]
        values["plugins"] = [PluginReference(**plugin) for plugin in values.get("plugins", ())]
        return cls(**values)


def run_probes(pythons: Mapping[str, str], requests: Sequence[ProbeRequest]) -> dict[str, FrameworkFacts]:
    """Probe frameworks on this machine, each in a process of its interpreter, all at once."""
    deadline = time.monotonic() + _SECONDS
    children: dict[str, subprocess.Popen[bytes]] = {}
    facts: dict[str, FrameworkFacts] = {}
    try:
        for request in requests:
            name, python = request.framework, pythons[request.framework]
            command, pipe, same = [python, START, "probe"], subprocess.PIPE, subprocess.STDOUT
            try:
                children[name] = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=same)
            except OSError as error:
                facts[name] = FrameworkFacts(False, f"cannot start {python}: {error.strerror}")
        for request in requests:
            name = request.framework
            if name not in children:
                continue
            child, text = children[name], json.dumps(request, default=vars) + "\n"
            try:
                output, _ = child.communicate(text.encode(), max(0.0, deadline - time.monotonic()))
                facts[name] = _read_answer(name, child.returncode, output)
            except subprocess.TimeoutExpired:
                reason = f"no answer within {_SECONDS:.0f} s from {pythons[name]}"
                facts[name] = FrameworkFacts(False, reason)
    finally:
        for child in children.values():
            if child.poll() is None:
                child.kill()
                child.communicate()
    return {request.framework: facts[request.framework] for request in requests}


def _read_answer(framework: str, code: int, output: bytes) -> FrameworkFacts:
    lines = output.decode(errors="replace").strip().splitlines()
    for line in lines:
        _, mark, text = line.partition(MARK)
        if mark:
            values = json.loads(text)
            known = {field.name: values[field.name] for field in fields(FrameworkFacts)}
            return FrameworkFacts(**{**known, "reason": find_explaining_line(known["reason"])})
    end = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    last_line = f": {lines[-1]}" if lines else ""
    return FrameworkFacts(False, f"the Python of {framework} {end}{last_line}")


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    request = ProbeRequest.from_dict(json.loads(sys.stdin.readline()))
    plugins.use(request.plugins, request.python_path)
    os.write(out, encode(probe(request)))
    return 0


def probe(request: ProbeRequest) -> FrameworkFacts:
    framework = FRAMEWORKS[request.framework]
    missing = [module for module in framework.imports if importlib.util.find_spec(module) is None]
    if missing:
        reason = f"no module {' and no module '.join(map(repr, missing))} in this Python"
        return FrameworkFacts(False, reason, framework.install or "")
    for module in request.needs:
        if importlib.util.find_spec(module) is None:
            package = _PACKAGES.get(module, module)
            reason = f"{package} is not in this Python, and these images need it"
            return FrameworkFacts(False, reason, f"{sys.executable} -m pip install {package}")
    try:
        adapter = framework.load(None)
        versions, gpus = adapter.versions(), adapter.gpus()
    except Exception as error:
        verb = "does" if len(framework.imports) == 1 else "do"
        reason = f"{' and '.join(framework.imports)} {verb} not import: {type(error).__name__}: {error}"
        return FrameworkFacts(False, reason)
    models: dict[str, dict[str, int] | str] = {}
    for config in request.models:
        try:
            models[config.model] = {"parameters": adapter.try_model(config)}
        except Exception as error:
            models[config.model] = f"{type(error).__name__}: {error}"[:_MESSAGE_LENGTH]
    version = next(iter(versions.values()))
    return FrameworkFacts(True, version=version, versions=versions, gpus=gpus, models=models)
