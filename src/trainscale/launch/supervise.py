"""Runs one trial: starts its processes, listens, ends them, and says what happened. Whatever happens, none is left."""

from __future__ import annotations

import os
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from ..record.trial import LOST, Failure, TrialRecord
from ..spec.config import Trial
from ..worker.events import decode
from .base import Launcher, Process, Task, plan
from .keepers import HostError, Keeper, ready, stop_all
from .observe import Observer

_PATIENCE_AFTER_FAILURE = 2.0  # for the other ranks to say what they saw: the first word is not always the cause
_PATIENCE_AFTER_RESULT = 15.0  # some frameworks wait for their peers at exit; the measurement is over by then
_POLL_SECONDS = 0.25
_COMPLAINTS = 4096  # bytes of a keeper's standard error that are kept

_PING_SECONDS = 5.0  # between signs of life to hosts that are other machines
_SILENCE_SECONDS = 120.0  # after which a keeper there takes the controller for dead

Watcher = Callable[[Observer], None]
Jobs = Callable[[Mapping[str, list[int]]], list[Process]]


class PortTaken(Exception):
    """Another program took a port that had been free: choose others and start again."""


def supervise(
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
    keepers = launcher.open(list(ports))
    try:
        try:
            processes = jobs(ready(keepers, dict(ports)))
        except HostError as error:
            failure = Failure(LOST, str(error))
            return TrialRecord(trial, LOST, started, time.monotonic() - began, hosts=len(ports), failure=failure)
        observer = Observer(trial, time.monotonic(), stall_seconds, len(processes), hosts=len(ports))
        with _Logs(logs, trial) as log:
            ears = _Ears(keepers, observer, log)
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


def _send(keepers: Sequence[Keeper], processes: list[Process], launcher: Launcher, timeout_seconds: float) -> None:
    for keeper in keepers:
        tasks = [
            Task(process.job.rank, launcher.rank_command(process), process.job.to_json(), process.environment)
            for process in processes
            if process.host == keeper.host
        ]
        keeper.write(plan(tasks, timeout_seconds, None if launcher.local else _SILENCE_SECONDS))


def _listen(ears: _Ears, observer: Observer, watch: Watcher, remote: Sequence[Keeper]) -> None:
    until: float | None = None
    spoken = time.monotonic()
    while ears.open and not observer.finished:
        ears.hear(_POLL_SECONDS)
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


class _Ears:
    """Reads the keepers' lines and hands them to the observer."""

    def __init__(self, keepers: list[Keeper], observer: Observer, log: _Logs) -> None:
        self._observer = observer
        self._log = log
        self._selector = selectors.DefaultSelector()
        self._buffers = {keeper.host: b"" for keeper in keepers}
        self._complaints = {keeper.host: b"" for keeper in keepers}
        self._ended: set[str] = set()
        for keeper in keepers:
            self._take(keeper.host, keeper.take_left_over())
            for stream in (keeper.output, keeper.complaints):
                if stream is not None:
                    self._selector.register(stream, selectors.EVENT_READ, keeper)

    @property
    def open(self) -> bool:
        return bool(self._selector.get_map())

    def hear(self, seconds: float) -> None:
        for key, _ in self._selector.select(seconds):
            keeper: Keeper = key.data
            data = os.read(key.fd, 65536)
            if not data:
                self._selector.unregister(key.fileobj)
                self._closed(keeper)
            elif key.fileobj is keeper.output:
                self._take(keeper.host, data)
            else:
                self._complaints[keeper.host] = (self._complaints[keeper.host] + data)[-_COMPLAINTS:]

    def _closed(self, keeper: Keeper) -> None:
        """A keeper whose streams have both ended without its last word is lost."""
        left = {key.fileobj for key in self._selector.get_map().values()}
        if keeper.host not in self._ended and not left & {keeper.output, keeper.complaints}:
            words = self._complaints[keeper.host].decode(errors="replace")
            self._observer.lose(keeper.host, tuple(words.splitlines()))

    def last_words(self, seconds: float = 10.0) -> None:
        """After the keepers' inputs were closed: until each has said its end."""
        until = time.monotonic() + seconds
        while self.open and time.monotonic() < until:
            self.hear(_POLL_SECONDS)

    def _take(self, host: str, data: bytes) -> None:
        *lines, self._buffers[host] = (self._buffers[host] + data).split(b"\n")
        for line in lines:
            event = decode(line.decode(errors="replace"))
            if event is None:
                continue
            if event["kind"] == "log":
                self._log.write(event["rank"], event["text"])
            elif event["kind"] == "end":
                self._ended.add(host)
            self._observer.feed(event, time.monotonic())


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
