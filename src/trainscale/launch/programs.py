"""Runs a user's program on many hosts: prepares its folder there, starts every process, shows what they print, and ends
all when one fails or the workers are done. No process is left.
"""

from __future__ import annotations

import base64
import io
import json
import signal
import tarfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from ..errors import InputError, TrainscaleError
from ..spec.devices import Host
from ..worker.events import Exit, FolderState, LogLine
from ..worker.inspection.host import HostFacts, HostFactsRequest
from ..worker.job import WORKER, Task
from ..worker.keeper.program import FolderRequest
from .connected_hosts import ConnectedHosts, ConnectOptions
from .connection import HostError, select_causes
from .events import HostLost, ReceivedEvent, describe_exit
from .hosts import add_facts, decode_facts
from .launchers.base import ITS_PYTHON, ITS_START, Launcher
from .program_jobs import Program, ProgramCommand, ProgramRequest, build_program_jobs, count_ports
from .tasks import make_role_task, run_host_tasks

_PREPARE_SECONDS = 120.0
_NOT_COPIED = (".git", "__pycache__", ".venv")
_MOST_BYTES = 64 * 2**20  # of a folder to copy, compressed: both sides hold it in memory

INTERRUPTED, TIMED_OUT = 130, 124  # exit codes; the second is that of the program `timeout`
_LOST = 1

_SECONDS_AFTER_FAILURE = 3.0  # for the others to report what they saw, and to end by themselves
_SECONDS_AFTER_WORKERS = 5.0  # for servers to notice that all workers have left
_SECONDS_AFTER_SIGNAL = 10.0  # for a program after a signal to end: it may have something to save
_LONGEST_LINE = 65536  # characters: longer ones are shown in parts
_FOREVER_SECONDS = 10 * 365 * 86400.0

ShowLine = Callable[[Program, str, bool], None]  # a line of a program, and whether it is from standard error
ShowMessage = Callable[[str], None]


def prepare_hosts(launcher: Launcher, hosts: Sequence[Host], folder: str, archive: str | None = None) -> list[Host]:
    """Return the usable hosts, once all of them have the folder. ``archive`` is the folder's content to copy."""
    tasks = {
        host.name: [
            make_role_task(host.name, 0, "look", HostFactsRequest(folder=launcher.access.remote_dir)),
            make_role_task(host.name, 1, "program", FolderRequest(folder, archive)),
        ]
        for host in hosts
    }
    facts: dict[str, HostFacts] = {}
    problems: list[str] = []
    with launcher.connect(list(tasks), ConnectOptions(_PREPARE_SECONDS, tolerates_errors=True)) as connected:
        answers = run_host_tasks(connected, tasks, _PREPARE_SECONDS)
        errors = [answer for answer in answers.values() if isinstance(answer, HostError)]
        for name, answer in answers.items():
            if isinstance(answer, HostError):
                continue
            host_facts = decode_facts(answer[0], connected.find_connection(name))
            state = answer[1].find_last(FolderState)
            if isinstance(host_facts, HostError):
                errors.append(host_facts)
            elif state is None:
                errors.append(HostError(name, answer[1].last_line or "does not answer"))
            else:
                facts[name] = host_facts
                problems += [f"{name}: folder {folder} {state.problem}"] if state.problem else []
    if errors:
        raise TrainscaleError("\n".join(str(error) for error in select_causes(errors)))
    if problems:
        hint = "name a folder that every host has by --folder, or copy this one by --copy DIR"
        raise InputError("\n".join([*problems, f"  {hint}"]))
    return [add_facts(host, facts[host.name], launcher.access) for host in hosts]


def pack_folder(folder: Path) -> str:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as tar:
        for path in sorted(folder.iterdir()):
            tar.add(path, path.name, filter=lambda e: None if Path(e.name).name in _NOT_COPIED else e)
            if raw.tell() > _MOST_BYTES:
                raise InputError(
                    f"copy: {folder} is larger than {_MOST_BYTES // 2**20} MiB, compressed; keep data elsewhere,"
                    " or share the folder and name it by --folder"
                )
    return base64.b64encode(raw.getvalue()).decode()


class ProgramRun:
    """The state of the programs. The run is over when all workers have ended, or the chief, if there is one."""

    def __init__(
        self, programs: Sequence[Program], show_line: ShowLine, show_message: ShowMessage, chief: bool = False
    ) -> None:
        self.programs = programs
        self.exit_code = 0
        self.failure = ""
        self.is_ending = False  # programs that end now received a signal, which is no failure
        self.show_message = show_message
        self._show_line = show_line
        self._leaders = [n for n, program in enumerate(programs) if program.role == WORKER and not (chief and n)]
        self._running = set(range(len(programs)))
        self._line_parts: dict[tuple[int, str], str] = {}

    @property
    def is_over(self) -> bool:
        return bool(self.failure) or not self._running.intersection(self._leaders)

    @property
    def running(self) -> list[Program]:
        return [self.programs[number] for number in sorted(self._running)]

    def update(self, received: ReceivedEvent) -> None:
        match received.event:
            case LogLine() as line if received.rank is not None and 0 <= received.rank < len(self.programs):
                # A long line arrives in parts. Of a progress bar that overwrites itself, show the last state.
                text = self._line_parts.pop((received.rank, line.stream), "") + line.text
                if line.more and len(text) < _LONGEST_LINE:
                    self._line_parts[received.rank, line.stream] = text
                else:
                    text = text.rstrip("\r").rpartition("\r")[2]
                    self._show_line(self.programs[received.rank], text, line.stream == "stderr")
            case Exit(code=code) if received.rank in self._running:
                self._running.discard(received.rank)
                program = self.programs[received.rank]
                if code != 0:
                    reason = f"{program.name} on {program.host.name} {describe_exit(code)}"
                    self.fail(128 - code if code < 0 else code, reason)
            case HostLost(culprit=culprit, stderr_tail=tail):
                host = culprit or received.host
                lost = {number for number in self._running if self.programs[number].host.name == host}
                self._running -= lost
                if lost:
                    lines = [line.strip() for line in tail if line.strip()]
                    self.fail(_LOST, f"{host} is lost: {lines[-1] if lines else 'it sends nothing any more'}")

    def fail(self, exit_code: int, reason: str) -> None:
        """Note a failure. Only the first one counts."""
        if not self.failure and not self.is_ending:
            self.exit_code, self.failure = exit_code, reason
            self.show_message(reason)


def run_programs(
    launcher: Launcher,
    run: ProgramRun,
    request: ProgramRequest,
    command: ProgramCommand,
    timeout_seconds: float | None = None,
) -> int:
    """Return the exit code of the first program that failed, or 0. KeyboardInterrupt is passed on to the programs."""
    port_counts = count_ports(run.programs)
    with launcher.connect(list(port_counts)) as connected:
        jobs = build_program_jobs(request, run.programs, connected.find_ports(port_counts), command)
        tasks = [
            Task(program.host.name, rank, [ITS_PYTHON, ITS_START, "program"], json.dumps(vars(job)))
            for rank, (program, job) in enumerate(zip(run.programs, jobs, strict=True))
        ]
        try:
            connected.start(tasks, _FOREVER_SECONDS)
            _follow(connected, run, timeout_seconds)
            # Let the other programs end by themselves, then send them a signal. The keepers end those that do not.
            _wait(connected, run, _SECONDS_AFTER_FAILURE if run.failure else _SECONDS_AFTER_WORKERS)
            if connected.is_open and run.running:
                run.show_message(f"ending what goes on: {', '.join(program.label for program in run.running)}")
                _send_signal(connected, run, signal.SIGTERM)
        except KeyboardInterrupt:
            with suppress(KeyboardInterrupt):  # a second Ctrl-C stops the waiting
                run.show_message("interrupted; waiting for the programs to end (Ctrl-C again: do not wait)")
                _send_signal(connected, run, signal.SIGINT)
            return INTERRUPTED
        finally:
            run.is_ending = True
            for received in connected.drain():
                run.update(received)
    return run.exit_code


def _follow(connected: ConnectedHosts, run: ProgramRun, timeout_seconds: float | None) -> None:
    """Process events until something fails, the leaders are done, or the time is up."""
    deadline = float("inf") if timeout_seconds is None else time.monotonic() + timeout_seconds
    while connected.is_open and run.running and not run.is_over:
        if time.monotonic() > deadline:
            run.fail(TIMED_OUT, f"time is up after {timeout_seconds:g} s")
            return
        for received in connected.poll():
            run.update(received)
    if not run.is_over:  # the keepers assumed that this machine was dead
        run.fail(_LOST, "the hosts ended their programs: they had no sign of life from here")


def _send_signal(connected: ConnectedHosts, run: ProgramRun, number: signal.Signals) -> None:
    run.is_ending = True
    connected.send_signal(int(number))
    _wait(connected, run, _SECONDS_AFTER_SIGNAL)


def _wait(connected: ConnectedHosts, run: ProgramRun, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while connected.is_open and run.running and time.monotonic() < deadline:
        for received in connected.poll():
            run.update(received)
