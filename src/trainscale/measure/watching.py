"""Shows a run that another process measures, by its journal, its lock, and what Slurm says of its job."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ..cluster.allocation import JobStatus
from ..cluster.hosts import HostAccess
from ..errors import InputError, TrainscaleError
from ..launch.launchers.base import SshSettings
from ..launch.launchers.ssh import make_ssh_command
from ..launch.ssh_errors import explain_ssh_error
from ..record.batches import read_batches
from ..record.files import write_atomically
from ..record.journal import RUN, TRIALS, Journal, is_being_measured, read_run, read_trials
from ..record.run import RecordedDataset, RunInfo
from ..record.trial import MISSING, TrialRecord
from ..spec.config import AUTO, Config
from ..spec.data import SYNTHETIC_DATASET, Dataset
from ..spec.devices import AvailableDevices, Host
from ..spec.experiment import Experiment
from ..spec.plan import Plan
from ..spec.settings import SEARCH_LISTS, SettingValues
from ..worker.data.facts import PHOTOGRAPHS, SYNTHETIC, DatasetFacts
from ..worker.job import Device
from .batches import apply_searches
from .context import select_configs
from .measure import RunListener
from .order import NextTrial, choose_next_trial
from .submission import SlurmJob, SlurmUnreachable, read_status

_POLL_SECONDS = 0.5  # between reads of the journal
_STATUS_SECONDS = (1.0, 5.0)  # between questions to Slurm: short while the status changes
_ARRIVAL_SECONDS = 60.0  # for a shared file system to show here what was written there
_START_SECONDS = 60.0  # for the first answer of another host
_SILENT_SECONDS = 60.0
_END_SECONDS = 5.0

ShowTrials = Callable[[Plan, Journal], AbstractContextManager[RunListener]]


class FollowedRun:
    """A run as its directory shows it. ``planned`` is a plan of the same experiment."""

    def __init__(self, directory: Path, planned: Plan | None = None, retry_failed: bool = False) -> None:
        self.directory = directory
        self.records: list[TrialRecord] = []
        self.current: NextTrial | None = None  # that a listener knows of
        self._next: NextTrial | None = None
        self._planned = planned
        self._size = 0
        self._to_repeat: set[str] = set()  # failed trials that are not repeated yet
        self.read_new_records()
        if retry_failed:
            self._to_repeat = {record.trial.key for record in self.records if not record.ok}

    @property
    def has_begun(self) -> bool:
        """List the directory: a shared file system may remember for a minute that a file did not exist."""
        try:
            return RUN in os.listdir(self.directory)  # noqa: PTH208
        except OSError:
            return False

    @property
    def has_new_records(self) -> bool:
        return self.has_begun and self._read_size() != self._size

    def read_new_records(self) -> list[TrialRecord]:
        size = self._read_size()
        if size == self._size:
            return []
        before = {record.trial.key: record for record in self.records}
        self.records, self._size = read_trials(self.directory), size
        new = [record for record in self.records if before.get(record.trial.key) != record]
        self._to_repeat -= {record.trial.key for record in new}
        return new

    def _read_size(self) -> int:
        """Return the size of the journal. Opening it makes a shared file system ask its server."""
        try:
            with (self.directory / TRIALS).open("rb") as file:
                return os.fstat(file.fileno()).st_size
        except OSError:
            return 0

    @property
    def plan(self) -> Plan:
        missing = {record.trial.config.framework for record in self.records if record.status == MISSING}
        plan = make_plan_of_run(read_run(self.directory), self._planned)
        plan = select_configs(plan, lambda config: config.framework not in missing)
        return apply_searches(plan, read_batches(self.directory))

    def find_next_trial(self) -> NextTrial | None:
        return choose_next_trial(self.plan, [r for r in self.records if r.trial.key not in self._to_repeat])

    @property
    def is_complete(self) -> bool:
        return self.has_begun and self.find_next_trial() is None

    def wait_for_records(self, status: JobStatus) -> bool:
        """Return whether every trial has a record. After a completed job, wait for them."""
        deadline = time.monotonic() + (_ARRIVAL_SECONDS if status.state == "COMPLETED" else 0)
        while True:
            self.read_new_records()
            if self.has_begun and choose_next_trial(self.plan, self.records) is None:
                return True
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)

    def show(self, show_trials: ShowTrials) -> AbstractContextManager[RunListener]:
        # The journal has no descriptor, because only the run itself writes to it.
        self._view, self.current = Journal(self.directory, read_run(self.directory), -1, self.records), None
        return show_trials(self.plan, self._view)

    def report(self, listener: RunListener, is_measured: bool = True) -> bool:
        """Tell the listener what is new. Return whether no trial is left."""
        new = self.read_new_records()
        self._view.records = self.records
        for record in new:
            listener.trial_ends(record)
        if new or self._next is None:
            self._next = self.find_next_trial()
        if self._next is not None and self._next != self.current and is_measured:
            listener.trial_begins(self._next)
            self.current = self._next
        return self._next is None


def make_plan_of_run(run: RunInfo, planned: Plan | None = None) -> Plan:
    """Return the plan of a recorded run. ``planned`` is a plan of the same experiment.

    Without it, run.json alone decides. Then points that --explain adds are absent.
    """
    try:
        spec = run.read_spec()
        configs = tuple(Config.from_dict(values) for values in spec.series)
        ladders = tuple(tuple(values["ladder"]) for values in spec.series)
        most = max(max(ladder) for ladder in ladders)
    except (KeyError, TypeError, ValueError):
        most = 0
    if not most or spec.warmup is None or spec.steps is None:
        raise InputError(f"{RUN}: it does not name the series of the run with their ladders")
    values: SettingValues = {
        "warmup": spec.warmup,
        "steps": spec.steps,
        "budget": spec.budget,
        "until_interval": spec.until_interval,
        **({} if spec.repeats is None else {"repeats": spec.repeats}),
    }
    if planned is not None:
        experiment = planned.experiment.replace_values(**values)
        return replace(planned, experiment=experiment, configs=configs, ladders=ladders)
    # As many devices as the run had, on hosts without names. Servers that stand apart need further ones.
    config = configs[0]
    counts = spec.hosts or [2 * most + max(config.servers, 0)]
    hosts = tuple(
        Host(alias=f"host {number}", devices=tuple(Device(config.device, index) for index in range(count)))
        for number, count in enumerate(counts, 1)
    )
    available = AvailableDevices(config.device, hosts, config.cores_per_device, f"{sum(counts)} devices")
    dataset = SYNTHETIC_DATASET
    if config.data != SYNTHETIC:
        data = run.read_provenance().data or RecordedDataset()
        classes, sizes = data.classes or config.classes, (data.train or 0, data.valid or 0)
        facts = DatasetFacts(config.data, classes, config.channels, 0, *sizes, *PHOTOGRAPHS)
        dataset = Dataset(config.data, "", facts)
    experiment = Experiment.of(**values, search=None if spec.search is None else SEARCH_LISTS)
    return Plan(experiment, configs, ladders, available, dataset)


# ---- trainscale watch


@dataclass(frozen=True)
class LocalJournal:
    directory: Path

    def is_measured(self) -> bool:
        return is_being_measured(self.directory)


def watch_run(source: JournalSource, show_trials: ShowTrials, waits: bool = False) -> FollowedRun:
    """Show a run until no process measures it, or with ``waits`` until it is complete."""
    watched = FollowedRun(source.directory)
    # While the run still searches the largest batches that fit, its points are not known.
    while any(config.batch == AUTO for config in watched.plan.configs) and source.is_measured():
        time.sleep(_POLL_SECONDS)
    with watched.show(show_trials) as listener:
        while True:
            is_measured = source.is_measured()  # before the records: what is written until the lock is free is read
            is_complete = watched.report(listener, is_measured)
            if not is_measured and (is_complete or not waits):
                return watched
            time.sleep(_POLL_SECONDS)


# ---- a batch job that is followed from where it was submitted


def follow(job: SlurmJob, run: FollowedRun, say: Callable[[str], None], show_trials: ShowTrials) -> JobStatus:
    """Return how the job ended. A KeyboardInterrupt passes through, and the job goes on."""
    shortest, longest = _STATUS_SECONDS
    status, reported = JobStatus("PENDING"), ("", "", "")
    pause, next_question, is_silent = shortest, 0.0, False
    listener: RunListener | None = None

    with ExitStack() as display:

        def show() -> RunListener:
            if run.records:
                say(f"continuing: {len(run.records)} trials are in the journal")
            return display.enter_context(run.show(show_trials))

        while True:
            if time.monotonic() >= next_question:
                try:
                    status, is_silent = read_status(job), False
                except SlurmUnreachable as error:
                    if not is_silent:
                        say(f"{error}; the job is not affected, trying again")
                    is_silent = True
                now = (status.state, status.reason, status.nodes)
                pause = shortest if now != reported else min(longest, pause * 1.5)
                if now != reported and not status.is_over and not is_silent:
                    say(f"job {job.number}{_describe_status(status)}")
                reported, next_question = now, time.monotonic() + pause
            if status.is_over:
                break
            if status.is_waiting:  # again, if Slurm requeued it
                display.close()
                listener = None
            elif listener is None and status.is_running and run.has_begun:
                listener = show()
            if listener is not None:
                run.report(listener)
            time.sleep(_POLL_SECONDS)
        if listener is None and run.has_new_records:  # a short job
            listener = show()
        if listener is not None:
            run.report(listener)
    return status


def _describe_status(status: JobStatus) -> str:
    if status.is_running:
        return f" runs on {status.nodes}"
    if not status.is_waiting:
        return f": {status.state.lower().replace('_', ' ')}"
    reason = f": {status.reason}" if status.reason else ""
    start = f"; expected to start {status.start.replace('T', ' ')}" if status.start else ""
    return f" waits{reason}{start}"


# ---- the journal of a run on another host

# Every message is a line. After "file NAME BYTES" comes a small file, with a dot at its end because $(…) drops
# line breaks there. After "trials SENT COUNT" come the lines of the journal that follow the first SENT ones.
_SCRIPT = r"""LC_ALL=C; export LC_ALL  # lengths in bytes
sent=0
case $1 in "~/"*) folder=$HOME/${1#??} ;; *) folder=$1 ;; esac
cd -- "$folder" 2>/dev/null && [ -f run.json ] || { echo absent; exit 0; }
while :; do
    # Before the files, so that what is written until the lock is free is sent.
    state=free
    if [ -f trials.jsonl ]; then
        if ! command -v flock >/dev/null; then state=unknown
        elif ! flock -n -s trials.jsonl true; then state=held
        fi
    fi
    for name in run.json batches.json parity.json; do
        [ -f $name ] || continue
        text=$(cat $name; echo .)
        eval "before=\$${name%.*}"
        [ "$text" = "$before" ] && continue
        echo "file $name ${#text}"
        printf %s "$text"
        eval "${name%.*}=\$text"
    done
    lines=0
    [ -f trials.jsonl ] && lines=$(($(wc -l <trials.jsonl)))
    if [ $lines -ne $sent ]; then
        [ $lines -gt $sent ] || sent=0  # it was replaced
        echo "trials $sent $((lines - sent))"
        tail -n +$((sent + 1)) trials.jsonl | head -n $((lines - sent))
        sent=$lines
    fi
    echo "lock $state"
    sleep 1
done
"""


class RemoteJournal:
    """A copy of the journal of a run on another host, which one ssh connection keeps up to date.

    The host needs a shell, but not trainscale: a script there sends what is new once a second.
    """

    def __init__(self, host: Host, directory: str, settings: SshSettings) -> None:
        self._host = host
        self._remote_directory = directory
        argv = make_ssh_command(HostAccess(), settings, host)
        self._argv = [*argv, "--", host.name, shlex.join(["exec", "/bin/sh", "-s", "--", directory])]
        self._folder = tempfile.TemporaryDirectory(prefix="trainscale-watch-")

    @property
    def directory(self) -> Path:
        return Path(self._folder.name)

    def __enter__(self) -> RemoteJournal:
        self._errors = tempfile.TemporaryFile()
        with tempfile.TemporaryFile() as script:
            script.write(_SCRIPT.encode())
            script.seek(0)
            self._ssh = subprocess.Popen(self._argv, stdin=script, stdout=subprocess.PIPE, stderr=self._errors)
        try:
            self._read_round(_START_SECONDS)
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
        assert self._ssh.stdout is not None
        self._ssh.stdout.close()
        self._errors.close()
        self._folder.cleanup()

    def is_measured(self) -> bool:
        """Wait for the next round. On a host without flock, a run counts as measured."""
        return self._read_round(_SILENT_SECONDS) != b"free"

    def _read_round(self, seconds: float) -> bytes:
        """Write to the copy what is new, and return the state of the lock."""
        stream, trials = self._ssh.stdout, self.directory / TRIALS
        assert stream is not None
        is_silent = threading.Event()

        def give_up() -> None:
            is_silent.set()
            self._ssh.kill()

        timer = threading.Timer(seconds, give_up)
        timer.start()
        try:
            while line := stream.readline().split():
                kind, *values = line
                if kind == b"file":
                    content = stream.read(int(values[1]))
                    if len(content) == int(values[1]):  # the connection did not end
                        write_atomically(self.directory / values[0].decode(), content[:-1])
                elif kind == b"trials":
                    with trials.open("ab" if int(values[0]) else "wb") as file:
                        file.writelines(stream.readline() for _ in range(int(values[1])))
                elif kind == b"lock":
                    return values[0]
                elif kind == b"absent":
                    raise InputError(
                        f"{self._host.name}:{self._remote_directory}: no run was recorded there"
                        f" (there is no {RUN}); a relative path begins in the home directory"
                    )
        finally:
            timer.cancel()
        self._ssh.wait()
        if is_silent.is_set():
            raise TrainscaleError(f"{self._host.name}: no message for {seconds:.0f} s; the run there is not affected")
        self._errors.seek(0)
        error = explain_ssh_error(self._errors.read().decode(errors="replace"), self._host.name)
        remedy = f"\n  {error.remedy}" if error.remedy else ""
        raise TrainscaleError(f"{self._host.name}: {error.reason}{remedy}")


JournalSource = LocalJournal | RemoteJournal
