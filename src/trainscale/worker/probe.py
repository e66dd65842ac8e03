"""Looks at one framework from inside its environment: reads a JSON line {"framework", "models", "python_path",
"plugins"} from its standard input, prints one event line and ends.

The controller never imports a framework; this is how it learns versions, GPUs, and whether a user's network can be
built.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from typing import Any

from . import plugins
from .events import claim_stdout, encode
from .frameworks.catalog import FRAMEWORKS

_MESSAGE = 300  # characters; all answers travel in one event line


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    request = json.loads(sys.stdin.readline())
    sys.path[:0] = request.get("python_path", [])
    plugins.use(request.get("plugins", []))
    os.write(out, encode({"kind": "probe", **probe(request["framework"], request.get("models", []))}))
    return 0


def probe(name: str, models: list[dict[str, Any]]) -> dict[str, Any]:
    framework = FRAMEWORKS[name]
    lacking = [module for module in framework.imports if importlib.util.find_spec(module) is None]
    if lacking:
        return {
            "found": False,
            "reason": f"no module {' and no module '.join(map(repr, lacking))} in this Python",
            "get": framework.install,
        }
    try:
        loaded = framework.load(None)
        facts: dict[str, Any] = {"found": True, **loaded.look()}
    except Exception as error:
        return {
            "found": False,
            "reason": f"{' and '.join(framework.imports)} do{'es' * (len(framework.imports) == 1)} not import:"
            f" {type(error).__name__}: {error}",
        }
    facts["models"] = {}
    for model in models:
        try:
            facts["models"][model["model"]] = loaded.try_model(model)
        except Exception as error:
            facts["models"][model["model"]] = f"{type(error).__name__}: {error}"[:_MESSAGE]
    return facts
