"""The journal: one directory per run, in which every finished trial is safe.

    run.json       the specification and where it was measured; written once, atomically
    trials.jsonl   one line per finished trial, appended and synced to the disk before the next trial starts
    logs/          what the ranks printed
    slurm/         files of the batch job that measures it, if there is one; they may exist before the others

If the power fails while a line is written, the incomplete line is cut off when the journal is opened again, and its
trial is measured again. A disk may write the blocks of a line in any order, so the line's end may be there without its
middle: blocks that were not written are zeros, which no line has otherwise.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..errors import InputError, TrainscaleError, shorten_path
from ..worker.regular_files import open_regular
from ..worker.type_aliases import JsonObject
from .collection import pause_collection
from .decoding import DecodingError, check_schema, decode_object
from .files import make_directory, sync_directory, write_atomically
from .run import RunInfo
from .trial import SCHEMA, TrialRecord
from .trial_line import DamagedLine, decode_record

RUN, TRIALS, LOGS, SLURM = "run.json", "trials.jsonl", "logs", "slurm"
_MOST_MESSAGES = 5  # about damaged lines of a journal
_LOCK_TRIES, _LOCK_SECONDS = 5, 0.02
_UNWRITTEN = b"\0"


class Journal:
    """A journal that this process may write to; no other process can at the same time. Use ``open_journal``."""

    def __init__(self, directory: Path, run: RunInfo, descriptor: int, records: list[TrialRecord]) -> None:
        self.directory = directory
        self.run = run
        self.records = records
        self._descriptor = descriptor
        self._keys: set[str] | None = None  # of the records, from the first append on

    @property
    def logs(self) -> Path:
        return self.directory / LOGS

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
            raise self._explain_full_disk(error) from None
        self._add(record)

    def _add(self, record: TrialRecord) -> None:
        if self._keys is None:
            self._keys = {other.trial.key for other in self.records}
        if record.trial.key in self._keys:  # it was measured again
            self.records = [other for other in self.records if other.trial.key != record.trial.key]
        self._keys.add(record.trial.key)
        self.records.append(record)

    def _explain_full_disk(self, error: OSError) -> TrainscaleError:
        count = len(self.records)
        kept = f"the {count} finished trials before it are" if count != 1 else "the finished trial before it is"
        return TrainscaleError(
            f"{self.directory / TRIALS}: {error.strerror}; the trial that has just ended could not be recorded,"
            f" {kept if count else 'no trial had finished before it, so nothing is'} kept; the same command continues"
            " when the file can be written"
        )

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_directory(directory: Path, spec: JsonObject) -> bool:
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
        differences = _describe_differences(recorded, spec)
        raise InputError(
            f"output {directory}: this directory holds another run, which differs in {differences};"
            " name a new one, or repeat that run's command to continue it"
        )
    return True


def open_journal(directory: Path, run: RunInfo, patience_seconds: float = 0.0) -> Journal:
    """Begin a run, or continue one that has the same specification. Another process that measures there now is waited
    for as long as ``patience_seconds``.
    """
    was_begun = check_directory(directory, run.spec)
    try:
        make_directory(directory)
    except OSError as error:
        raise InputError(f"output {directory}: this directory cannot be made: {error.strerror}") from None
    if not was_begun:
        write_atomically(directory / RUN, json.dumps(run.to_dict(), indent=2) + "\n")
    descriptor = os.open(directory / TRIALS, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    if not _lock(descriptor, patience_seconds):
        os.close(descriptor)
        raise InputError(f"output {directory}: another trainscale is measuring there now")
    try:
        _cut_incomplete_line(descriptor)
        sync_directory(directory)
        return Journal(directory, read_run(directory), descriptor, read_trials(directory))
    except BaseException:
        os.close(descriptor)
        raise


def _lock(descriptor: int, patience_seconds: float) -> bool:
    """Return whether the journal is now this process's own. Try for a moment at least: ``is_being_measured`` looks for
    a moment, too.
    """
    deadline = time.monotonic() + max(patience_seconds, _LOCK_TRIES * _LOCK_SECONDS)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOCK_SECONDS)


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
        values = decode_object(_read(path))
        check_schema({"schema": SCHEMA, **values}, SCHEMA, str(path))
        return RunInfo.from_dict(values)
    except FileNotFoundError:
        raise InputError(f"{directory}: no run was recorded here (there is no {RUN})") from None
    except OSError as error:
        raise InputError(f"{shorten_path(path)}: cannot be read as a run: {error.strerror}") from None
    except DecodingError as error:
        raise InputError(f"{path}: cannot be read as a run: {error}") from None


@pause_collection
def read_trials(directory: Path, skip: Callable[[str], None] | None = None) -> list[TrialRecord]:
    """Return all finished trials, in the order in which they ran. If one was measured again, the last counts.

    A damaged line is an InputError with file, line and field. With ``skip``, it is left out and ``skip`` is called
    with the message, unless no line can be read.
    """
    path = directory / TRIALS
    name = str(path)
    records: dict[str, TrialRecord] = {}
    damage: list[DamagedLine] = []
    for number, line in enumerate(_read_complete_lines(path), 1):
        try:
            record = decode_record(line, f"{name}:{number}")
        except DamagedLine as line_error:
            damage.append(line_error)
            if skip is None:
                raise
            continue
        key = record.trial.key
        records.pop(key, None)
        records[key] = record
    if damage and not records:
        raise damage[0]
    if skip is not None:
        for error in damage[:_MOST_MESSAGES]:
            skip(str(error))
        if len(damage) > _MOST_MESSAGES:
            skip(f"{path}: {len(damage) - _MOST_MESSAGES} further lines are damaged")
    return list(records.values())


def _read_complete_lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file without their ends. The last one is left out if it was not written completely."""
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


def _read(path: Path) -> bytes:
    with open_regular(path) as file:
        return file.read()


def _cut_incomplete_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    end = _find_end_of_lines(descriptor, size)
    start = _find_end_of_lines(descriptor, end - 1)
    if _UNWRITTEN in os.pread(descriptor, end - start, start):
        end = start
    if end < size:
        os.ftruncate(descriptor, end)
        os.fsync(descriptor)


def _find_end_of_lines(descriptor: int, size: int) -> int:
    """Return where the last line ends that is complete within the first ``size`` bytes."""
    end = max(0, size)
    while end > 0:
        start = max(0, end - 65536)
        newline = os.pread(descriptor, end - start, start).rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


def _describe_differences(recorded: JsonObject, requested: JsonObject) -> str:
    """Return in words in which settings two specifications differ."""
    parts = []
    for key in {**recorded, **requested}:
        there, here = recorded.get(key), requested.get(key)
        if there == here:
            continue
        if isinstance(there, dict) and isinstance(here, dict):
            parts.append(_describe_differences(there, here))
        elif isinstance(there, list) and isinstance(here, list) and _have_same_shape(there, here):
            parts += [_describe_differences(old, new) for old, new in zip(there, here, strict=True) if old != new]
        else:
            parts.append(f"{key} (there {_format_briefly(there)}, here {_format_briefly(here)})")
    return ", ".join(parts)


def _have_same_shape(there: list[Any], here: list[Any]) -> bool:
    """Return whether both lists hold the same number of objects, so that the objects themselves differ."""
    return len(there) == len(here) and all(isinstance(item, dict) for item in (*there, *here))


def _format_briefly(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else text[:57] + "…"
