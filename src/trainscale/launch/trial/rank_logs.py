"""The log files of a trial: one for each rank that printed anything."""

from __future__ import annotations

import os
from collections import OrderedDict
from contextlib import suppress
from pathlib import Path
from typing import IO

from ...spec.config import Trial

_MOST_OPEN = 64  # a trial may have more ranks than this process may have open files


class RankLogs:
    def __init__(self, folder: Path | None, trial: Trial) -> None:
        self._folder = folder
        self._trial = trial
        self.notes: tuple[str, ...] = ()
        self._begun: set[int] = set()  # ranks that have a file
        self._files: OrderedDict[int, IO[str]] = OrderedDict()  # that are open, the one longest unused first

    def __enter__(self) -> RankLogs:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # of lines that could not be written before
                file.close()

    def write(self, rank: int, text: str) -> None:
        """Write a line. If that fails, as on a full disk, the rest of the logs is left out, and ``notes`` says so: a
        trial is not lost because of its logs.
        """
        if self._folder is None or self.notes:
            return
        try:
            if rank not in self._files:
                self._open(self._folder, rank)
            self._files.move_to_end(rank)
            self._files[rank].write(text + "\n")
        except OSError as error:
            path = self._folder / f"{self._trial.key}.rank{rank}.log"
            self.notes = (f"the logs end early: {path}: {error.strerror}",)

    def _open(self, folder: Path, rank: int) -> None:
        if len(self._files) >= _MOST_OPEN:
            self._files.popitem(last=False)[1].close()
        if not self._begun:
            folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self._trial.key}.rank{rank}.log"
        self._files[rank] = open(path, "a" if rank in self._begun else "w", buffering=1, opener=_open_no_link)  # noqa: SIM115
        self._begun.add(rank)


def _open_no_link(path: str, flags: int) -> int:
    """Open a file, but do not follow a link that somebody put in its place: it may lead out of the run's folder."""
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
