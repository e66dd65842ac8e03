"""Asks a framework's own interpreter what it is. The controller itself never imports a framework."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import Any

from ..worker.events import decode
from .base import START

_SECONDS = 120


def probe(
    python: str,
    framework: str,
    models: list[dict[str, Any]],
    python_path: list[str],
    plugins: Sequence[dict[str, str]] = (),
) -> dict[str, Any]:
    """{"found": True, "version", "versions", "gpus", "models"} or {"found": False, "reason"}."""
    request = json.dumps(
        {"framework": framework, "models": models, "python_path": python_path, "plugins": list(plugins)}
    )
    try:
        done = subprocess.run(
            [python, str(START), "probe"],
            input=request + "\n",
            capture_output=True,
            text=True,
            timeout=_SECONDS,
            check=False,
        )
    except FileNotFoundError:
        return {"found": False, "reason": f"there is no Python at {python}"}
    except (OSError, subprocess.TimeoutExpired) as error:
        return {"found": False, "reason": f"{python}: {error}"}
    events = [event for event in map(decode, done.stdout.splitlines()) if event is not None]
    if events:
        return {**events[-1], "python_path": python}
    last = (done.stderr.strip().splitlines() or ["no message"])[-1]
    return {
        "found": False,
        "reason": f"{framework} ended its interpreter (exit code {done.returncode}): {last}",
    }
