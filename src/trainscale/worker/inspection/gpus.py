"""GPUs as NVIDIA's management library (NVML) shows them: memory by process, energy, clocks,
power, temperature and traffic. It is called through ctypes: a keeper has no packages.

The keeper samples memory and state in a thread, so that the ranks pay nothing for it, and
summarises the samples in a rank's window. Processes of one host share the clock.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ..sample import GpuState

LIBRARY = "libnvidia-ml.so.1"

_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE
_CAPACITY = 4096  # processes of one GPU
_PROCESS = struct.Struct("=I4xQ")  # nvmlProcessInfo_v1_t: pid, usedGpuMemory
# nvmlFieldValue_t: field, scope, timestamp, latency, value type, return code, value
_FIELD_VALUE = struct.Struct("=IIqqiiQ")
_ALL_LINKS = 2**32 - 1  # UINT_MAX: a counter of all NVLinks together
_FLOAT, _UNSIGNED_32, _SIGNED_32 = 0, 1, 5  # nvmlValueType_t; all others have 64 bits


def find_visible_gpu(index: int) -> str:
    """Return CUDA's name of a GPU, whose index counts among CUDA_VISIBLE_DEVICES."""
    variable = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in variable.split(",") if name.strip()]
    if names and index >= len(names):
        raise ValueError(f"GPU {index} is not among CUDA_VISIBLE_DEVICES={','.join(names)}")
    return names[index] if names else str(index)


class NvmlError(Exception):
    pass


class Nvml:
    """The library. Of each function the oldest version is called: every driver still has it.

    A GPU is given by its index or its UUID, as a string.
    """

    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(f"NVIDIA's library cannot be loaded: {error}") from None
        self._call("nvmlInit_v2")
        count = ctypes.c_uint()
        self._call("nvmlDeviceGetCount_v2", ctypes.byref(count))
        self._count = count.value

    def sum_process_bytes(self) -> dict[int, int | None]:
        """Return the bytes that each process holds on all GPUs; None where they are not counted.

        A GPU that does not answer is left out. If none answers, NvmlError is raised.
        """
        sizes: dict[int, int | None] = {}
        errors = []
        buffer = ctypes.create_string_buffer(_CAPACITY * _PROCESS.size)
        for index in range(self._count):
            count = ctypes.c_uint(_CAPACITY)
            try:
                device = self._find_device(str(index))
                self._call("nvmlDeviceGetComputeRunningProcesses", device, ctypes.byref(count), buffer)
            except NvmlError as error:
                errors.append(error)
                continue
            for number in range(count.value):
                pid, size = _PROCESS.unpack_from(buffer, number * _PROCESS.size)
                before = sizes.get(pid, 0)
                sizes[pid] = None if before is None or size == _NOT_AVAILABLE else before + size
        if errors and len(errors) == self._count:
            raise errors[-1]
        return sizes

    def read_number(self, function: str, gpu: str, *arguments: int, wide: bool = False) -> int:
        """Return the result of a function, which has 32 bits, or 64 if it is ``wide``."""
        answer: Any = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        self._call(function, self._find_device(gpu), *map(ctypes.c_uint, arguments), ctypes.byref(answer))
        return int(answer.value)

    def read_field(self, gpu: str, field: int) -> int:
        """Return a counter of a GPU by its number, summed over its NVLinks."""
        buffer = ctypes.create_string_buffer(_FIELD_VALUE.pack(field, _ALL_LINKS, 0, 0, 0, 0, 0))
        self._call("nvmlDeviceGetFieldValues", self._find_device(gpu), ctypes.c_int(1), buffer)
        *_, value_type, code, count = _FIELD_VALUE.unpack_from(buffer)
        if code or value_type == _FLOAT:
            raise NvmlError(f"field {field} is not a counter here")
        return int(count & 0xFFFFFFFF if value_type in (_UNSIGNED_32, _SIGNED_32) else count)

    def _find_device(self, gpu: str) -> Any:
        handle = ctypes.c_void_p()
        if gpu.isdigit():
            self._call("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(int(gpu)), ctypes.byref(handle))
        else:
            self._call("nvmlDeviceGetHandleByUUID", ctypes.c_char_p(gpu.encode()), ctypes.byref(handle))
        return handle

    def _call(self, function: str, *arguments: Any) -> None:
        try:
            code = getattr(self._library, function)(*arguments)
        except AttributeError:
            raise NvmlError(f"NVIDIA's library has no {function}") from None
        if code != 0:
            self._library.nvmlErrorString.restype = ctypes.c_char_p
            text = self._library.nvmlErrorString(ctypes.c_int(code)) or b""
            raise NvmlError(f"{function}: {text.decode(errors='replace')} (error {code})")


# ---- clocks, power, temperature and traffic

# The library's function, its arguments, and the factor to MHz, watts, degrees Celsius and bytes/s.
_READINGS: dict[str, tuple[str, tuple[int, ...], float]] = {
    "sm_mhz": ("nvmlDeviceGetClockInfo", (1,), 1),
    "sm_mhz_limit": ("nvmlDeviceGetMaxClockInfo", (1,), 1),
    "memory_mhz": ("nvmlDeviceGetClockInfo", (2,), 1),
    "memory_mhz_limit": ("nvmlDeviceGetMaxClockInfo", (2,), 1),
    "watts": ("nvmlDeviceGetPowerUsage", (), 1e-3),
    "watts_limit": ("nvmlDeviceGetEnforcedPowerLimit", (), 1e-3),
    "celsius": ("nvmlDeviceGetTemperature", (0,), 1),
    "pcie_sent": ("nvmlDeviceGetPcieThroughput", (0,), 1000),
    "pcie_received": ("nvmlDeviceGetPcieThroughput", (1,), 1000),
}
# Counters of KiB since the driver was loaded: NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX.
_COUNTERS = {"nvlink_sent": 138, "nvlink_received": 139}
# Bits of nvmlDeviceGetCurrentClocksThrottleReasons, but 1, which is an idle GPU.
_REASONS = {
    0x2: "application clocks",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "temperature",
    0x40: "hardware temperature limit",
    0x80: "power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True)
class GpuSample:
    seconds: float
    values: dict[str, Any]  # by the names of _READINGS and _COUNTERS
    reasons: tuple[str, ...] = ()  # that limit its clocks


def read_sample(nvml: Nvml, gpu: str) -> GpuSample:
    values: dict[str, Any] = {}
    for name, (function, arguments, factor) in _READINGS.items():
        with suppress(NvmlError):
            values[name] = nvml.read_number(function, gpu, *arguments) * factor
    for name, field in _COUNTERS.items():
        with suppress(NvmlError):
            values[name] = nvml.read_field(gpu, field) * 1024
    bits = 0
    with suppress(NvmlError):
        bits = nvml.read_number("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, wide=True)
    reasons = tuple(name for bit, name in _REASONS.items() if bits & bit)
    return GpuSample(time.perf_counter(), values, reasons)


def summarise(samples: Sequence[GpuSample], began: float, ended: float) -> GpuState | None:
    inside = [sample for sample in samples if began <= sample.seconds <= ended]
    if not inside:
        return None

    def list_known(name: str) -> list[Any]:
        return [sample.values[name] for sample in inside if name in sample.values]

    def mean(name: str) -> float | None:
        known = list_known(name)
        return round(sum(known) / len(known), 3) if known else None

    def compute_rate(name: str) -> float | None:
        known = [sample for sample in inside if name in sample.values]
        # A counter may have fewer than two values, or begin again.
        grown = known[-1].values[name] - known[0].values[name] if len(known) > 1 else -1
        return round(grown / (known[-1].seconds - known[0].seconds), 3) if grown >= 0 else None

    last = inside[-1].values
    reasons = [reason for sample in inside for reason in sample.reasons]
    return GpuState(
        samples=len(inside),
        sm_mhz_mean=mean("sm_mhz"),
        sm_mhz_min=min(list_known("sm_mhz"), default=None),
        sm_mhz_limit=last.get("sm_mhz_limit"),
        memory_mhz_mean=mean("memory_mhz"),
        memory_mhz_min=min(list_known("memory_mhz"), default=None),
        memory_mhz_limit=last.get("memory_mhz_limit"),
        watts_mean=mean("watts"),
        watts_limit=last.get("watts_limit"),
        celsius_max=max(list_known("celsius"), default=None),
        limited_share=sum(bool(sample.reasons) for sample in inside) / len(inside),
        limited_by={reason: reasons.count(reason) / len(inside) for reason in dict.fromkeys(reasons)},
        pcie_sent_per_second=mean("pcie_sent"),
        pcie_received_per_second=mean("pcie_received"),
        nvlink_sent_per_second=compute_rate("nvlink_sent"),
        nvlink_received_per_second=compute_rate("nvlink_received"),
    )


# ---- the keeper's thread

_MEMORY_SECONDS = 0.25  # between two samples
_STATE_TURNS = 2  # samples of memory for each of the state
_MOST_SAMPLES = 20_000  # of a GPU, the latest: nearly three hours
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's own number for it (PROC_PID_INIT_INO)

ELSEWHERE = "NVML numbers processes as another namespace (a container) does, so the trial's are unknown"
NO_COUNT = "the driver does not say how much memory each process holds"


class GpuMonitor:
    """Samples the most GPU memory that each rank and its children held, and the ranks' GPUs."""

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # by process number
        self._gpus: dict[int, str] = {}  # by rank
        self._peaks: dict[int, int] = {}  # by rank
        self._samples: dict[str, deque[GpuSample]] = {}  # by GPU
        self._problem = ""  # why memory is not counted
        self._strangers: set[int] = set()  # that were named last
        self._processes_seen = 0  # the most that NVML named at a time
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="nvml", daemon=True)

    def watch(self, rank: int, pid: int, index: int | None = None) -> None:
        """Count the memory of a rank's processes, and sample the GPU with this index."""
        self._ranks = {**self._ranks, pid: rank}
        if index is not None:
            with suppress(ValueError):  # the rank itself will report that
                self._gpus = {**self._gpus, rank: find_visible_gpu(index)}
        if self._thread.ident is None:
            self._thread.start()

    def find_peak(self, rank: int) -> tuple[int | None, str]:
        """Return the peak of a rank's processes, or why it is unknown."""
        if self._problem:
            return None, self._problem
        if rank in self._peaks:
            return self._peaks[rank], ""
        seen = self._processes_seen
        others = f"; it names {seen} other{'s' if seen != 1 else ''}" if seen else ""
        return None, f"NVML names no process of this rank{others}"

    def summarise_window(self, rank: int, began: float, seconds: float) -> GpuState | None:
        samples = self._samples.get(self._gpus.get(rank, ""), ())
        return summarise(list(samples), began, began + seconds)

    def stop(self) -> None:
        """Stop sampling, without waiting for the driver."""
        self._stop.set()

    def _sample(self) -> None:
        try:
            nvml = Nvml()
        except NvmlError as error:
            self._problem = str(error)
            return
        for turn in itertools.count():
            if self._stop.wait(_MEMORY_SECONDS):
                return
            if not self._problem:
                try:
                    self._count(nvml.sum_process_bytes())
                except NvmlError as error:
                    self._problem = str(error)
            if turn % _STATE_TURNS == 0:
                for gpu in set(self._gpus.values()):
                    sample = read_sample(nvml, gpu)
                    if "sm_mhz" in sample.values:  # there is such a GPU
                        self._samples.setdefault(gpu, deque(maxlen=_MOST_SAMPLES)).append(sample)

    def _count(self, sizes: Mapping[int, int | None]) -> None:
        strangers = set()
        if is_in_container():
            strangers = {pid for pid in sizes if not os.path.exists(f"/proc/{pid}")}
        if strangers & self._strangers:  # seen only once, it may have just ended
            self._problem = ELSEWHERE
            return
        self._strangers, self._processes_seen = strangers, max(self._processes_seen, len(sizes))
        current: dict[int, int] = {}
        for pid, size in sizes.items():
            rank = find_rank(pid, self._ranks)
            if rank is None:
                continue
            if size is None:
                self._problem = NO_COUNT
                return
            current[rank] = current.get(rank, 0) + size
        for rank, total in current.items():
            self._peaks[rank] = max(total, self._peaks.get(rank, 0))


def find_rank(pid: int, ranks: Mapping[int, int]) -> int | None:
    """Return the rank that is a process, leads its session or started it."""
    for _ in range(64):  # a changing tree might look like a ring
        if pid in ranks:
            return ranks[pid]
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        parent, session = int(fields[1]), int(fields[3])
        if session in ranks:  # such children may outlive their parents
            return ranks[session]
        pid = parent
    return None


def is_in_container() -> bool:
    """Whether processes have other numbers here than the kernel and its drivers use."""
    try:
        return os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE
    except OSError:
        return False
