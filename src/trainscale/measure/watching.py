"""Shows a run that another process measures, by its journal, its lock and its Slurm job."""

from __future__ import annotations

import os
import shlex
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from ..cluster.allocation import JobStatus
from ..cluster.hosts import HostAccess
from ..errors import InputError, TrainscaleError
from ..launch.launchers.ssh import make_ssh_command
from ..launch.ssh_errors import explain_ssh_error
from ..record.journal import RUN, TRIALS, Journal, read_run, read_trials
from ..record.parity import FILE as PARITY
from ..record.run import RecordedDataset, RunInfo
from ..record.trial import MISSING, TrialRecord
from ..spec.config import AUTO, Config
from ..spec.data import SYNTHETIC_DATASET, Dataset
from ..spec.devices import AvailableDevices, Host
from ..spec.experiment import Experiment
from ..spec.groups import SshSettings
from ..spec.plan import Plan
from ..spec.settings import SEARCH_LISTS, SettingValues
from ..worker.data.facts import PHOTOGRAPHS, SYNTHETIC, DatasetFacts
from ..worker.job import Device
from ..worker.regular_files import open_regular
from .batches import FILE as BATCHES
from .batches import apply_searches, read_batches
from .context import select_configs
from .measure import RunListener
from .order import NextTrial, choose_next_trial
from .submission import SlurmJob, SlurmUnreachable, read_status

_POLL_SECONDS = 0.5  # between reads of the journal
_STATUS_SECONDS = (1.0, 5.0)  # between questions to Slurm: short while the status changes
_ARRIVAL_SECONDS = 60.0  # for a shared file system to show here what was written there
_SILENT_SECONDS = 60.0  # before a connection to another host is given up

ShowTrials = Callable[[Plan, Journal], AbstractContextManager[RunListener]]


class FollowedRun:
    """A run as its directory shows it. ``planned`` is a plan of the same experiment."""

    def __init__(self, directory: Path, planned: Plan | None = None, retry_failed: bool = False) -> None:
        self.directory = directory
        self.records: list[TrialRecord] = []
        self._current: NextTrial | None = None  # that a listener knows of
        self._next: NextTrial | None = None
        self._planned = planned
        self._size = -1  # read even an empty journal once: it may be no regular file
        self._to_repeat: set[str] = set()  # failed trials that are not repeated yet
        self.read_new_records()
        if retry_failed:
            self._to_repeat = {record.trial.key for record in self.records if not record.ok}

    @property
    def has_begun(self) -> bool:
        """List the directory: a shared file system may remember for a minute that no file was there."""
        try:
            return RUN in os.listdir(self.directory)  # noqa: PTH208
        except OSError:
            return False

    @property
    def has_new_records(self) -> bool:
        return self._read_size() != self._size

    def read_new_records(self) -> list[TrialRecord]:
        size = self._read_size()
        if size == self._size:
            return []
        before = {record.trial.key: record for record in self.records}
        # In place, because a display has this list too.
        self.records[:], self._size = read_trials(self.directory), size
        new = [record for record in self.records if before.get(record.trial.key) != record]
        self._to_repeat -= {record.trial.key for record in new}
        return new

    def _read_size(self) -> int:
        """Return the size of the journal. Opening it makes a shared file system ask its server."""
        try:
            with open_regular(self.directory / TRIALS) as file:
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
        done = [record for record in self.records if record.trial.key not in self._to_repeat]
        return choose_next_trial(self.plan, done)

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
        self._current = None
        # The journal has no descriptor, because only the run itself writes to it.
        return show_trials(self.plan, Journal(self.directory, read_run(self.directory), -1, self.records))

    def report(self, listener: RunListener, is_measured: bool = True) -> bool:
        """Tell the listener what is new. Return whether no trial is left."""
        new = self.read_new_records()
        for record in new:
            listener.trial_ends(record)
        if new or self._next is None:
            self._next = self.find_next_trial()
        if self._next is not None and self._next != self._current and is_measured:
            listener.trial_begins(self._next)
            self._current = self._next
        return self._next is None


def make_plan_of_run(run: RunInfo, planned: Plan | None = None) -> Plan:
    """Return the plan of a recorded run. ``planned`` is a plan of the same experiment.

    Without it, run.json alone decides. Then points that --explain adds are absent.
    """
    try:
        spec = run.read_spec()
        ladders = {Config.from_dict(values): tuple(values["ladder"]) for values in spec.series}
        most = max(map(max, ladders.values()))
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
        return replace(planned, experiment=experiment, ladders=ladders)
    # As many devices as the run had, on hosts without names. Servers that stand apart need more.
    config = next(iter(ladders))
    counts = spec.hosts or [2 * most + max(config.servers, 0)]
    hosts = []
    for number, count in enumerate(counts, 1):
        devices = tuple(Device(config.device, index) for index in range(count))
        hosts.append(Host(alias=f"host {number}", devices=devices))
    name, cores = f"{sum(counts)} devices", config.cores_per_device
    available = AvailableDevices(config.device, tuple(hosts), cores, name)
    dataset = SYNTHETIC_DATASET
    if config.data != SYNTHETIC:
        data = run.read_provenance().data or RecordedDataset()
        classes, sizes = data.classes or config.classes, (data.train or 0, data.valid or 0)
        facts = DatasetFacts(config.data, classes, config.channels, 0, *sizes, *PHOTOGRAPHS)
        dataset = Dataset(config.data, "", facts)
    experiment = Experiment.of(**values, search=None if spec.search is None else SEARCH_LISTS)
    return Plan(experiment, ladders, available, dataset)


# ---- trainscale watch


def watch_run(
    directory: Path, is_measured: Callable[[], bool], show_trials: ShowTrials, waits: bool = False
) -> FollowedRun:
    """Show a run until no process measures it, or with ``waits`` until it is complete."""
    watched = FollowedRun(directory)
    # While the run still searches the largest batches that fit, its points are not known.
    while any(config.batch == AUTO for config in watched.plan.configs) and is_measured():
        time.sleep(_POLL_SECONDS)
    with watched.show(show_trials) as listener:
        while True:
            goes_on = is_measured()  # before the records, so that the last one is read
            is_complete = watched.report(listener, goes_on)
            if not goes_on and (is_complete or not waits):
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
            if status.is_waiting:  # again, if Slurm requeued it
                display.close()
                listener = None
            # A short job may end before its run is seen to begin.
            elif listener is None and (
                run.has_new_records if status.is_over else status.state == "RUNNING" and run.has_begun
            ):
                if run.records:
                    say(f"continuing: {len(run.records)} trials are in the journal")
                listener = display.enter_context(run.show(show_trials))
            if listener is not None:
                run.report(listener)
            if status.is_over:
                return status
            time.sleep(_POLL_SECONDS)


def _describe_status(status: JobStatus) -> str:
    if status.state == "RUNNING":
        return f" runs on {status.nodes}"
    if not status.is_waiting:
        return f": {status.state.lower().replace('_', ' ')}"
    reason = f": {status.reason}" if status.reason else ""
    start = f"; expected to start {status.start.replace('T', ' ')}" if status.start else ""
    return f" waits{reason}{start}"


# ---- the journal of a run on another host

# After "lines NAME SENT COUNT" come the lines of a file that follow the first SENT ones.
_SCRIPT = r"""
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
        text=$(cat $name)
        eval "before=\$${name%.*}"
        [ "$text" = "$before" ] && continue
        echo "lines $name 0 $(($(printf '%s\n' "$text" | wc -l)))"
        printf '%s\n' "$text"
        eval "${name%.*}=\$text"
    done
    count=0
    [ -f trials.jsonl ] && count=$(($(wc -l <trials.jsonl)))
    if [ $count -ne $sent ]; then
        [ $count -gt $sent ] || sent=0  # it was replaced
        echo "lines trials.jsonl $sent $((count - sent))"
        tail -n +$((sent + 1)) trials.jsonl | head -n $((count - sent))
        sent=$count
    fi
    echo "lock $state"
    sleep 1
done
"""
_COPIED = (RUN, BATCHES, PARITY, TRIALS)


@contextmanager
def copy_journal(host: Host, directory: str, settings: SshSettings) -> Iterator[tuple[Path, Callable[[], bool]]]:
    """Yield a copy of a journal on another host, and a function that updates it and tells if the run goes on.

    The host needs only a shell: a script there sends what is new once a second, over one ssh connection.
    """
    shell = shlex.join(["exec", "/bin/sh", "-s", "--", directory])
    argv = [*make_ssh_command(HostAccess(), settings, host), "--", host.name, shell]
    with ExitStack() as stack:
        copy = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainscale-watch-")))
        script = stack.enter_context(tempfile.TemporaryFile())
        script.write(_SCRIPT.encode())
        script.seek(0)
        errors = stack.enter_context(tempfile.TemporaryFile())
        ours, theirs = socket.socketpair()  # unlike a pipe, it has a timeout
        stack.enter_context(ours)
        with theirs:
            process = subprocess.Popen(argv, stdin=script, stdout=theirs.fileno(), stderr=errors)
            ssh = stack.enter_context(process)
        stack.callback(ssh.kill)
        ours.settimeout(_SILENT_SECONDS)
        stream = stack.enter_context(ours.makefile("rb"))

        def read_round() -> bool:
            """Wait for the next round. On a host without flock, a run counts as measured."""
            try:
                while line := stream.readline():
                    match line.decode(errors="replace").split():
                        case ["lines", name, sent, count] if name in _COPIED:
                            with (copy / name).open("ab" if int(sent) else "wb") as file:
                                file.writelines(stream.readline() for _ in range(int(count)))
                        case ["lock", state]:
                            return state != "free"
                        case ["absent"]:
                            absent = f"no run was recorded there (there is no {RUN})"
                            remedy = "a relative path begins in the home directory"
                            raise InputError(f"{host.name}:{directory}: {absent}; {remedy}")
            except TimeoutError:
                silence = f"no message for {_SILENT_SECONDS:.0f} s"
                raise TrainscaleError(f"{host.name}: {silence}; the run there is not affected") from None
            ssh.wait()
            errors.seek(0)
            raise explain_ssh_error(errors.read().decode(errors="replace"), host.name)

        read_round()
        yield copy, read_round
