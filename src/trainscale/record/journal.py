"""The journal: one directory per run, in which every finished trial is safe.

    run.json       the specification and where it was measured; written once, atomically
    trials.jsonl   one line per finished trial, appended and synced to the disk before the next trial starts
    logs/          what the ranks printed
    slurm/         files of the batch job that measures it, if there is one; they may exist before the others

If the power fails while a line is written, the incomplete line is cut off when the journal is opened again, and its
trial is measured again.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from pathlib import Path
from typing import Any

from ..errors import InputError
from .decoding import DecodingError, check_schema, decode_object
from .files import sync_directory, write_atomically
from .run import RunInfo
from .trial import SCHEMA, TrialRecord, decode_record

RUN, TRIALS, LOGS, SLURM = "run.json", "trials.jsonl", "logs", "slurm"
_LOCK_TRIES, _LOCK_SECONDS = 5, 0.02


class Journal:
    """A journal that this process may write to; no other process can at the same time. Use ``open_journal``."""

    def __init__(self, directory: Path, run: RunInfo, descriptor: int, records: list[TrialRecord]) -> None:
        self.directory = directory
        self.run = run
        self.records = records
        self._descriptor = descriptor

    @property
    def logs(self) -> Path:
        return self.directory / LOGS

    def append(self, record: TrialRecord) -> None:
        line = json.dumps(record.to_dict(), separators=(",", ":"), allow_nan=False).encode() + b"\n"
        written = 0
        while written < len(line):
            written += os.write(self._descriptor, line[written:])
        os.fsync(self._descriptor)
        self.records = [other for other in self.records if other.trial.key != record.trial.key] + [record]

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_directory(directory: Path, spec: dict[str, Any]) -> bool:
    """Return whether this run was begun there. Raise an InputError if the directory belongs to something else."""
    if directory.exists() and not directory.is_dir():
        raise InputError(f"output {directory}: this is a file, not a directory")
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    if all(name == SLURM or name.startswith(f".{RUN}.") for name in names):
        return False
    if not (directory / RUN).exists():
        raise InputError(f"output {directory}: this directory holds other files; name a new one")
    recorded = read_run(directory).spec
    if recorded != spec:
        raise InputError(
            f"output {directory}: this directory holds another run, which differs in {_differences(recorded, spec)};"
            " name a new one, or repeat that run's command to continue it"
        )
    return True


def open_journal(directory: Path, run: RunInfo) -> Journal:
    """Begin a run, or continue one that has the same specification."""
    was_begun = check_directory(directory, run.spec)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output {directory}: this directory cannot be made: {error.strerror}") from None
    if not was_begun:
        write_atomically(directory / RUN, json.dumps(run.to_dict(), indent=2) + "\n")
    descriptor = os.open(directory / TRIALS, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    if not _lock(descriptor):
        os.close(descriptor)
        raise InputError(f"output {directory}: another trainscale is measuring there now")
    try:
        _cut_incomplete_line(descriptor)
        sync_directory(directory)
        return Journal(directory, read_run(directory), descriptor, read_trials(directory))
    except BaseException:
        os.close(descriptor)
        raise


def _lock(descriptor: int) -> bool:
    """Return whether the journal is now this process's own. Try for a moment: ``is_being_measured`` looks for a
    moment, too.
    """
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(_LOCK_SECONDS)
    return False


def is_being_measured(directory: Path) -> bool:
    """Return whether a process of this host, or one whose locks this host sees, writes to the journal."""
    try:
        descriptor = os.open(directory / TRIALS, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def read_run(directory: Path) -> RunInfo:
    path = directory / RUN
    try:
        values = decode_object(path.read_bytes())
        check_schema({"schema": SCHEMA, **values}, SCHEMA, str(path))
        return RunInfo.from_dict(values)
    except FileNotFoundError:
        raise InputError(f"{directory}: no run was recorded here (there is no {RUN})") from None
    except (OSError, DecodingError) as error:
        raise InputError(f"{path}: cannot be read as a run: {error}") from None


def read_trials(directory: Path) -> list[TrialRecord]:
    """Return all finished trials, in the order in which they ran. If one was measured again, the last counts."""
    path = directory / TRIALS
    if not path.exists():
        return []
    records: dict[str, TrialRecord] = {}
    complete, _, _incomplete = path.read_bytes().rpartition(b"\n")
    for number, line in enumerate(complete.split(b"\n") if complete else (), 1):
        record = decode_record(line, f"{path}:{number}")
        records.pop(record.trial.key, None)
        records[record.trial.key] = record
    return list(records.values())


def _cut_incomplete_line(descriptor: int) -> None:
    size = end = os.fstat(descriptor).st_size
    while end > 0:
        start = max(0, end - 65536)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        end = start + newline + 1
        if newline >= 0:
            break
    if end < size:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)


def _differences(recorded: dict[str, Any], requested: dict[str, Any]) -> str:
    """Return in words in which settings two specifications differ."""
    parts = []
    for key in {**recorded, **requested}:
        there, here = recorded.get(key), requested.get(key)
        if there == here:
            continue
        if isinstance(there, dict) and isinstance(here, dict):
            parts.append(_differences(there, here))
        elif isinstance(there, list) and isinstance(here, list) and _same_shape(there, here):
            parts += [_differences(old, new) for old, new in zip(there, here, strict=True) if old != new]
        else:
            parts.append(f"{key} (there {_short(there)}, here {_short(here)})")
    return ", ".join(parts)


def _same_shape(there: list[Any], here: list[Any]) -> bool:
    """Whether both lists hold the same number of objects, so that the objects themselves differ."""
    return len(there) == len(here) and all(isinstance(item, dict) for item in (*there, *here))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else text[:57] + "…"
