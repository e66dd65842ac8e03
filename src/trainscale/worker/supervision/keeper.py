"""The keeper: one per host and trial. It starts the ranks, relays their lines, and leaves nothing behind.

It reads JSON lines from its standard input. {"ports": N} is answered by an event with N free ports of this host.
{"processes": [{"rank", "command", "job", "environment", "folder"}],
"deadline_seconds"} starts the work; in a command, START stands for this host's own copy of start.py and PYTHON for the
interpreter that runs the keeper. {"signal": N} after that is passed on to all of them. When that input closes, when the
deadline passes, or when it is told to end, it ends every process it started and every process those started. So a dead
controller, a closed ssh or a Ctrl-C needs no clean-up by anyone.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import selectors
import signal
import subprocess
import sys
import time
from typing import Any

from ..events import LIMIT, MARK, decode, encode
from ..inspection.memory import GpuMemory
from ..pinning import ALLOCATOR
from .ports import free_ports

_PR_SET_CHILD_SUBREAPER = 36
_TAIL_LINES = 20
_LOG_PIECE = LIMIT // 8  # characters of a printed line: JSON may need six bytes for one
_START = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "start.py")  # noqa: PTH100, PTH118, PTH120
_WORDS = {"PYTHON": sys.executable, "START": _START}


class RunningTask:
    """One rank as its keeper sees it."""

    def __init__(self, entry: dict[str, Any]) -> None:
        self.rank: int = entry["rank"]
        self.on_gpu = _on_gpu(entry)
        self.tail: list[str] = []
        self.exited = False
        self._buffers: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.streams: dict[str, int] = {}
        # A session of its own, so that one signal reaches the rank and all its children.
        self.popen = subprocess.Popen(
            [_WORDS.get(word, word) for word in entry["command"]],
            cwd=entry.get("folder"),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**ALLOCATOR, **os.environ, **entry.get("environment", {})},
            start_new_session=True,
        )
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(entry["job"].encode() + b"\n")
            self.popen.stdin.close()
        except BrokenPipeError:
            pass  # it ended at once; its exit code and its log say why
        assert self.popen.stdout is not None
        assert self.popen.stderr is not None
        for name, stream in (("stdout", self.popen.stdout), ("stderr", self.popen.stderr)):
            self.streams[name] = stream.fileno()
            os.set_blocking(stream.fileno(), False)

    def exit_code(self) -> int | None:
        """None while it runs. It is looked at, not reaped: until ``end`` its number, and its group's, stay its own."""
        seen = os.waitid(os.P_PID, self.popen.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if seen is None:
            return None
        return seen.si_status if seen.si_code == os.CLD_EXITED else -seen.si_status

    def lines(self, stream: str, data: bytes) -> list[str]:
        """Whole lines so far; with no data, whatever is left."""
        whole = self._buffers[stream] + data
        *lines, self._buffers[stream] = whole.split(b"\n")
        if not data and self._buffers[stream]:
            lines.append(self._buffers[stream])
            self._buffers[stream] = b""
        return [line.decode(errors="replace").rstrip("\r") for line in lines]


class Keeper:
    def __init__(self, plan: dict[str, Any]) -> None:
        self._selector = selectors.DefaultSelector()
        self._processes: list[RunningTask] = []
        self._deadline = time.monotonic() + float(plan["deadline_seconds"])
        # A controller that lost its power closes nothing: one that speaks now and then is alive.
        self._silence_seconds: float | None = plan.get("silence_seconds")
        self._heard = time.monotonic()
        self._said = b""  # by the controller, up to the last line break
        self._gpus = GpuMemory()
        self._plan = plan

    def run(self) -> int:
        """The number of the signal that asked for the end, or 0."""
        began, machine = time.monotonic(), _busy_seconds()
        waited, kills = _waited_seconds(), _kernel_kills()
        self._selector.register(0, selectors.EVENT_READ, None)
        told = 0
        try:
            for entry in self._plan["processes"]:
                self._start(entry)
            self._relay()
        except _Told as signalled:
            told = signalled.number
        finally:
            self.end()
        own = resource.getrusage(resource.RUSAGE_CHILDREN)
        _say(
            kind="end",
            seconds=time.monotonic() - began,
            own_cpu_seconds=own.ru_utime + own.ru_stime,
            machine_busy_seconds=_since(machine, _busy_seconds()),
            waited_seconds=_since(waited, _waited_seconds()),
            kernel_kills=_kernel_kills() - kills,
            **({"signal": told} if told else {}),
        )
        return told

    def _start(self, entry: dict[str, Any]) -> None:
        try:
            process = RunningTask(entry)
        except OSError as error:
            _say(kind="exit", rank=entry["rank"], code=127, tail=f"cannot start {entry['command'][0]}: {error}")
            return
        self._processes.append(process)
        if process.on_gpu:
            self._gpus.watch(process.rank, process.popen.pid)
        for name in process.streams:
            self._selector.register(process.streams[name], selectors.EVENT_READ, (process, name))

    def _relay(self) -> None:
        while not all(process.exited for process in self._processes):
            if time.monotonic() > self._deadline:
                _say(kind="deadline", seconds=self._plan["deadline_seconds"])
                return
            for key, _ in self._selector.select(timeout=0.2):
                if key.data is not None:
                    self._drain(*key.data)
                elif not self._hear():
                    return  # the controller is gone, or wants an end
            if self._silence_seconds and time.monotonic() - self._heard > self._silence_seconds:
                return
            for process in self._processes:
                self._look(process)

    def _hear(self) -> bool:
        """A sign of life, which is an empty line, or a signal to pass on. False when there is nobody any more."""
        try:
            data = os.read(0, 4096)
        except OSError:  # a connection whose other end lost its power
            return False
        self._heard = time.monotonic()
        *lines, self._said = (self._said + data).split(b"\n")
        for line in filter(None, lines):
            number = json.loads(line)["signal"]
            for process in self._processes:
                if not process.exited:
                    _signal(process, number)
        return bool(data)

    def _look(self, process: RunningTask) -> None:
        """Tell a rank's exit, after all it printed. Its children may hold its pipes open: their end is no sign."""
        code = None if process.exited else process.exit_code()
        if code is None:
            return
        process.exited = True
        for name in list(process.streams):
            self._drain(process, name)
        if process.on_gpu:
            _say(kind="nvml", rank=process.rank, **self._gpus.of(process.rank))
        _say(kind="exit", rank=process.rank, code=code, tail="\n".join(process.tail))

    def _drain(self, process: RunningTask, name: str) -> None:
        """Relay what can be read now."""
        while name in process.streams:
            try:
                data = os.read(process.streams[name], 65536)
            except BlockingIOError:
                return
            for line in process.lines(name, data):
                self._relay_line(process, name, line)
            if not data:
                self._selector.unregister(process.streams.pop(name))

    def _relay_line(self, process: RunningTask, name: str, line: str) -> None:
        if name == "stdout" and line.startswith(MARK) and '"rank":' in line:
            _write((line + "\n").encode())
        elif name == "stdout" and (event := decode(line)) is not None:
            # Of a role that is not a rank of anything: whoever asked knows it by its number.
            _say(**{**event, "rank": process.rank})
        elif line.strip():
            process.tail = [*process.tail, line][-_TAIL_LINES:]
            for start in range(0, len(line), _LOG_PIECE):
                rest = {} if start + _LOG_PIECE >= len(line) else {"more": True}
                _say(kind="log", rank=process.rank, text=line[start : start + _LOG_PIECE], stream=name, **rest)

    def end(self) -> None:
        _listen_to_signals(signal.SIG_IGN)  # it must not be left half done
        self._gpus.stop()
        for process in self._processes:
            _signal(process, signal.SIGKILL)
        for process in self._processes:
            process.popen.wait()
        _end_orphans()


def main(arguments: list[str]) -> int:
    try:  # orphans of a rank come to this process, not to init: they can be found and ended
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    except (OSError, AttributeError):
        pass
    plan = _first_plan()
    if plan is None:
        return 1  # nobody wants anything any more
    keeper = Keeper(plan)
    _listen_to_signals(_tell)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the controller's to handle
    try:
        told = keeper.run()
    except (ConnectionError, TimeoutError):
        return 1  # nobody listens; run() has ended everything
    return 128 + told if told else 0


class _Told(BaseException):
    """A signal asks for the end: of a launcher that gives up, of a batch system whose time is up. It is said in the
    last word, because nobody else knows why.
    """

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


def _tell(number: int, _: Any) -> None:
    _listen_to_signals(signal.SIG_IGN)
    raise _Told(number)


def _listen_to_signals(handler: Any) -> None:
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def _first_plan() -> dict[str, Any] | None:
    """What to start, after any questions that come before it were answered. None when the input ended first."""
    for line in iter(_read_line, b""):
        asked: dict[str, Any] = json.loads(line)
        if "ports" not in asked:
            return asked
        try:
            _say(kind="ports", ports=free_ports(asked["ports"]), clock=time.time())
        except OSError as error:
            _say(kind="ports", error=str(error))
    return None


def _read_line() -> bytes:
    """One line, past any buffer: standard input must stay readable for its end. Whoever asks sends the next line only
    when this one was answered.
    """
    pieces: list[bytes] = []
    while not pieces or not pieces[-1].endswith(b"\n"):
        pieces.append(os.read(0, 65536))
        if not pieces[-1]:
            return b""
    return b"".join(pieces)


def _on_gpu(entry: dict[str, Any]) -> bool:
    """Whether that is a rank which trains on a GPU. Tasks may be other things than ranks."""
    try:
        return bool(json.loads(entry["job"])["device"]["kind"] == "cuda")
    except (ValueError, KeyError, TypeError):
        return False


def _signal(process: RunningTask, number: int) -> None:
    """To the rank and all its children."""
    try:
        os.killpg(process.popen.pid, number)
    except (ProcessLookupError, PermissionError):
        pass


def _say(**event: Any) -> None:
    _write(encode(event))


def _write(line: bytes) -> None:
    while line:  # a socket may take part of it
        line = line[os.write(1, line) :]


def _end_orphans() -> None:
    """Processes that a rank started in sessions of their own are this process's children now."""
    for _ in range(50):
        children = _children()
        if not children:
            return
        for child in children:
            try:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
            except (ProcessLookupError, ChildProcessError):
                continue


def _children() -> list[int]:
    try:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except OSError:
        return []


def _busy_seconds() -> float | None:
    """CPU seconds that the whole machine has spent on anything since it started."""
    try:
        with open("/proc/stat") as file:  # noqa: PTH123
            user, nice, system, _idle, _iowait, irq, softirq = (int(v) for v in file.readline().split()[1:8])
    except (OSError, ValueError):
        return None
    return (user + nice + system + irq + softirq) / os.sysconf("SC_CLK_TCK")


def _waited_seconds() -> float | None:
    """Time in which at least one process, ours included, had work but no core to do it on (the kernel's PSI)."""
    try:
        with open("/proc/pressure/cpu") as file:  # noqa: PTH123
            return int(file.readline().rpartition("total=")[2]) / 1e6
    except (OSError, ValueError):
        return None


def _since(before: float | None, now: float | None) -> float | None:
    return None if before is None or now is None else now - before


def _kernel_kills() -> int:
    """How often the kernel has ended a process for want of memory."""
    try:
        with open("/proc/vmstat") as file:  # noqa: PTH123
            return next(int(line.split()[1]) for line in file if line.startswith("oom_kill "))
    except (OSError, StopIteration):
        return 0
