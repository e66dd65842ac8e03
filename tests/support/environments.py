"""Which interpreter has which framework, in tests."""

from __future__ import annotations

import importlib.util
import os
import sys
from pathlib import Path

from trainscale.worker.frameworks.catalog import FRAMEWORKS


def python_for(framework: str) -> str:
    """The tests' own interpreter where it has the framework, else that of an environment."""
    if all(importlib.util.find_spec(module) for module in FRAMEWORKS[framework].imports):
        return sys.executable
    data = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share") / "trainscale/envs"
    return str(data / ("mxnet" if framework == "mxnet" else "main") / "bin/python")
