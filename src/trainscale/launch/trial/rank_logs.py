"""The log files of a trial: one for each rank that printed anything."""

from __future__ import annotations

from pathlib import Path
from typing import IO

from ...spec.config import Trial


class RankLogs:
    def __init__(self, folder: Path | None, trial: Trial) -> None:
        self._folder = folder
        self._trial = trial
        self._files: dict[int, IO[str]] = {}

    def __enter__(self) -> RankLogs:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            file.close()

    def write(self, rank: int, text: str) -> None:
        if self._folder is None:
            return
        if rank not in self._files:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{self._trial.key}.rank{rank}.log"
            self._files[rank] = path.open("w", buffering=1)
        self._files[rank].write(text + "\n")
