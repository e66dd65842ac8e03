"""The keeper of a host: starts the tasks, relays what they print, and leaves no process behind.

It reads the requests of job.py from its standard input. When that closes, when the deadline
passes, or on a signal to end, it ends every process that it started, and all their descendants.
"""

from __future__ import annotations

import codecs
import ctypes
import functools
import json
import os
import resource
import select
import selectors
import signal
import subprocess
import sys
import time
from collections import deque
from contextlib import suppress
from typing import Any

from ..events import LIMIT, MARK, Deadline, End, Event, Exit, GpuFacts, LogLine, Ports, ReportPiece, encode
from ..inspection.gpus import GpuMonitor
from ..inspection.usage import read_line
from ..job import EndTasksRequest, KeeperRequest, PortsRequest, SignalRequest, Task, TasksRequest, decode_request
from ..listening import find_free_ports
from ..sample import GpuState
from ..start import START, end_with_parent

_PR_SET_CHILD_SUBREAPER = 36
_TAIL_LINES = 20
_LOG_PIECE = LIMIT // 8  # characters of a printed line: JSON may need six bytes for one
_REPORT = f'"kind":"{ReportPiece.kind}"'
_LONGEST_IN_TAIL = 1000  # characters
_LONGEST_LINE = 65536  # characters: longer ones go on in parts; events are shorter
_READS_PER_TURN = 16  # of up to 64 KiB each, of one stream: others print too
_CANNOT_START = 127  # the exit code that shells use
_SUBSTITUTES = {"PYTHON": sys.executable, "START": START}  # see Task


class KeeperInput:
    """Reads standard input without a buffer, so that its end is noticed."""

    def __init__(self) -> None:
        self.has_ended = False  # the controller is done or dead
        self._incomplete = b""
        self._lines: deque[bytes] = deque()
        self.last_read = time.monotonic()

    def read(self) -> None:
        try:
            data = os.read(0, 65536)
        except OSError:  # a connection whose other end lost its power
            data = b""
        self.has_ended = self.has_ended or not data
        self.last_read = time.monotonic()
        *lines, self._incomplete = (self._incomplete + data).split(b"\n")
        self._lines += filter(None, lines)  # empty ones are signs of life

    def take_request(self) -> KeeperRequest | None:
        return decode_request(self._lines.popleft()) if self._lines else None

    def wait_for_tasks(self, silence_seconds: float | None = None) -> TasksRequest | None:
        """Answer requests for ports until tasks come; None if the input ends or is silent."""
        while True:
            request = self.take_request()
            if isinstance(request, TasksRequest):
                return request
            if isinstance(request, PortsRequest):
                try:
                    _send(Ports(find_free_ports(request.ports), time.time()))
                except OSError as error:
                    _send(Ports(error=str(error)))
            elif request is None:
                if self.has_ended or not select.select([0], [], [], silence_seconds)[0]:
                    return None
                self.read()


class RunningTask:
    def __init__(self, task: Task) -> None:
        self.task = task
        self.gpu_state: GpuState | None = None  # in the rank's window, when that is over
        self.tail: list[str] = []
        self.exited = False
        # Characters that may still be relayed.
        self.output_left = sys.maxsize if task.most_output is None else task.most_output
        self._buffers = {"stdout": "", "stderr": ""}
        self._decoders = {name: codecs.getincrementaldecoder("utf-8")("replace") for name in self._buffers}
        self.streams: dict[str, int] = {}
        self.popen = subprocess.Popen(
            [_SUBSTITUTES.get(argument, argument) for argument in task.command],
            cwd=task.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**task.defaults, **os.environ, **task.environment},
            start_new_session=True,  # one signal then reaches all its children
            # A starting program must not outlive a killed keeper, either.
            preexec_fn=functools.partial(end_with_parent, signal.SIGKILL, os.getpid()),
        )
        assert self.popen.stdin is not None
        with suppress(BrokenPipeError):  # it ended at once; its exit code and its log say why
            self.popen.stdin.write(task.job.encode() + b"\n")
            self.popen.stdin.close()
        for name, stream in (("stdout", self.popen.stdout), ("stderr", self.popen.stderr)):
            assert stream is not None
            self.streams[name] = stream.fileno()
            os.set_blocking(stream.fileno(), False)

    def add_output(self, stream: str, data: bytes) -> list[tuple[str, bool]]:
        """Return complete lines and parts of very long ones, which go on. No data means the end."""
        text = self._decoders[stream].decode(data, final=not data)
        *lines, remainder = (self._buffers[stream] + text).split("\n")
        parts = [(line.rstrip("\r"), False) for line in lines]
        if remainder and (not data or len(remainder) > _LONGEST_LINE):
            parts.append((remainder.rstrip("\r"), bool(data)))
            remainder = ""
        self._buffers[stream] = remainder
        return parts

    def send_signal(self, number: int) -> None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)


class Keeper:
    def __init__(self, request: TasksRequest, requests: KeeperInput) -> None:
        self._request, self._requests = request, requests
        self._deadline = time.monotonic() + request.deadline_seconds
        self._selector = selectors.DefaultSelector()
        self._running: list[RunningTask] = []
        self._gpus = GpuMonitor()

    def run(self) -> int:
        """Run the tasks. Return the number of the signal that ended the keeper, or 0."""
        before = _read_counters()
        self._selector.register(0, selectors.EVENT_READ, None)
        signal_number = 0
        try:
            for task in self._request.tasks:
                try:
                    running = RunningTask(task)
                except OSError as error:
                    _send(Exit(_CANNOT_START, f"cannot start {task.command[0]}: {error.strerror}"), task.rank)
                    continue
                self._running.append(running)
                if task.uses_gpu:
                    self._gpus.watch(task.rank, running.popen.pid, task.gpu)
                for name, descriptor in running.streams.items():
                    self._selector.register(descriptor, selectors.EVENT_READ, (running, name))
            self._relay()
        except _EndRequested as request:
            (signal_number,) = request.args
        finally:
            _set_signal_handler(signal.SIG_IGN)  # this must not be interrupted
            self._gpus.stop()
            for running in self._running:
                running.send_signal(signal.SIGKILL)
            for running in self._running:
                running.popen.wait()
            # What tasks started in other sessions are children of this process now.
            for _ in range(50):
                children = read_line(f"/proc/self/task/{os.getpid()}/children").split()
                if not children:
                    break
                for child in map(int, children):
                    with suppress(ProcessLookupError, ChildProcessError):
                        os.kill(child, signal.SIGKILL)
                        os.waitpid(child, 0)
            self._selector.close()
        now = _read_counters()
        differences = {name: now[name] - value for name, value in before.items() if name in now}
        _send(End(**differences, signal=signal_number or None))
        return signal_number

    def _relay(self) -> None:
        """Relay output until all tasks have exited, the deadline passes, or nobody listens."""
        requests, silence_seconds = self._requests, self._request.silence_seconds
        while not all(running.exited for running in self._running):
            if time.monotonic() > self._deadline:
                _send(Deadline(self._request.deadline_seconds))
                return
            for key, _ in self._selector.select(timeout=0.2):
                if key.data is not None:
                    self._relay_output(*key.data)
                else:
                    requests.read()
            while (request := requests.take_request()) is not None:
                if isinstance(request, EndTasksRequest):
                    return
                for running in self._running:
                    if isinstance(request, SignalRequest) and not running.exited:
                        running.send_signal(request.signal)
            # A controller that lost its power closes nothing, so it must write now and then.
            if silence_seconds and time.monotonic() - requests.last_read > silence_seconds:
                requests.has_ended = True
            if requests.has_ended:
                return
            for running in self._running:
                if running.exited:
                    continue
                # The process is not reaped, so its id and its group's cannot be reused.
                status = os.waitid(os.P_PID, running.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
                if status is None:
                    continue
                running.exited = True
                for name in list(running.streams):
                    self._relay_output(running, name)
                if running.task.uses_gpu:
                    self._report_gpu(running)
                code = status.si_status if status.si_code == os.CLD_EXITED else -status.si_status
                _send(Exit(code, "\n".join(running.tail)), running.task.rank)

    def _relay_output(self, running: RunningTask, name: str) -> None:
        for _ in range(_READS_PER_TURN):
            if name not in running.streams:
                return
            try:
                data = os.read(running.streams[name], 65536)
            except BlockingIOError:
                return
            for line, goes_on in running.add_output(name, data):
                may_be_event = name == "stdout" and not goes_on
                event = extract_event(line, running.task.rank) if may_be_event else None
                if event is not None:
                    _write(event)
                    if running.task.uses_gpu and _REPORT in line:
                        self._summarise_window(running, line)
                if event is not None or not line.strip():
                    continue
                running.tail = [*running.tail, line[:_LONGEST_IN_TAIL]][-_TAIL_LINES:]
                left = running.output_left
                if left <= 0:
                    continue
                running.output_left = left - len(line)
                line = line[:left]
                for start in range(0, len(line), _LOG_PIECE):
                    end = start + _LOG_PIECE
                    _send(LogLine(line[start:end], name, goes_on or end < len(line)), running.task.rank)
                if running.output_left <= 0:
                    text = "… what it printed after this is left out, because it is too much"
                    _send(LogLine(text, name), running.task.rank)
            if not data:
                self._selector.unregister(running.streams.pop(name))

    def _summarise_window(self, running: RunningTask, line: str) -> None:
        """Report what a rank's GPU did in the window that its report names."""
        try:
            piece = json.loads(line[len(MARK) :])
            if not piece["is_last"]:
                return
            if piece["window_began"] is not None:
                window = float(piece["window_began"]), float(piece["window_seconds"])
                running.gpu_state = self._gpus.summarise_window(running.task.rank, *window)
        except (ValueError, LookupError, TypeError, RecursionError):
            return  # a rank may print anything
        self._report_gpu(running)

    def _report_gpu(self, running: RunningTask) -> None:
        rank = running.task.rank
        _send(GpuFacts(*self._gpus.find_peak(rank), state=running.gpu_state), rank)


def main(arguments: list[str]) -> int:
    with suppress(OSError, AttributeError):  # orphans of tasks become children of this process
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    requests = KeeperInput()
    request = requests.wait_for_tasks()
    if request is None:
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the controller to handle

    def raise_end_requested(number: int, _: Any) -> None:
        _set_signal_handler(signal.SIG_IGN)
        raise _EndRequested(number)

    while request is not None:
        keeper = Keeper(request, requests)
        _set_signal_handler(raise_end_requested)
        try:
            signal_number = keeper.run()
        except (ConnectionError, TimeoutError):
            return 1  # the controller is gone; run() has ended everything
        if signal_number:
            return 128 + signal_number
        _set_signal_handler(signal.SIG_DFL)
        request = requests.wait_for_tasks(request.silence_seconds) if request.stays else None
    return 0


class _EndRequested(BaseException):
    """A signal, whose number is the argument, requested the end of the keeper."""


def _set_signal_handler(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _read_counters() -> dict[str, Any]:
    """Return counters for an End event. Those of the host show what else ran there."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    counters: dict[str, Any] = {"seconds": time.monotonic()}
    counters["own_cpu_seconds"] = usage.ru_utime + usage.ru_stime
    ticks = [int(value) for value in read_line("/proc/stat", "cpu ").split()[:8]]
    if len(ticks) > 4:
        # Without idle time and waits for disks, but with what a hypervisor gave away.
        busy = sum(ticks) - ticks[3] - ticks[4]
        counters["machine_busy_seconds"] = busy / os.sysconf("SC_CLK_TCK")
    waited = read_line("/proc/pressure/cpu", "some ").rpartition("total=")[2]
    if waited:
        counters["waited_seconds"] = int(waited) / 1e6
    counters["kernel_kills"] = int(read_line("/proc/vmstat", "oom_kill ") or 0)
    return counters


def extract_event(line: str, rank: int) -> bytes | None:
    """Return the event in a line, or None. A missing rank is added: not all roles know theirs."""
    begin = MARK + "{"
    if not line.startswith(begin) or '"kind":' not in line:
        return None
    if '"rank":' not in line:
        line = f'{begin}"rank":{rank},{line[len(begin) :]}'
    return (line + "\n").encode()


def _send(event: Event, rank: int | None = None) -> None:
    _write(encode(event, rank))


def _write(line: bytes) -> None:
    while line:  # a socket may accept only a part
        line = line[os.write(1, line) :]
