"""One trial: starts its processes, reads their events, ends them, and returns the record. No process is left.

jobs.py says what every process gets; state.py follows the ranks by their events and finds why a trial failed.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from ...record.trial import IMAGES, LOST, OK, REFUSED, Failure, ServerResult, TrialRecord
from ...spec.config import Trial
from ...spec.devices import Slot
from ...worker.events import LogLine
from ...worker.sample import Report
from ..connected_hosts import ConnectedHosts, ConnectOptions
from ..connection import READY_SECONDS, CommandError, HostError, NoFreePorts, ReceivedEvent
from ..launchers.base import Launcher
from .jobs import TrialSettings, build_tasks, count_ports, describe_device
from .state import RankPlace, TrialState, find_failure, find_hang

_SECONDS_AFTER_FAILURE = 2.0  # the first error is not always the cause
# Some frameworks wait for their peers at exit: so long for the next rank to leave, and so long in all.
_SECONDS_TO_LEAVE, _MOST_SECONDS_TO_LEAVE = 15.0, 60.0

_MOST_OPEN = 64  # a trial may have more ranks than this process may have open files

Watcher = Callable[[TrialState], None]


class PortTaken(Exception):
    """Another program took a port that had been free: choose other ports and start again."""


def supervise_trial(
    trial: Trial,
    slots: Sequence[Slot],
    settings: TrialSettings,
    launcher: Launcher,
    watch: Watcher = lambda _: None,
) -> TrialRecord:
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    port_counts = count_ports(slots)
    try:
        options = ConnectOptions(min(READY_SECONDS, settings.timeout_seconds))
        with launcher.connect(list(port_counts), options) as connected:
            tasks = build_tasks(trial, slots, connected.find_ports(port_counts), settings)
            places = [RankPlace(slot.host.name, describe_device(slot.device)) for slot in slots]
            state = TrialState.begin(trial, len(tasks), len(port_counts), time.monotonic(), places)
            with RankLogs(settings.logs, trial) as logs:
                try:
                    connected.start(tasks, settings.timeout_seconds)
                    _follow(connected, state, logs, settings, watch)
                finally:
                    for received in connected.drain():
                        _process(received, state, logs)
    except HostError as error:
        kind = REFUSED if isinstance(error, NoFreePorts) else LOST
        is_named = not launcher.local and not isinstance(error, CommandError)
        failure = Failure(kind, str(error), host=error.host if is_named else "")
        seconds = time.monotonic() - began
        return TrialRecord(trial, kind, started, seconds, hosts=len(port_counts), failure=failure)
    if state.is_port_taken:
        raise PortTaken
    record = build_record(state, started, time.monotonic() - began)
    return replace(record, notes=(*record.notes, *logs.notes))


def _follow(
    connected: ConnectedHosts, state: TrialState, logs: RankLogs, settings: TrialSettings, watch: Watcher
) -> None:
    """Process events until the trial is over, has failed a while ago, or ranks do not leave."""
    failed_at: float | None = None
    while connected.is_open and not state.is_finished:
        for received in connected.poll():
            _process(received, state, logs)
        now = time.monotonic()
        if not state.has_failed and not state.is_measured:
            state.hang = find_hang(state, settings.stall_seconds, now)
            if state.hang is not None:
                for rank in state.workers:
                    for call in ("call stack when the trial hung:", *rank.calls) if rank.calls else ():
                        logs.write(rank.rank, call)
        watch(state)
        if state.measured_at is not None:
            if now > min(state.last_leave + _SECONDS_TO_LEAVE, state.measured_at + _MOST_SECONDS_TO_LEAVE):
                state.note_stayed_ranks()
                return
        elif state.has_failed:
            failed_at = failed_at or now
            if now > failed_at + _SECONDS_AFTER_FAILURE:
                return


def _process(received: ReceivedEvent, state: TrialState, logs: RankLogs) -> None:
    if isinstance(received.event, LogLine) and received.rank is not None:
        logs.write(received.rank, received.event.text)
    state.update(received, time.monotonic())


def build_record(state: TrialState, started: str, seconds: float) -> TrialRecord:
    failure = None if state.is_measured else find_failure(state)
    first = state.workers[0]
    reports = [(rank, rank.result) for rank in state.workers if isinstance(rank.result, Report)]
    own = first.result if isinstance(first.result, Report) else None
    last = state.workers[-1].result
    samples = []
    for rank, report in reports:  # with what only the keeper knows
        peak, note, allocated = rank.gpu.peak_bytes, rank.gpu.note, report.sample.device_peak_bytes
        # The driver, asked five times a second, may miss what an allocator returns at once.
        if peak is not None and allocated is not None and peak < allocated:
            note = f"NVML, asked five times a second, saw {peak} bytes where the allocator once had {allocated}"
            peak = None
        samples.append(replace(report.sample, nvml_peak_bytes=peak, nvml_note=note, gpu=rank.gpu.state))
    return TrialRecord(
        trial=state.trial,
        status=OK if failure is None else failure.kind,
        started=started,
        seconds=round(seconds, 3),
        hosts=state.hosts,
        warmup=own.warmup if own else 0,
        steps=len(own.sample.step_seconds) if own else 0,
        ranks=tuple(samples),
        epochs=tuple(state.epochs),
        servers=tuple(rank.result for rank in state.servers if isinstance(rank.result, ServerResult)),
        failure=failure,
        versions=first.hello.versions if first.hello else {},
        allocator=first.hello.allocator if first.hello else {},
        parameters=first.ready.parameters if first.ready else None,
        unit=first.ready.unit if first.ready else IMAGES,
        samples_seen=tuple(report.seen for _, report in reports if report.seen is not None),
        sketches=last.sketches if isinstance(last, Report) else {},
        closing_sketches=last.closing_sketches if isinstance(last, Report) else {},
        machine=state.machine,
        notes=(*(note for rank in state.ranks for note in rank.notes), *state.notes),
    )


class RankLogs:
    """The log files of a trial: one for each rank that printed anything."""

    def __init__(self, folder: Path | None, trial: Trial) -> None:
        self._folder = folder
        self._trial = trial
        self.notes: tuple[str, ...] = ()
        self._begun: set[int] = set()  # ranks that have a file
        self._files: OrderedDict[int, IO[str]] = OrderedDict()  # open, the longest unused first

    def __enter__(self) -> RankLogs:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # of lines that could not be written before
                file.close()

    def write(self, rank: int, text: str) -> None:
        """Write a line. If that fails, as on a full disk, ``notes`` says so, and the rest is left out."""
        if self._folder is None or self.notes:
            return
        path = self._folder / f"{self._trial.key}.rank{rank}.log"
        try:
            if rank not in self._files:
                if len(self._files) >= _MOST_OPEN:
                    self._files.popitem(last=False)[1].close()
                if not self._begun:
                    self._folder.mkdir(parents=True, exist_ok=True)
                # A link in its place may lead out of the run's folder: do not follow it.
                mode = os.O_APPEND if rank in self._begun else os.O_TRUNC
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | mode
                self._files[rank] = os.fdopen(os.open(path, flags, 0o666), "w", buffering=1)
                self._begun.add(rank)
            self._files.move_to_end(rank)
            self._files[rank].write(text + "\n")
        except OSError as error:
            self.notes = (f"the logs end early: {path}: {error.strerror}",)
