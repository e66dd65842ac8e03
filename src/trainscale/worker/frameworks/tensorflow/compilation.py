"""XLA's persistent cache under TensorFlow, which gives no counters to Python. So its files are compared."""

from __future__ import annotations

import os

from ...compiled_programs import COLD, NONE, WARM
from ...job import Job
from .environment import CACHE_FLAG


class CachedPrograms:
    """The files of the cache when the rank began. Without --compile there is nothing to keep.

    A file that another rank of the trial has added makes this rank cold, too. The trial is cold in any case.
    """

    def __init__(self, job: Job) -> None:
        self._compiles = job.config.compile
        self._folder = _find_cache_folder(os.environ.get("TF_XLA_FLAGS", ""))
        self._before = _list_names(self._folder)

    def describe(self) -> str:
        if not self._compiles:
            return NONE
        names = _list_names(self._folder)
        return WARM if names and names == self._before else COLD


def _find_cache_folder(flags: str) -> str:
    """Return the last folder that the flags name."""
    folders = [flag[len(CACHE_FLAG) :] for flag in flags.split() if flag.startswith(CACHE_FLAG)]
    return folders[-1] if folders else ""


def _list_names(folder: str) -> set[str]:
    """Return the names of the complete files. XLA's temporary files are none of them."""
    try:
        return {name for name in os.listdir(folder) if name.endswith(".pb")} if folder else set()  # noqa: PTH208
    except OSError:
        return set()
