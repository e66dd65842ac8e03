"""Watches a run that another process measures, by its journal and the lock on it. It only reads.

What the run measures now follows from its plan and its records, as it does for the run itself. The plan is made from
run.json alone, because the machine that measures may be another one."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from ..cluster.hosts import HostAccess
from ..errors import InputError, TrainscaleError
from ..launch.launchers.ssh import SshSettings, make_ssh_command
from ..launch.ssh_errors import explain_ssh_error
from ..record.journal import RUN, TRIALS, Journal, is_being_measured, read_run
from ..record.run import RecordedDataset, RecordedSpec, RunInfo
from ..record.trial import TrialRecord
from ..spec.config import AUTO, Config
from ..spec.data import SYNTHETIC_DATASET, Dataset
from ..spec.devices import AvailableDevices, Host
from ..spec.experiment import Experiment
from ..spec.plan import Plan
from ..spec.settings import SEARCH_LISTS, SettingValues
from ..worker.data.facts import PHOTOGRAPHS, SYNTHETIC, DatasetFacts
from ..worker.job import Device
from .following import FollowedRun
from .measure import RunListener
from .order import NextTrial

_POLL_SECONDS = 0.5

ShowTrials = Callable[[Plan, Journal], AbstractContextManager[RunListener]]


class JournalSource(Protocol):
    """Where the journal of a watched run is. ``directory`` holds run.json and trials.jsonl, or a copy of them."""

    @property
    def directory(self) -> Path: ...

    def is_measured(self) -> bool:
        """Return whether a process measures there now. Raises TrainscaleError if that can no longer be known."""


@dataclass(frozen=True)
class LocalJournal:
    directory: Path

    def is_measured(self) -> bool:
        return is_being_measured(self.directory)


@dataclass(frozen=True)
class WatchedEnd:
    """How the watched run was left: complete, or stopped before all its trials were measured."""

    run: RunInfo
    records: tuple[TrialRecord, ...]
    is_complete: bool


def watch_run(source: JournalSource, show_trials: ShowTrials, waits: bool = False) -> WatchedEnd:
    """Show the trials of a run until no process measures it.

    ``waits``: go on until the run is complete, for a run that is not measured all the time, or on a host whose locks
    are not seen here.
    """
    run = read_run(source.directory)
    watched = FollowedRun(source.directory, make_plan_of_run(run), retry_failed=False)
    _wait_for_batches(source, watched)
    # Without a descriptor, because only the run itself writes to its journal.
    journal = Journal(source.directory, run, -1, watched.records)
    with show_trials(watched.plan, journal) as listener:
        current: NextTrial | None = None
        while True:
            is_measured = source.is_measured()  # before the records: what is written until the lock is free is read
            new = watched.read_new_records()
            journal.records = watched.records
            for record in new:
                listener.trial_ends(record)
            step = watched.find_next_trial()
            if step is not None and step != current and is_measured:
                listener.trial_begins(step)
                current = step
            if not is_measured and (step is None or not waits):
                return WatchedEnd(run, tuple(watched.records), step is None)
            time.sleep(_POLL_SECONDS)


def _wait_for_batches(source: JournalSource, watched: FollowedRun) -> None:
    """Wait while the run still searches the largest batches that fit: before that, its points are not known."""
    while any(config.batch == AUTO for config in watched.plan.configs) and source.is_measured():
        time.sleep(_POLL_SECONDS)


# ---- the plan of a run, from run.json


def make_plan_of_run(run: RunInfo) -> Plan:
    """Return the plan of a recorded run. What --explain adds beside the ladders is not recorded, so it is left out."""
    try:
        spec = run.read_spec()
        configs = tuple(Config.from_dict(values) for values in spec.series)
        ladders = tuple(tuple(values["ladder"]) for values in spec.series)
        most = max(max(ladder) for ladder in ladders)
        values = _read_measurement(spec)
    except (KeyError, TypeError, ValueError):
        message = f"{RUN}: it does not name the series of the run with their ladders, so what is left is unknown"
        raise InputError(message) from None
    return Plan(
        Experiment.of(**values), configs, ladders, _make_devices(spec, configs[0], most), _make_dataset(run, configs[0])
    )


def _read_measurement(spec: RecordedSpec) -> SettingValues:
    """Return the settings that decide which trial comes next."""
    if spec.warmup is None or spec.steps is None:
        raise ValueError("the steps of a trial are not recorded")
    return {
        "warmup": spec.warmup,
        "steps": spec.steps,
        "budget": spec.budget,
        "until_interval": spec.until_interval,
        "search": None if spec.search is None else SEARCH_LISTS,
        **({} if spec.repeats is None else {"repeats": spec.repeats}),
    }


def _make_devices(spec: RecordedSpec, config: Config, most: int) -> AvailableDevices:
    """Return as many devices as the run had, on hosts without names. Servers that stand apart need further ones."""
    counts = spec.hosts or [2 * most + max(config.servers, 0)]
    hosts = tuple(
        Host(alias=f"host {number}", devices=tuple(Device(config.device, index) for index in range(count)))
        for number, count in enumerate(counts, 1)
    )
    return AvailableDevices(config.device, hosts, config.cores_per_device, f"{sum(counts)} devices")


@dataclass(frozen=True)
class _RecordedData(Dataset):
    """A data set of which only what run.json says is known. Its files may be on another machine."""

    recorded: DatasetFacts

    def read_facts(self) -> DatasetFacts:
        return self.recorded


def _make_dataset(run: RunInfo, config: Config) -> Dataset:
    if config.data == SYNTHETIC:
        return SYNTHETIC_DATASET
    data = run.read_provenance().data or RecordedDataset()
    counts = (data.train or 0, data.valid or 0)
    facts = DatasetFacts(config.data, data.classes or config.classes, config.channels, 0, *counts, *PHOTOGRAPHS)
    return _RecordedData(config.data, "", facts)


_START_SECONDS = 60.0
_SILENT_SECONDS = 60.0
_END_SECONDS = 5.0

# Every message is a line; after «file NAME BYTES» and «more BYTES» come as many bytes. LC_ALL=C: lengths are in bytes.
_SCRIPT = r"""LC_ALL=C; export LC_ALL
case $1 in "~/"*) folder=$HOME/${1#??} ;; *) folder=$1 ;; esac
cd -- "$folder" 2>/dev/null && [ -f run.json ] || { echo absent; exit 0; }
run= batches= parity= sent=0
while :; do
    for name in run batches parity; do
        [ -f $name.json ] || continue
        text=$(cat $name.json)
        eval "before=\$$name"
        if [ "$text" != "$before" ]; then
            echo "file $name.json ${#text}"
            printf %s "$text"
            eval "$name=\$text"
        fi
    done
    if [ -f trials.jsonl ]; then
        if command -v flock >/dev/null; then
            if flock -n -s trials.jsonl true; then state=free; else state=held; fi
        else
            state=unknown
        fi
        size=$(($(wc -c <trials.jsonl)))
        [ $size -lt $sent ] && { echo again; sent=0; }
        # Only complete lines: an incomplete one may be cut off when the run is continued.
        lines=$(tail -c +$((sent + 1)) trials.jsonl | head -c $((size - sent)) | wc -l)
        if [ $lines -gt 0 ]; then
            new=$(($(tail -c +$((sent + 1)) trials.jsonl | head -n $lines | wc -c)))
            echo "more $new"
            tail -c +$((sent + 1)) trials.jsonl | head -c $new
            sent=$((sent + new))
        fi
    else
        state=free
    fi
    echo "lock $state"
    sleep 1
done
"""


class RemoteJournal:
    """A copy of the journal of a run on another host, which one ssh connection keeps up to date.

    The host needs a shell and the usual tools, but not trainscale. A small script there sends what is new once a
    second, and ends when the connection does. Use this in a with block: entering it waits until the copy is complete.
    """

    def __init__(self, host: Host, directory: str, settings: SshSettings) -> None:
        self._host = host
        self._remote_directory = directory
        argv = make_ssh_command(HostAccess(), settings, host)
        self._argv = [*argv, "--", host.name, shlex.join(["exec", "/bin/sh", "-s", "--", directory])]
        self._folder = tempfile.TemporaryDirectory(prefix="trainscale-watch-")
        self._news = threading.Condition()
        self._rounds = 0  # how often the host has sent all that is new
        self._lock_state = ""
        self._is_absent = self._is_over = False

    @property
    def directory(self) -> Path:
        return Path(self._folder.name)

    def __enter__(self) -> RemoteJournal:
        self._errors = tempfile.TemporaryFile()
        self._ssh = subprocess.Popen(self._argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)
        assert self._ssh.stdin is not None
        assert self._ssh.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._ssh.stdout,), daemon=True)
        self._reader.start()
        try:
            self._ssh.stdin.write(_SCRIPT.encode())
            self._ssh.stdin.close()
        except BrokenPipeError:
            pass  # ssh has ended; its messages say why
        try:
            self._wait_for_round(1, _START_SECONDS)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ssh.terminate()
        try:
            self._ssh.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            self._ssh.kill()
            self._ssh.wait()
        self._reader.join(_END_SECONDS)
        if self._ssh.stdout:
            self._ssh.stdout.close()
        self._errors.close()
        self._folder.cleanup()

    def is_measured(self) -> bool:
        """Wait for the next round. On a host without the command flock, a run counts as measured."""
        self._wait_for_round(self._rounds + 1, _SILENT_SECONDS)
        return self._lock_state != "free"

    def _wait_for_round(self, number: int, seconds: float) -> None:
        with self._news:
            self._news.wait_for(lambda: self._rounds >= number or self._is_over, seconds)
        if self._is_absent:
            raise InputError(
                f"{self._host.name}:{self._remote_directory}: no run was recorded there (there is no {RUN});"
                " a relative path begins in the home directory"
            )
        if self._rounds >= number:
            return
        if not self._is_over:
            raise TrainscaleError(f"{self._host.name}: no message for {seconds:.0f} s; the run there is not affected")
        self._ssh.wait()
        self._errors.seek(0)
        error = explain_ssh_error(self._errors.read().decode(errors="replace"), self._host.name)
        remedy = f"\n  {error.remedy}" if error.remedy else ""
        raise TrainscaleError(f"{self._host.name}: {error.reason}{remedy}")

    def _read(self, stream: IO[bytes]) -> None:
        """Write what arrives to the copy, until the connection ends."""
        while line := stream.readline().split():
            kind = line[0]
            if kind == b"file":
                (self.directory / line[1].decode()).write_bytes(stream.read(int(line[2])))
            elif kind == b"again":
                (self.directory / TRIALS).write_bytes(b"")
            elif kind == b"more":
                with (self.directory / TRIALS).open("ab") as file:
                    file.write(stream.read(int(line[1])))
            elif kind == b"lock":
                self._lock_state = line[1].decode()
                self._notify(rounds=1)
            elif kind == b"absent":
                self._is_absent = True
        self._notify(is_over=True)

    def _notify(self, rounds: int = 0, is_over: bool = False) -> None:
        with self._news:
            self._rounds += rounds
            self._is_over = is_over
            self._news.notify_all()
