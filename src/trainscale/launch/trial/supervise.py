"""Runs one trial: starts its processes, reads their events, ends them, and returns the record. No process is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from ...record.trial import LOST, REFUSED, Failure, TrialRecord
from ...spec.config import Trial
from ...spec.placement import Slot
from ...worker.events import LogLine
from ..connected_hosts import ConnectedHosts, ConnectOptions
from ..connection import READY_SECONDS, CommandError, HostError, NoFreePorts
from ..events import ReceivedEvent
from ..launchers.base import Launcher
from .hangs import find_hang
from .placement import JobSettings, build_tasks, count_ports, describe_device
from .rank_logs import RankLogs
from .rank_state import RankPlace
from .record import build_record
from .state import TrialState

_SECONDS_AFTER_FAILURE = 2.0  # for the other ranks to report: the first error is not always the cause
# Some frameworks wait for their peers at exit, when the measurement is over. They may wait so long for the next rank to
# leave, and so long in all.
_SECONDS_TO_LEAVE, _MOST_SECONDS_TO_LEAVE = 15.0, 60.0

Watcher = Callable[[TrialState], None]


@dataclass(frozen=True)
class TrialLimits:
    """When to give a trial up, and where its logs go."""

    timeout_seconds: float
    stall_seconds: float  # without progress
    logs: Path | None = None


class PortTaken(Exception):
    """Another program took a port that had been free: choose other ports and start again."""


def supervise_trial(
    trial: Trial,
    slots: Sequence[Slot],
    settings: JobSettings,
    launcher: Launcher,
    limits: TrialLimits,
    watch: Watcher = lambda _: None,
) -> TrialRecord:
    """Return the record of the trial. KeyboardInterrupt passes through, after everything was ended."""
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    port_counts = count_ports(slots)
    try:
        options = ConnectOptions(min(READY_SECONDS, limits.timeout_seconds))
        with launcher.connect(list(port_counts), options) as connected:
            tasks = build_tasks(trial, slots, connected.find_ports(port_counts), settings)
            places = [RankPlace(slot.host.name, describe_device(slot.device)) for slot in slots]
            state = TrialState.begin(trial, len(tasks), len(port_counts), time.monotonic(), places)
            with RankLogs(limits.logs, trial) as logs:
                try:
                    connected.start(tasks, limits.timeout_seconds)
                    _follow(connected, state, logs, limits, watch)
                finally:
                    for received in connected.drain():
                        _process(received, state, logs)
    except HostError as error:
        kind = REFUSED if isinstance(error, NoFreePorts) else LOST
        is_named = not launcher.local and not isinstance(error, CommandError)
        failure = Failure(kind, str(error), host=error.host if is_named else "")
        return TrialRecord(trial, kind, started, time.monotonic() - began, hosts=len(port_counts), failure=failure)
    if state.is_port_taken:
        raise PortTaken
    record = build_record(state, started, time.monotonic() - began)
    return replace(record, notes=(*record.notes, *logs.notes))


def _follow(connected: ConnectedHosts, state: TrialState, logs: RankLogs, limits: TrialLimits, watch: Watcher) -> None:
    """Process events until the trial is finished or has failed a while ago, or ranks do not leave."""
    failed_at: float | None = None
    while connected.is_open and not state.is_finished:
        for received in connected.poll():
            _process(received, state, logs)
        now = time.monotonic()
        if not state.has_failed and not state.is_measured:
            state.hang = find_hang(state, limits.stall_seconds, now)
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
