"""Asks a framework's own interpreter what it is. The controller itself never imports a framework."""

from __future__ import annotations

import json
import re
import signal
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
        answer = {**events[-1], "python_path": python}
        return {**answer, "reason": one_line(answer["reason"])} if "reason" in answer else answer
    last = (done.stderr.strip().splitlines() or [""])[-1]
    return {"found": False, "reason": f"{framework} {_end_words(done.returncode)}{f': {last}' if last else ''}"}


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
