"""The keeper: one per host and trial. It starts the tasks, relays what they print, and leaves no process behind.

It reads the requests of requests.py from its standard input. When that input closes, when the deadline passes, or when
it receives a signal to end, it ends every process that it started, and all their descendants. So nobody has to clean up
after a dead controller, a closed ssh or a Ctrl-C. If the controller needs the host again, the keeper stays for further
tasks.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import Any

from ..emitter import encode
from ..events import LIMIT, MARK, Deadline, End, Event, Exit, GpuFacts, LogLine, Ports, ReportPiece
from ..inspection.gpus import GpuMemory, GpuSampler
from ..job import Task
from ..listening import find_free_ports
from ..sample import GpuState
from .leased_host import end_with_parent
from .requests import EndTasksRequest, KeeperInput, PortsRequest, SignalRequest, TasksRequest

_PR_SET_CHILD_SUBREAPER = 36
_TAIL_LINES = 20
_LOG_PIECE = LIMIT // 8  # characters of a printed line: JSON may need six bytes for one
_REPORT = f'"kind":"{ReportPiece.kind}"'
_LONGEST_IN_TAIL = 1000  # characters
_LONGEST_LINE = 65536  # bytes: longer ones are passed on in parts. Events are much shorter.
_READS_PER_TURN = 16  # of up to 64 KiB each, of one stream
_CANNOT_START = 127  # the exit code that shells use
_START = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "start.py")  # noqa: PTH100, PTH118, PTH120
_SUBSTITUTES = {"PYTHON": sys.executable, "START": _START}  # see Task


@dataclass(frozen=True)
class HostCounters:
    """Counters since the host started. Their differences show what else ran on it during a trial. None where the system
    does not report a value.
    """

    busy_seconds: float | None  # CPU time of all processes, and of other virtual machines on this one's cores
    waited_seconds: float | None  # in which some process, ours included, had work but no core (the kernel's PSI)
    kernel_kills: int  # because memory ran out

    @classmethod
    def read(cls) -> HostCounters:
        busy_seconds = waited_seconds = None
        kernel_kills = 0
        try:
            with open("/proc/stat") as file:  # noqa: PTH123
                ticks = [int(value) for value in file.readline().split()[1:9]]
            idle, waiting_for_disks = ticks[3:5]
            # Stolen time is part of the sum: in it a hypervisor gave a core to another virtual machine.
            busy_seconds = (sum(ticks) - idle - waiting_for_disks) / os.sysconf("SC_CLK_TCK")
        except (OSError, ValueError):
            pass
        try:
            with open("/proc/pressure/cpu") as file:  # noqa: PTH123
                waited_seconds = int(file.readline().rpartition("total=")[2]) / 1e6
        except (OSError, ValueError):
            pass
        try:
            with open("/proc/vmstat") as file:  # noqa: PTH123
                kernel_kills = next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
        except (OSError, StopIteration):
            pass
        return cls(busy_seconds, waited_seconds, kernel_kills)


class RunningTask:
    """The process of a task, and the end of what it has printed."""

    def __init__(self, task: Task) -> None:
        self.rank = task.rank
        self.uses_gpu = task.uses_gpu
        self.gpu = task.gpu
        self.gpu_state: GpuState | None = None  # in the rank's window, when that is over
        self.tail: list[str] = []
        self.exited = False
        self.output_left = task.most_output  # characters that may still be relayed; None: any number
        self._buffers: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.streams: dict[str, int] = {}
        # A session of its own, so that one signal reaches the process and all its children.
        self.popen = subprocess.Popen(
            [_SUBSTITUTES.get(argument, argument) for argument in task.command],
            cwd=task.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**task.defaults, **os.environ, **task.environment},
            start_new_session=True,
            # Also while the program starts, it must not outlive a keeper that is killed.
            preexec_fn=functools.partial(end_with_parent, signal.SIGKILL, os.getpid()),
        )
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(task.document.encode() + b"\n")
            self.popen.stdin.close()
        except BrokenPipeError:
            pass  # it ended at once; its exit code and its log say why
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        for name, stream in (("stdout", self.popen.stdout), ("stderr", self.popen.stderr)):
            self.streams[name] = stream.fileno()
            os.set_blocking(stream.fileno(), False)

    def poll_exit_code(self) -> int | None:
        """Return None while it runs. The process is not reaped, so its id and its group's cannot be reused."""
        status = os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if status is None:
            return None
        return status.si_status if status.si_code == os.CLD_EXITED else -status.si_status

    def add_output(self, stream: str, data: bytes) -> list[tuple[str, bool]]:
        """Return the lines that the data completes, and for each whether it goes on: a very long line comes in parts.

        No data means the end: return what remains.
        """
        *lines, remainder = (self._buffers[stream] + data).split(b"\n")
        parts = [(line, False) for line in lines]
        if not data and remainder:
            parts.append((remainder, False))
            remainder = b""
        elif len(remainder) > _LONGEST_LINE:
            # Cut before the last character of UTF-8 text, because it may be incomplete; at the end, if this is no text.
            last = range(len(remainder) - 1, len(remainder) - 5, -1)
            end = next((n for n in last if remainder[n] & 0xC0 != 0x80), len(remainder))
            parts.append((remainder[:end], True))
            remainder = remainder[end:]
        self._buffers[stream] = remainder
        return [(part.decode(errors="replace").rstrip("\r"), goes_on) for part, goes_on in parts]

    def send_signal(self, number: int) -> None:
        """Send a signal to the process and all its children."""
        try:
            os.killpg(self.popen.pid, number)
        except (ProcessLookupError, PermissionError):
            pass


class Keeper:
    def __init__(self, request: TasksRequest, requests: KeeperInput) -> None:
        self._selector = selectors.DefaultSelector()
        self._running: list[RunningTask] = []
        self._request = request
        self._deadline = time.monotonic() + request.deadline_seconds
        self._requests = requests
        self._gpus = GpuMemory()
        self._gpu_states = GpuSampler()

    def run(self) -> int:
        """Run the tasks. Return the number of the signal that ended the keeper, or 0."""
        began, before, cpu_before = time.monotonic(), HostCounters.read(), _read_children_cpu_seconds()
        self._selector.register(0, selectors.EVENT_READ, None)
        signal_number = 0
        try:
            for task in self._request.tasks:
                self._start(task)
            self._relay()
        except _EndRequested as request:
            signal_number = request.number
        finally:
            self.end()
        after = HostCounters.read()
        _send(
            End(
                seconds=time.monotonic() - began,
                own_cpu_seconds=_read_children_cpu_seconds() - cpu_before,
                machine_busy_seconds=_subtract(before.busy_seconds, after.busy_seconds),
                waited_seconds=_subtract(before.waited_seconds, after.waited_seconds),
                kernel_kills=after.kernel_kills - before.kernel_kills,
                signal=signal_number or None,
            )
        )
        return signal_number

    def _start(self, task: Task) -> None:
        try:
            running = RunningTask(task)
        except OSError as error:
            _send(Exit(_CANNOT_START, f"cannot start {task.command[0]}: {error.strerror}"), task.rank)
            return
        self._running.append(running)
        if running.uses_gpu:
            self._gpus.watch(running.rank, running.popen.pid)
        if running.gpu is not None:
            self._gpu_states.watch(running.rank, running.gpu)
        for name, descriptor in running.streams.items():
            self._selector.register(descriptor, selectors.EVENT_READ, (running, name))

    def _relay(self) -> None:
        """Relay output until every task has exited, the deadline passes, or the controller is gone."""
        silence_seconds = self._request.silence_seconds
        while not all(running.exited for running in self._running):
            if time.monotonic() > self._deadline:
                _send(Deadline(self._request.deadline_seconds))
                return
            for key, _ in self._selector.select(timeout=0.2):
                if key.data is not None:
                    self._relay_output(*key.data)
                else:
                    self._requests.read()
            if not self._process_requests():
                return
            # A controller that lost its power closes nothing, so it must write something now and then.
            if silence_seconds and self._requests.silent_seconds > silence_seconds:
                self._requests.has_ended = True
                return
            for running in self._running:
                self._check_exit(running)

    def _process_requests(self) -> bool:
        """Send the signals that the controller requests. Return False when it has the tasks ended, or is gone."""
        while (request := self._requests.take_request()) is not None:
            if isinstance(request, EndTasksRequest):
                return False
            for running in self._running:
                if isinstance(request, SignalRequest) and not running.exited:
                    running.send_signal(request.signal)
        return not self._requests.has_ended

    def _check_exit(self, running: RunningTask) -> None:
        """Report a task's exit, after all its output. Its children may keep its pipes open after it."""
        code = None if running.exited else running.poll_exit_code()
        if code is None:
            return
        running.exited = True
        for name in list(running.streams):
            self._relay_output(running, name)
        if running.uses_gpu:
            self._report_gpu(running)
        _send(Exit(code, "\n".join(running.tail)), running.rank)

    def _relay_output(self, running: RunningTask, name: str) -> None:
        """Relay what can be read now, but not without end: others print too, and the controller may have requests."""
        for _ in range(_READS_PER_TURN):
            if name not in running.streams:
                return
            try:
                data = os.read(running.streams[name], 65536)
            except BlockingIOError:
                return
            for line, goes_on in running.add_output(name, data):
                self._relay_line(running, name, line, goes_on)
            if not data:
                self._selector.unregister(running.streams.pop(name))

    def _relay_line(self, running: RunningTask, stream: str, line: str, goes_on: bool) -> None:
        event = _extract_event(line, running.rank) if stream == "stdout" and not goes_on else None
        if event is not None:
            _write(event)
            if running.uses_gpu and _REPORT in line:
                self._summarise_window(running, line)
        elif line.strip():
            running.tail = [*running.tail, line[:_LONGEST_IN_TAIL]][-_TAIL_LINES:]
            self._relay_log(running, stream, line, goes_on)

    def _relay_log(self, running: RunningTask, stream: str, line: str, goes_on: bool) -> None:
        """Send a line that a task printed, in pieces that fit into events, unless it has printed too much already."""
        left = sys.maxsize if running.output_left is None else running.output_left
        if left <= 0:
            return
        is_last = len(line) >= left
        line = line[:left]
        if running.output_left is not None:
            running.output_left = left - len(line)
        for start in range(0, len(line), _LOG_PIECE):
            end = start + _LOG_PIECE
            _send(LogLine(line[start:end], stream, more=goes_on or end < len(line)), running.rank)
        if is_last:
            _send(LogLine("… what it printed after this is left out, because it is too much", stream), running.rank)

    def _summarise_window(self, running: RunningTask, line: str) -> None:
        """Report what a rank's GPU did in the window that the last line of its report names."""
        try:
            piece = json.loads(line[len(MARK) :])
            if not piece["is_last"]:
                return
            if piece["window_began"] is not None:
                window = float(piece["window_began"]), float(piece["window_seconds"])
                running.gpu_state = self._gpu_states.summarise_window(running.rank, *window)
        except (ValueError, LookupError, TypeError, RecursionError):
            return  # a rank may print anything, and the controller names what is wrong with its report
        self._report_gpu(running)

    def _report_gpu(self, running: RunningTask) -> None:
        _send(GpuFacts(*self._gpus.find_peak(running.rank), state=running.gpu_state), running.rank)

    def end(self) -> None:
        _set_signal_handler(signal.SIG_IGN)  # this must not be interrupted
        self._gpus.stop()
        self._gpu_states.stop()
        for running in self._running:
            running.send_signal(signal.SIGKILL)
        for running in self._running:
            running.popen.wait()
        # What tasks started in sessions of their own: these processes are children of this one now.
        for _ in range(50):
            children = _list_children()
            if not children:
                break
            for child in children:
                try:
                    os.kill(child, signal.SIGKILL)
                    os.waitpid(child, 0)
                except (ProcessLookupError, ChildProcessError):
                    continue
        self._selector.close()


def main(arguments: list[str]) -> int:
    try:  # orphans of a task become children of this process, not of init, so it can find and end them
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    except (OSError, AttributeError):
        pass
    requests = KeeperInput()
    request = _wait_for_tasks(requests, None)
    if request is None:
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller to handle
    while request is not None:
        keeper = Keeper(request, requests)
        _set_signal_handler(_raise_end_requested)
        try:
            signal_number = keeper.run()
        except (ConnectionError, TimeoutError):
            return 1  # the controller is gone; run() has ended everything
        if signal_number:
            return 128 + signal_number
        _set_signal_handler(signal.SIG_DFL)
        request = _wait_for_tasks(requests, request.silence_seconds) if request.stays else None
    return 0


class _EndRequested(BaseException):
    """A signal requested the end of the keeper: a launcher gave up, or a batch system's time is over. The last event
    reports it, because nothing else knows the reason.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _raise_end_requested(number: int, _: Any) -> None:
    _set_signal_handler(signal.SIG_IGN)
    raise _EndRequested(number)


def _set_signal_handler(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _wait_for_tasks(requests: KeeperInput, silence_seconds: float | None) -> TasksRequest | None:
    """Answer requests for ports until tasks come. Return None when the input ends first, or is silent for too long."""
    while True:
        request = requests.take_request()
        if isinstance(request, TasksRequest):
            return request
        if isinstance(request, PortsRequest):
            try:
                _send(Ports(find_free_ports(request.ports), time.time()))
            except OSError as error:
                _send(Ports(error=str(error)))
        elif request is None:
            if requests.has_ended:
                return None
            requests.wait(silence_seconds)


def _read_children_cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def _extract_event(line: str, rank: int) -> bytes | None:
    """Return the event in a line with its rank, or None if there is none. Roles that are no ranks of a trial do not
    know the number of their task.
    """
    if not line.startswith(MARK):
        return None
    if '"rank":' in line:
        return (line + "\n").encode()
    try:
        values = json.loads(line[len(MARK) :])
    except (ValueError, RecursionError):  # a rank may print anything
        return None
    if not isinstance(values, dict) or "kind" not in values:
        return None
    return (MARK + json.dumps({**values, "rank": rank}, separators=(",", ":")) + "\n").encode()


def _send(event: Event, rank: int | None = None) -> None:
    _write(encode(event, rank))


def _write(line: bytes) -> None:
    while line:  # a socket may accept only a part
        line = line[os.write(1, line) :]


def _list_children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _subtract(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else now - before
