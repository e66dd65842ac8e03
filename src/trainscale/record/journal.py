"""Contract 7, the journal: one directory per run, in which nothing is ever lost.

    run.json       the specification and where it was measured; written once, whole or not at all
    trials.jsonl   one finished trial a line, appended and synced to the disk before the next one starts
    logs/          what the ranks printed
    slurm/         of the batch job that measures it, where there is one; may be there before the rest

A line that was being written when the power went is half a line: it is cut off at the next opening, and its trial is
measured again.
"""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

from ..errors import InputError
from .decoding import DecodingError, check_schema, decode_object
from .files import sync_directory, write_whole
from .run import RunInfo
from .trial import SCHEMA, TrialRecord, decode_record

RUN, TRIALS, LOGS, SLURM = "run.json", "trials.jsonl", "logs", "slurm"


class Journal:
    """Open for writing by one process at a time. Use ``open_journal``."""

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
        self.records = [old for old in self.records if old.trial.key != record.trial.key] + [record]

    def close(self) -> None:
        os.close(self._descriptor)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def check_directory(directory: Path, spec: dict[str, Any]) -> bool:
    """Whether this run was begun there. An InputError if the directory is not for it; nothing is written."""
    if directory.exists() and not directory.is_dir():
        raise InputError(f"output {directory}: this is a file, not a directory")
    names = [path.name for path in directory.iterdir()] if directory.exists() else []
    if all(name == SLURM or name.startswith(f".{RUN}.") for name in names):
        return False
    if not (directory / RUN).exists():
        raise InputError(f"output {directory}: this directory holds other files; name a new one")
    theirs = read_run(directory).spec
    if theirs != spec:
        raise InputError(
            f"output {directory}: this directory holds another run, which differs in {_differences(theirs, spec)};"
            " name a new one, or repeat that run's command to continue it"
        )
    return True


def open_journal(directory: Path, run: RunInfo) -> Journal:
    """Begin a run, or continue one that has the same specification."""
    begun = check_directory(directory, run.spec)
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"output {directory}: this directory cannot be made: {error.strerror}") from None
    if not begun:
        write_whole(directory / RUN, json.dumps(run.to_dict(), indent=2) + "\n")
    descriptor = os.open(directory / TRIALS, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise InputError(f"output {directory}: another trainscale is measuring there now") from None
    try:
        _cut_torn_line(descriptor)
        sync_directory(directory)
        return Journal(directory, read_run(directory), descriptor, read_trials(directory))
    except BaseException:
        os.close(descriptor)
        raise


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
    """All finished trials, in the order in which they ran. Of a trial measured again, the last counts."""
    path = directory / TRIALS
    if not path.exists():
        return []
    found: dict[str, TrialRecord] = {}
    whole, _, _torn = path.read_bytes().rpartition(b"\n")
    for number, line in enumerate(whole.splitlines(), 1):
        record = decode_record(line, f"{path}:{number}")
        found.pop(record.trial.key, None)
        found[record.trial.key] = record
    return list(found.values())


def _cut_torn_line(descriptor: int) -> None:
    size = os.fstat(descriptor).st_size
    tail_start = size
    while tail_start > 0:
        step = min(65536, tail_start)
        piece = os.pread(descriptor, step, tail_start - step)
        newline = piece.rfind(b"\n")
        if newline >= 0:
            tail_start = tail_start - step + newline + 1
            break
        tail_start -= step
    if tail_start < size:
        os.ftruncate(descriptor, tail_start)
        os.fsync(descriptor)


def _differences(theirs: dict[str, Any], ours: dict[str, Any]) -> str:
    parts = []
    for key in [*theirs, *(key for key in ours if key not in theirs)]:
        there, here = theirs.get(key), ours.get(key)
        if there == here:
            continue
        if isinstance(there, dict) and isinstance(here, dict):
            parts.append(_differences(there, here))
        elif isinstance(there, list) and isinstance(here, list) and _same_shape(there, here):
            parts += [_differences(one, other) for one, other in zip(there, here, strict=True) if one != other]
        else:
            parts.append(f"{key} (there {_short(there)}, here {_short(here)})")
    return ", ".join(parts)


def _same_shape(there: list[Any], here: list[Any]) -> bool:
    """As many tables in both lists: what differs is inside them."""
    return len(there) == len(here) and all(isinstance(one, dict) for one in (*there, *here))


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) < 60 else text[:57] + "…"
