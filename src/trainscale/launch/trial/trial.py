"""One trial: starts its processes, passes their events to state.py, ends all of them, and returns the record."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

from ...record.trial import IMAGES, LOST, OK, REFUSED, Failure, ServerResult, TrialRecord
from ...spec.config import Config, Trial
from ...spec.devices import LOOPBACK, AvailableDevices, Slot, place_processes
from ...worker import models
from ...worker.config import ALLOCATORS
from ...worker.events import LogLine
from ...worker.frameworks.catalog import FRAMEWORKS, WITH_SERVERS
from ...worker.job import SCHEDULER, SERVER, WORKER, Device, Job, Measure, PluginReference, Task
from ...worker.sample import Report
from ..connected_hosts import ConnectedHosts
from ..connection import READY_SECONDS, HostError, NoFreePorts, ReceivedEvent
from ..launchers.base import ITS_START, Launcher
from .state import TrialState, find_failure, find_hang

_MOST_OUTPUT = 16 * 2**20  # characters in the log of a rank

HostPorts = Mapping[str, Sequence[int]]  # free ports by the name of their host

_SECONDS_AFTER_FAILURE = 2.0  # the first error is not always the cause
# Some frameworks wait for their peers at exit: so long for the next rank to leave, and so long in all.
_SECONDS_TO_LEAVE, _MOST_SECONDS_TO_LEAVE = 15.0, 60.0

_MOST_OPEN = 64  # a trial may have more ranks than this process may have open files

Watcher = Callable[[TrialState], None]


# ---- the jobs: every process with its host and device, and the addresses and ports of all


@dataclass(frozen=True)
class TrialSettings:
    """How a trial is run: what it needs besides its config, its slots and its ports."""

    measure: Measure
    seed: int
    pythons: Mapping[str, str]  # of each framework, for hosts that have none of their own
    timeout_seconds: float = 1800.0
    stall_seconds: float = 180.0  # without progress
    logs: Path | None = None  # the folder of its logs
    data_dir: str = ""
    save_weights: Path | None = None  # a folder for the weights after the last step
    memory_share: float = 0.0  # of a host's free memory, for a worker; 0: no limit
    witness: bool = False  # whether the ranks report their first steps
    explain: bool = False  # whether they measure after the window what an explanation needs
    keeps_compiled: bool = True  # whether compiled programs are kept for later trials


def place_trial(trial: Trial, available: AvailableDevices) -> list[Slot]:
    """Return the slot of every process of the trial, in order of rank."""
    config = trial.config
    has_scheduler = FRAMEWORKS[config.framework].scheduler and config.strategy in WITH_SERVERS
    return place_processes(config, trial.devices, available, int(has_scheduler))


def describe_device(device: Device) -> str:
    """Return the name of a device; empty for a process that may use any core."""
    if device.kind == "cuda":
        return f"GPU {device.index}"
    first, *others = device.cores or (None,)
    if first is None:
        return ""
    return f"cores {first}–{others[-1]}" if others else f"core {first}"


def count_ports(slots: Sequence[Slot]) -> dict[str, int]:
    """Each host needs one port a process, the first also one where the workers meet."""
    counts = Counter(slot.host.name for slot in slots)
    counts[slots[0].host.name] += 1
    return counts


def build_tasks(trial: Trial, slots: Sequence[Slot], ports: HostPorts, settings: TrialSettings) -> list[Task]:
    """Return them in order of rank. ``ports``: as ``count_ports`` says."""
    framework, is_sampled = trial.config.framework, not trial.config.trains_epochs
    return [
        Task(
            slot.host.name,
            job.rank,
            [slot.host.pythons.get(framework) or settings.pythons[framework], ITS_START, "rank"],
            job.to_json(),
            defaults=ALLOCATORS[trial.config.allocator],
            uses_gpu=slot.device.kind == "cuda",
            # Training to an accuracy has no window: its GPU's state is not sampled.
            gpu=slot.device.index if slot.device.kind == "cuda" and job.role == WORKER and is_sampled else None,
            most_output=_MOST_OUTPUT,
        )
        for job, slot in zip(build_jobs(trial, slots, ports, settings), slots, strict=True)
    ]


def build_jobs(trial: Trial, slots: Sequence[Slot], ports: HostPorts, settings: TrialSettings) -> list[Job]:
    config, workers = trial.config, trial.devices
    free_ports = {host: list(numbers) for host, numbers in ports.items()}
    rendezvous_port = free_ports[slots[0].host.name].pop()
    rank_ports = tuple(free_ports[slot.host.name].pop(0) for slot in slots)
    python_path, interface = (str(Path.cwd()),), find_loopback_interface()
    host_count = len({slot.host.name for slot in slots})
    is_distributed, servers = host_count > 1, config.count_servers(host_count)
    # On one host all messages stay inside it, whatever networks it has.
    addresses = tuple(slot.host.address if is_distributed else LOOPBACK for slot in slots)
    secret, plugins = secrets.token_hex(16), list_plugins(config)
    return [
        Job(
            role=WORKER if rank < workers else SERVER if rank < workers + servers else SCHEDULER,
            rank=rank,
            workers=workers,
            servers=servers,
            addresses=addresses,
            ports=rank_ports,
            rendezvous_port=rendezvous_port,
            device=slot.device,
            config=config,
            batch=config.batch_per_device(workers),
            measure=settings.measure,
            interface=slot.host.interface if is_distributed else interface,
            python_path=python_path,
            seed=settings.seed,
            save_weights=str(settings.save_weights) if settings.save_weights else None,
            plugins=plugins,
            data_dir=settings.data_dir,
            witness=settings.witness,
            explain=settings.explain,
            keeps_compiled=settings.keeps_compiled,
            secret=secret,
            # Servers hold only the weights, which do not grow with the batch.
            memory_share=settings.memory_share if rank < workers else 0.0,
        )
        for rank, slot in enumerate(slots)
    ]


def list_plugins(config: Config) -> tuple[PluginReference, ...]:
    model = models.resolve(config.model)
    plugins = (FRAMEWORKS[config.framework].plugin, model.plugin if model else None)
    return tuple(plugin for plugin in plugins if plugin)


def find_loopback_interface() -> str | None:
    """Return the loopback interface. Without it, frameworks might leave the machine."""
    names = [name for _, name in socket.if_nameindex()]
    return next((name for name in ("lo", "lo0") if name in names), None)


# ---- its processes


class PortTaken(Exception):
    """Another program took a port that had been free; other ports may be."""


def supervise_trial(
    trial: Trial,
    slots: Sequence[Slot],
    settings: TrialSettings,
    launcher: Launcher,
    watch: Watcher = lambda _: None,
) -> TrialRecord:
    started, began = datetime.now(UTC).isoformat(timespec="seconds"), time.monotonic()
    port_counts, ready_seconds = count_ports(slots), min(READY_SECONDS, settings.timeout_seconds)
    try:
        with launcher.connect(list(port_counts), ready_seconds) as connected:
            tasks = build_tasks(trial, slots, connected.find_ports(port_counts), settings)
            places = [(slot.host.name, describe_device(slot.device)) for slot in slots]
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
        failure = Failure(kind, str(error), host="" if launcher.local else error.host)
        seconds = time.monotonic() - began
        return TrialRecord(trial, kind, started, seconds, hosts=len(port_counts), failure=failure)
    if state.is_port_taken:
        raise PortTaken
    record = build_record(state, started, time.monotonic() - began)
    return replace(record, notes=(*record.notes, *logs.notes))


def _follow(
    connected: ConnectedHosts, state: TrialState, logs: RankLogs, settings: TrialSettings, watch: Watcher
) -> None:
    """Return when the trial is over, has failed a while ago, or ranks do not leave."""
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
            most = state.measured_at + _MOST_SECONDS_TO_LEAVE
            if now > min(state.last_leave + _SECONDS_TO_LEAVE, most):
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
        # The driver may miss what an allocator returns at once.
        if peak is not None and allocated is not None and peak < allocated:
            seen = f"saw {peak} bytes where the allocator once had {allocated}"
            note, peak = f"NVML, asked five times a second, {seen}", None
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
        self._files: dict[int, IO[str]] = {}  # those that are open

    def __enter__(self) -> RankLogs:
        return self

    def __exit__(self, *_: object) -> None:
        for file in self._files.values():
            with suppress(OSError):  # of lines that could not be written before
                file.close()

    def write(self, rank: int, text: str) -> None:
        """If a line cannot be written, ``notes`` says so, and the rest is left out."""
        if self._folder is None or self.notes:
            return
        path = self._folder / f"{self._trial.key}.rank{rank}.log"
        try:
            if rank not in self._files:
                if len(self._files) >= _MOST_OPEN:
                    self._files.pop(next(iter(self._files))).close()
                if not self._begun:
                    self._folder.mkdir(parents=True, exist_ok=True)
                # A link in its place may lead out of the run's folder: do not follow it.
                mode = os.O_APPEND if rank in self._begun else os.O_TRUNC
                flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | mode
                self._files[rank] = os.fdopen(os.open(path, flags, 0o666), "w", buffering=1)
                self._begun.add(rank)
            self._files[rank].write(text + "\n")
        except OSError as error:
            self.notes = (f"the logs end early: {path}: {error.strerror}",)
