"""The real command, in a process of its own, marked so that whatever it leaves can be found."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from processes import MARK, marked

SUPPORT = Path(__file__).parent


class Command:
    """``trainscale WORDS…`` begun in ``folder``."""

    def __init__(self, folder: Path, *words: str, columns: int = 120) -> None:
        self.mark = str(folder)
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "trainscale", *words],
            cwd=folder,
            env={**os.environ, MARK: self.mark, "COLUMNS": str(columns)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self.popen.pid

    def left(self) -> list[int]:
        return marked(self.mark)

    def ranks(self) -> list[int]:
        """Processes that train now."""
        found = []
        for pid in self.left():
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if b"rank" in words:
                found.append(pid)
        return found

    def finish(self, seconds: float = 240.0) -> subprocess.CompletedProcess[str]:
        out, err = self.popen.communicate(timeout=seconds)
        return subprocess.CompletedProcess(self.popen.args, self.popen.returncode, out, err)


def trainscale(folder: Path, *words: str, columns: int = 120) -> subprocess.CompletedProcess[str]:
    return Command(folder, *words, columns=columns).finish()
