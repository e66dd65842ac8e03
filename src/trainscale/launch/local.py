"""The local launcher: this machine."""

from __future__ import annotations

import sys

from .base import START, Launcher, Process


class LocalLauncher(Launcher):
    name = "local"

    def command(self, host: str) -> list[str]:
        return [sys.executable, str(START), "keeper"]

    def rank_command(self, process: Process) -> list[str]:
        return [process.python, str(START), "rank"]
