"""The local launcher: this machine."""

from __future__ import annotations

import sys

from .base import START, PipeLauncher


class LocalLauncher(PipeLauncher):
    name = "local"
    local = True

    def command(self, host: str) -> list[str]:
        return [sys.executable, str(START), "keeper"]
