"""Inspects one framework from inside its environment: reads a ProbeRequest as a JSON line from standard input, prints
one event (FrameworkFacts) and ends.

The controller never imports a framework. This is how it learns versions, GPUs, and whether a user's network can be
built.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from .. import plugins
from ..config import Config
from ..emitter import claim_stdout, encode
from ..events import FrameworkFacts
from ..frameworks.catalog import FRAMEWORKS
from ..plugin_reference import PluginReference

_PACKAGES = {"PIL": "pillow"}  # packages that are not named like their module
_MESSAGE_LENGTH = 300  # characters, because all answers travel in one event line


@dataclass(frozen=True)
class ProbeRequest:
    """Which framework to inspect. ``models`` are the configs of users' networks to build, ``needs`` the modules that
    the trials import besides the framework's own.
    """

    framework: str
    models: Sequence[Config] = ()
    python_path: Sequence[str] = ()
    plugins: Sequence[PluginReference] = ()
    needs: Sequence[str] = ()

    @classmethod
    def from_json(cls, text: str) -> ProbeRequest:
        values = json.loads(text)
        values["models"] = [Config.from_dict(model) for model in values.get("models", ())]
        values["plugins"] = [PluginReference(**plugin) for plugin in values.get("plugins", ())]
        return cls(**values)


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    request = ProbeRequest.from_json(sys.stdin.readline())
    sys.path[:0] = request.python_path
    plugins.use(request.plugins)
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
