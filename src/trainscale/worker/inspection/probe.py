"""Looks at one framework from inside its environment: reads a JSON line {"framework", "models", "python_path",
"plugins", "needs"} from its standard input, prints one event line and ends.

The controller never imports a framework; this is how it learns versions, GPUs, and whether a user's network can be
built.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from .. import plugins
from ..config import Config
from ..events import claim_stdout, encode
from ..frameworks.catalog import FRAMEWORKS

_PACKAGES = {"PIL": "pillow"}  # where the package is called otherwise than the module
_MESSAGE = 300  # characters; all answers travel in one event line


def main(arguments: list[str]) -> int:
    out = claim_stdout()
    request = json.loads(sys.stdin.readline())
    sys.path[:0] = request.get("python_path", [])
    plugins.use(request.get("plugins", []))
    facts = probe(request["framework"], request.get("models", []), request.get("needs", []))
    os.write(out, encode({"kind": "probe", **facts}))
    return 0


def probe(name: str, models: list[dict[str, Any]], needs: Sequence[str] = ()) -> dict[str, Any]:
    framework = FRAMEWORKS[name]
    lacking = [module for module in framework.imports if importlib.util.find_spec(module) is None]
    if lacking:
        return {
            "found": False,
            "reason": f"no module {' and no module '.join(map(repr, lacking))} in this Python",
            "get": framework.install,
        }
    for module in needs:
        if importlib.util.find_spec(module) is None:
            package = _PACKAGES.get(module, module)
            return {
                "found": False,
                "reason": f"{package} is not in this Python, and these images need it",
                "get": f"{sys.executable} -m pip install {package}",
            }
    try:
        loaded = framework.load(None)
        versions = loaded.versions()
        facts: dict[str, Any] = {
            "found": True,
            "version": next(iter(versions.values())),
            "versions": versions,
            "gpus": loaded.gpus(),
        }
    except Exception as error:
        return {
            "found": False,
            "reason": f"{' and '.join(framework.imports)} do{'es' * (len(framework.imports) == 1)} not import:"
            f" {type(error).__name__}: {error}",
        }
    facts["models"] = {}
    for model in models:
        try:
            facts["models"][model["model"]] = {"parameters": loaded.try_model(Config.from_dict(model))}
        except Exception as error:
            facts["models"][model["model"]] = f"{type(error).__name__}: {error}"[:_MESSAGE]
    return facts
