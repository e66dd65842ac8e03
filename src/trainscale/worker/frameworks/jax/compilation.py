"""JAX's persistent compilation cache: counts what it had, and lets every rank write to it safely."""

from __future__ import annotations

import os
import sys
import tempfile
from typing import Any

import jax

from ...compiled_programs import describe_state

_NEEDED = "/jax/core/compile/backend_compile_duration"  # also of a program that the cache had
_CACHED = "/jax/compilation_cache/cache_hits"


class ProgramCounter:
    """Counts the programs that this process has needed, and those that the cache had."""

    def __init__(self) -> None:
        self._needed = self._cached = 0
        jax.monitoring.register_event_listener(self._count_cached)
        jax.monitoring.register_event_duration_secs_listener(self._count_needed)

    def describe(self) -> str:
        return describe_state(self._needed, self._cached)

    def _count_cached(self, event: str, **_: Any) -> None:
        self._cached += event == _CACHED

    def _count_needed(self, event: str, _seconds: float, **_: Any) -> None:
        self._needed += event == _NEEDED


def let_every_rank_write() -> None:
    """Have every rank keep its programs, and each file appear complete.

    JAX writes from its process 0 only. But on CPUs the programs of every rank have keys of their own, and another host
    may have another cache. JAX also writes files in place: if a rank is ended meanwhile, a part of a program would
    remain forever. JAX has no settings for either, so its own functions are wrapped; if this JAX does not have them,
    it goes on as it is.
    """
    try:
        from jax._src import compiler, distributed, lru_cache

        write, state, put = compiler._cache_write, distributed.global_state, lru_cache.LRUCache.put
    except (ImportError, AttributeError):
        print("in this JAX only rank 0 keeps its compiled programs", file=sys.stderr)
        return

    def write_as_first(*arguments: Any, **options: Any) -> None:
        process_id, state.process_id = state.process_id, 0
        try:
            write(*arguments, **options)
        finally:
            state.process_id = process_id

    def put_complete(cache: Any, key: str, value: bytes) -> None:
        if cache.eviction_enabled:  # then JAX uses a lock
            put(cache, key, value)
        else:
            _write_file(os.path.join(str(cache._path), f"{key}-cache"), value)  # noqa: PTH118

    compiler._cache_write = write_as_first
    lru_cache.LRUCache.put = put_complete


def _write_file(path: str, content: bytes) -> None:
    """Write a file so that other processes see all of it or nothing."""
    descriptor, temporary = tempfile.mkstemp(prefix=".", dir=os.path.dirname(path))  # noqa: PTH120
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(temporary, path)  # noqa: PTH105
    except OSError:
        os.unlink(temporary)  # noqa: PTH108
        raise
