"""The journal: one directory per run, in which every finished trial is safe.

    run.json       the specification and where it was measured; written once, atomically
    trials.jsonl   one line per finished trial, synced to the disk before the next trial starts
    logs/          what the ranks printed
    slurm/         files of the batch job that measures it; they may exist before the others

After a power failure, an incomplete last line is cut off, and its trial is measured again. A disk may write the
blocks of a line in any order; those that it did not write are zeros, which no line has otherwise.
"""

from __future__ import annotations

import fcntl
import gc
import json
import mmap
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InputError, TrainscaleError, shorten_path
from ..worker.regular_files import open_regular
from ..worker.type_aliases import JsonObject
from .decoding import read_document
from .files import make_directory, sync_directory, write_atomically
from .run import RunInfo
from .trial import SCHEMA, DamagedLine, TrialRecord, decode_record

RUN, TRIALS, LOGS, SLURM = "run.json", "trials.jsonl", "logs", "slurm"
_MOST_MESSAGES = 5  # about damaged lines of a journal
_LOCK_TRIES, _LOCK_SECONDS = 5, 0.02
_UNWRITTEN = b"\0"
_SHOWN = 60  # letters of a value in a message


class Journal:
    def __init__(self, directory: Path, run: RunInfo, descriptor: int, records: list[TrialRecord]) -> None:
        self.directory = directory
        self.run = run
        self.records = records
        self._descriptor = descriptor
        self._keys = {record.trial.key for record in records}  # a large journal is appended to as fast

    def append(self, record: TrialRecord) -> None:
        line = json.dumps(record.to_dict(), separators=(",", ":"), allow_nan=False).encode() + b"\n"
        size = os.fstat(self._descriptor).st_size
        try:
            written = 0
            while written < len(line):
                written += os.write(self._descriptor, line[written:])
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(self._descriptor, size)
            kept = f"trials kept: {len(self.records)}"
            raise TrainscaleError(
                f"{self.directory / TRIALS}: {error.strerror}; the trial that has just ended could not be"
                f" recorded ({kept}); the same command continues when the file can be written"
            ) from None
        key = record.trial.key
        if key in self._keys:
            self.records = [other for other in self.records if other.trial.key != key]
        self._keys.add(key)
        self.records.append(record)

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def open_journal(directory: Path, run: RunInfo, patience_seconds: float = 0.0) -> Journal:
    """Begin a run or continue it. Wait for another process up to ``patience_seconds``."""
    check_directory(directory, run.spec)  # before anything is written there
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        make_directory(directory)
        descriptor = os.open(directory / TRIALS, flags, 0o644)
    except OSError as error:
        where = directory / TRIALS if directory.is_dir() else directory
        raise InputError(f"output {where}: a journal cannot be made here: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise InputError(f"output {directory / TRIALS}: this is not a regular file; name a new directory")
        deadline = time.monotonic() + max(patience_seconds, _LOCK_TRIES * _LOCK_SECONDS)
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                # is_being_measured also locks it for a moment.
                if time.monotonic() > deadline:
                    raise InputError(f"output {directory}: another trainscale is measuring there now") from None
                time.sleep(_LOCK_SECONDS)
        # Another process may have begun a run here before this one had the lock.
        if not check_directory(directory, run.spec):
            write_atomically(directory / RUN, json.dumps(run.to_dict(), indent=2) + "\n")
        if size := os.fstat(descriptor).st_size:
            with mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) as data:
                end = data.rfind(b"\n") + 1
                start = data.rfind(b"\n", 0, max(0, end - 1)) + 1
                if _UNWRITTEN in data[start:end]:
                    end = start
            if end < size:  # the last line is incomplete
                os.ftruncate(descriptor, end)
                os.fsync(descriptor)
        sync_directory(directory)
        return Journal(directory, read_run(directory), descriptor, read_trials(directory))
    except BaseException:
        os.close(descriptor)
        raise


def check_directory(directory: Path, spec: JsonObject) -> bool:
    """Return whether this run was begun there. Refuse anything else there."""
    if directory.exists() and not directory.is_dir():
        raise InputError(f"output {directory}: this is a file, not a directory")
    names = {path.name for path in directory.iterdir()} if directory.exists() else set()
    if RUN not in names:
        # A process that was killed, or that is about to write run.json, leaves an empty journal.
        trials = directory / TRIALS
        is_empty = TRIALS in names and trials.is_file() and not trials.stat().st_size
        others = names - {SLURM} - ({TRIALS} if is_empty else set())
        if not all(name.startswith(f".{RUN}.") for name in others):
            raise InputError(f"output {directory}: this directory holds other files; name a new one")
        return False
    recorded = read_run(directory).spec
    if recorded != spec:
        raise InputError(
            f"output {directory}: this directory holds another run, which differs in"
            f" {', '.join(_list_differences(recorded, spec))};"
            " name a new one, or repeat that run's command to continue it"
        )
    return True


def _list_differences(recorded: JsonObject, requested: JsonObject) -> list[str]:
    def collect(spec: JsonObject) -> dict[str, list[Any]]:
        values: dict[str, list[Any]] = {}
        for settings in (*(spec.get("series") or ()), spec):
            for key, value in settings.items():
                if value not in values.setdefault(key, []):
                    values[key].append(value)
        return {key: value for key, value in values.items() if key != "series"}

    def format_values(values: list[Any]) -> str:
        texts = [value if isinstance(value, str) else json.dumps(value) for value in values]
        return ", ".join(text if len(text) < _SHOWN else f"{text[: _SHOWN - 3]}…" for text in texts) or "null"

    there, here = collect(recorded), collect(requested)
    parts = [
        f"{key} (there {format_values(there.get(key, []))}, here {format_values(here.get(key, []))})"
        for key in {**there, **here}
        if there.get(key) != here.get(key)
    ]
    counts = [len(spec.get("series") or ()) for spec in (recorded, requested)]
    return parts or [f"series (there {counts[0]}, here {counts[1]} of other combinations)"]


def is_being_measured(directory: Path) -> bool:
    try:
        with open_regular(directory / TRIALS) as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    return False


def read_run(directory: Path) -> RunInfo:
    run = read_document(directory / RUN, SCHEMA, "a run", RunInfo.from_dict)
    if run is None:
        raise InputError(f"{directory}: no run was recorded here (there is no {RUN})")
    return run


def read_trials(directory: Path, skip: Callable[[str], None] | None = None) -> list[TrialRecord]:
    """Return all trials in order; the last record of a trial counts.

    Without ``skip``, a damaged line is an InputError, as are only damaged lines.
    """
    path = directory / TRIALS
    records: dict[str, TrialRecord] = {}
    damage: list[DamagedLine] = []
    # The garbage collector would take a third of a large journal's time (bench/journal.py).
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        for number, line in enumerate(_read_complete_lines(path), 1):
            try:
                record = decode_record(line, f"{path}:{number}")
            except DamagedLine as error:
                if skip is None:
                    raise
                damage.append(error)
                continue
            key = record.trial.key
            records.pop(key, None)
            records[key] = record
    finally:
        if was_enabled:
            gc.enable()
    if damage and not records:
        raise damage[0]
    if skip is not None:
        for damaged_line in damage[:_MOST_MESSAGES]:
            skip(str(damaged_line))
        if len(damage) > _MOST_MESSAGES:
            skip(f"{path}: {len(damage) - _MOST_MESSAGES} further lines are damaged")
    return list(records.values())


def _read_complete_lines(path: Path) -> Iterator[bytes]:
    last = b""
    try:
        with open_regular(path) as file:
            for line in file:
                if last:
                    yield last[:-1]
                last = line if line.endswith(b"\n") else b""
        if last and _UNWRITTEN not in last:
            yield last[:-1]
    except FileNotFoundError:
        return
    except OSError as error:
        raise InputError(f"{shorten_path(path)}: cannot be read as trials: {error.strerror}") from None
