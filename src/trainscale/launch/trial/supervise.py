"""Runs one trial: starts its processes, listens, ends them, and says what happened. Whatever happens, none is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from ...record.trial import LOST, Failure, TrialRecord
from ...spec.config import Trial
from ..connections.event_reader import EventReader
from ..connections.keeper import HostError, KeeperConnection, ready, stop_all
from ..launchers.base import Launcher, Process, Task, plan
from .observer import TrialObserver

_PATIENCE_AFTER_FAILURE = 2.0  # for the other ranks to say what they saw: the first word is not always the cause
_PATIENCE_AFTER_RESULT = 15.0  # some frameworks wait for their peers at exit; the measurement is over by then

_PING_SECONDS = 5.0  # between signs of life to hosts that are other machines
_SILENCE_SECONDS = 120.0  # after which a keeper there takes the controller for dead

Watcher = Callable[[TrialObserver], None]
Jobs = Callable[[Mapping[str, list[int]]], list[Process]]


class PortTaken(Exception):
    """Another program took a port that had been free: choose others and start again."""


def supervise_trial(
    trial: Trial,
    ports: Mapping[str, int],
    jobs: Jobs,
    launcher: Launcher,
    *,
    timeout_seconds: float,
    stall_seconds: float,
    logs: Path | None,
    watch: Watcher = lambda _: None,
) -> TrialRecord:
    """The record of the trial. ``ports`` is how many each host must have free, ``jobs`` what to run once they are
    known. KeyboardInterrupt passes through, after everything was ended.
    """
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    keepers: list[KeeperConnection] = []
    try:
        try:
            keepers = launcher.open(list(ports))
            processes = jobs(ready(keepers, dict(ports)))
        except HostError as error:
            failure = Failure(LOST, str(error))
            return TrialRecord(trial, LOST, started, time.monotonic() - began, hosts=len(ports), failure=failure)
        observer = TrialObserver(trial, time.monotonic(), stall_seconds, len(processes), hosts=len(ports))
        with _Logs(logs, trial) as log:

            def hear(event: dict[str, Any]) -> None:
                if event["kind"] == "log":
                    log.write(event["rank"], event["text"])
                observer.feed(event, time.monotonic())

            ears = EventReader(keepers, hear, observer.lose)
            try:
                _send(keepers, processes, launcher, timeout_seconds)
                _listen(ears, observer, watch, keepers if not launcher.local else [])
            finally:
                for keeper in keepers:
                    keeper.close()
                ears.last_words()
    finally:
        stop_all(keepers)
    if observer.port_taken:
        raise PortTaken
    return observer.record(started, time.monotonic() - began)


def _send(
    keepers: Sequence[KeeperConnection], processes: list[Process], launcher: Launcher, timeout_seconds: float
) -> None:
    for keeper in keepers:
        tasks = [
            Task(process.job.rank, launcher.rank_command(process), process.job.to_json(), process.environment)
            for process in processes
            if process.host == keeper.host
        ]
        keeper.write(plan(tasks, timeout_seconds, None if launcher.local else _SILENCE_SECONDS))


def _listen(ears: EventReader, observer: TrialObserver, watch: Watcher, remote: Sequence[KeeperConnection]) -> None:
    until: float | None = None
    spoken = time.monotonic()
    while ears.open and not observer.finished:
        ears.hear()
        now = time.monotonic()
        if not observer.failed and not observer.measured:
            observer.look_for_hang(now)
        watch(observer)
        if remote and now - spoken > _PING_SECONDS:
            spoken = now
            for keeper in remote:
                keeper.write(b"\n")
        if until is None and observer.failed:
            until = now + _PATIENCE_AFTER_FAILURE
        elif until is None and observer.measured:
            until = now + _PATIENCE_AFTER_RESULT
        if until is not None and now > until:
            return


class _Logs:
    """One file for each rank that printed anything."""

    def __init__(self, folder: Path | None, trial: Trial) -> None:
        self._folder = folder
        self._trial = trial
        self._files: dict[int, IO[str]] = {}

    def __enter__(self) -> _Logs:
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
