"""GPUs as NVIDIA's management library (NVML) shows them: memory by process, energy, clocks, power, temperature and
traffic. The library is called through ctypes, because a keeper has only the standard library.

The keeper samples memory and state in threads, so that the ranks pay nothing for it. When a rank has reported its
window, the samples in that window are summarised. Processes of one host share the clock that dates them.
"""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..pinning import find_visible_gpu
from ..sample import GpuState

LIBRARY = "libnvidia-ml.so.1"

_INSUFFICIENT_SIZE = 7
_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE: the driver does not count by process
_CAPACITY = 64  # processes of one GPU, until the driver asks for more
_ENTRY = struct.Struct("=I4xQ")  # how every version of nvmlProcessInfo_t begins: pid, usedGpuMemory
_FILL = 0xA5
_ALL_LINKS = 2**32 - 1  # UINT_MAX: a counter of all NVLinks together
_FLOAT, _UNSIGNED_32, _SIGNED_32 = 0, 1, 5  # nvmlValueType_t; all others have 64 bits
# Sizes that an entry has had: without and with MIG's instances, and with the fields of confidential computing. The same
# function has had more than one of them, by the driver's version: R535 wrote longer entries than R530 and R545.
_SIZES = (16, 24, 32)


class NvmlError(Exception):
    """What was asked for cannot be read. The message is for a person."""


class _FieldValue(ctypes.Structure):
    """nvmlFieldValue_t"""

    _fields_ = (
        ("field", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latency", ctypes.c_longlong),
        ("value_type", ctypes.c_int),
        ("code", ctypes.c_int),
        ("value", ctypes.c_ulonglong),
    )


class Nvml:
    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(f"NVIDIA's library cannot be loaded: {error}") from None
        self._call("nvmlInit_v2")
        self._list = self._find_newest(
            "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"
        )
        count = ctypes.c_uint()
        self._check("nvmlDeviceGetCount", self._find_newest("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"), count)
        self._devices = [self._open_device(index) for index in range(count.value)]

    def sum_process_bytes(self) -> dict[int, int | None]:
        """Return the bytes that each process holds on all GPUs together; None where the driver does not count them.

        A GPU that does not answer is left out. If none answers, NvmlError is raised.
        """
        sizes: dict[int, int | None] = {}
        last_error: NvmlError | None = None
        answers = 0
        for device in self._devices:
            try:
                entries = self._list_processes(device)
            except NvmlError as error:
                last_error = error
                continue
            answers += 1
            for pid, size in entries:
                before = sizes.get(pid, 0)
                sizes[pid] = None if before is None or size == _NOT_AVAILABLE else before + size
        if last_error and not answers:
            raise last_error
        return sizes

    def read_energy_joules(self, gpu: str) -> float:
        """Return the energy that a GPU has used since its driver was loaded. ``gpu`` is its index or its UUID."""
        return self.read_number("nvmlDeviceGetTotalEnergyConsumption", gpu, wide=True) / 1000

    def read_number(self, function: str, gpu: str, *arguments: int, wide: bool = False) -> int:
        """Return the result of a function of the library for a GPU. It has 32 bits, or 64 if it is ``wide``."""
        answer: Any = ctypes.c_ulonglong() if wide else ctypes.c_uint()
        values = [ctypes.c_uint(argument) for argument in arguments]
        self._check_code(function, self._find_newest(function)(self._find_device(gpu), *values, ctypes.byref(answer)))
        return int(answer.value)

    def read_field(self, gpu: str, field: int) -> int:
        """Return a counter of a GPU by its number among the library's fields, summed over its NVLinks."""
        name = "nvmlDeviceGetFieldValues"
        value = _FieldValue(field=field, scope=_ALL_LINKS)
        self._check_code(name, self._find_newest(name)(self._find_device(gpu), ctypes.c_int(1), ctypes.byref(value)))
        self._check_code(f"{name}, field {field}", value.code)
        if value.value_type == _FLOAT:
            raise NvmlError(f"field {field} is not a counter")
        count = int(value.value)
        return count & 0xFFFFFFFF if value.value_type in (_UNSIGNED_32, _SIGNED_32) else count

    def _find_device(self, gpu: str) -> Any:
        if gpu.isdigit():
            if int(gpu) >= len(self._devices):
                raise NvmlError(f"there is no GPU {gpu}")
            return self._devices[int(gpu)]
        handle = ctypes.c_void_p()
        get = self._find_newest("nvmlDeviceGetHandleByUUID")
        self._check_code("nvmlDeviceGetHandleByUUID", get(ctypes.c_char_p(gpu.encode()), ctypes.byref(handle)))
        return handle

    def _list_processes(self, device: Any) -> list[tuple[int, int]]:
        capacity = _CAPACITY
        while True:
            count = ctypes.c_uint(capacity)
            buffer = (ctypes.c_ubyte * (capacity * _SIZES[-1]))()
            ctypes.memset(buffer, _FILL, len(buffer))
            code = self._list(device, ctypes.byref(count), buffer)
            if code == _INSUFFICIENT_SIZE and count.value >= capacity:
                capacity = 2 * count.value
                continue
            self._check_code("nvmlDeviceGetComputeRunningProcesses", code)
            return _parse_entries(bytes(buffer), count.value)

    def _open_device(self, index: int) -> Any:
        handle = ctypes.c_void_p()
        get = self._find_newest("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
        self._check_code("nvmlDeviceGetHandleByIndex", get(ctypes.c_uint(index), ctypes.byref(handle)))
        return handle

    def _find_newest(self, *names: str) -> Any:
        for name in names:
            try:
                return getattr(self._library, name)
            except AttributeError:
                continue
        raise NvmlError(f"NVIDIA's library has no {' and no '.join(names)}")

    def _call(self, name: str) -> None:
        self._check_code(name, self._find_newest(name)())

    def _check(self, name: str, function: Any, answer: Any) -> None:
        self._check_code(name, function(ctypes.byref(answer)))

    def _check_code(self, name: str, code: int) -> None:
        if code != 0:
            raise NvmlError(f"{name}: {self._describe_error(code)}")

    def _describe_error(self, code: int) -> str:
        try:
            error_string = self._library.nvmlErrorString
        except AttributeError:
            return f"error {code}"
        error_string.restype = ctypes.c_char_p
        text = error_string(ctypes.c_int(code))
        return f"{text.decode(errors='replace')} (error {code})" if text else f"error {code}"


def _parse_entries(data: bytes, count: int) -> list[tuple[int, int]]:
    """Return process numbers and bytes. The size of an entry follows from how much of the buffer was written."""
    if not count:
        return []
    written = len(data.rstrip(bytes([_FILL])))
    size = next((size for size in _SIZES if size * count >= written), _SIZES[-1])
    return [_ENTRY.unpack_from(data, number * size) for number in range(count)]


# ---- memory of the ranks

_MEMORY_SECONDS = 0.2  # between two samples
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's own number for it (PROC_PID_INIT_INO)

ELSEWHERE = "NVML names processes by numbers of another namespace (a container), so the trial's own are unknown"
NO_COUNT = "the driver does not say how much memory each process holds"


class GpuMemory:
    """Samples, in a thread, the most GPU memory that each rank held, its children included.

    A process that is not known to belong to the trial is not counted.
    """

    def __init__(self) -> None:
        self._ranks: dict[int, int] = {}  # by process number
        self._peaks: dict[int, int] = {}  # by rank
        self._problem = ""
        self._processes_seen = 0  # the most that NVML named at a time
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="nvml", daemon=True)

    def watch(self, rank: int, pid: int) -> None:
        self._ranks = {**self._ranks, pid: rank}
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

    def stop(self) -> None:
        """Stop sampling, without waiting for the driver, which may be slow to answer."""
        self._stop.set()

    def _sample(self) -> None:
        inner = is_in_container()
        before: set[int] = set()
        try:
            nvml = Nvml()
            while not self._stop.wait(_MEMORY_SECONDS):
                sizes = nvml.sum_process_bytes()
                unknown = {pid for pid in sizes if inner and not os.path.exists(f"/proc/{pid}")}  # noqa: PTH110
                if unknown & before:  # seen only once, it may have just ended
                    self._problem = ELSEWHERE
                    return
                before = unknown
                self._count(sizes)
        except NvmlError as error:
            self._problem = str(error)

    def _count(self, sizes: Mapping[int, int | None]) -> None:
        current: dict[int, int] = {}
        self._processes_seen = max(self._processes_seen, len(sizes))
        for pid, size in sizes.items():
            rank = find_rank(pid, self._ranks)
            if rank is None:
                continue
            if size is None:
                self._problem = NO_COUNT
                return
            current[rank] = current.get(rank, 0) + size
        for rank, size in current.items():
            self._peaks[rank] = max(size, self._peaks.get(rank, 0))


def find_rank(pid: int, ranks: Mapping[int, int]) -> int | None:
    """Return the rank that a process belongs to: it is the rank, or in its session, or one of its descendants.

    ``ranks`` are by process number.
    """
    for _ in range(64):  # a tree that changes while it is read might look like a ring
        if pid in ranks:
            return ranks[pid]
        try:
            with open(f"/proc/{pid}/stat", errors="replace") as file:  # noqa: PTH123
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            return None
        parent, session = int(fields[1]), int(fields[3])
        if session in ranks:  # a rank leads a session, so children are found that have outlived their parents
            return ranks[session]
        pid = parent
    return None


def is_in_container() -> bool:
    """Whether processes have other numbers here than the kernel and its drivers use."""
    try:
        return os.readlink("/proc/self/ns/pid") != _FIRST_NAMESPACE  # noqa: PTH115
    except OSError:
        return False


# ---- clocks, power, temperature and traffic

_STATE_SECONDS = 0.5
_MOST_SAMPLES = 20_000  # of a GPU, the latest: nearly three hours
_SM_CLOCK, _MEMORY_CLOCK = 1, 2  # nvmlClockType_t
_SENT, _RECEIVED = 0, 1  # nvmlPcieUtilCounter_t
_NVLINK_SENT, _NVLINK_RECEIVED = 138, 139  # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_TX and _RX, in KiB
_KB, _KIB = 1000, 1024

# Bits of nvmlDeviceGetCurrentClocksEventReasons. An idle GPU (1) is not limited by anything.
POWER_CAP, TEMPERATURE = "power cap", "temperature"
_REASONS = {
    0x2: "application clocks",
    0x4: POWER_CAP,
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: TEMPERATURE,
    0x40: "hardware temperature limit",
    0x80: "power brake",
    0x100: "display clocks",
}


@dataclass(frozen=True)
class GpuSample:
    """The state of a GPU at a moment of ``time.perf_counter``. None where the GPU does not report it."""

    seconds: float
    sm_mhz: int | None = None
    memory_mhz: int | None = None
    watts: float | None = None
    celsius: int | None = None
    reasons: tuple[str, ...] = ()  # that limit its clocks
    pcie_sent: float | None = None  # bytes per second
    pcie_received: float | None = None
    nvlink_sent: int | None = None  # bytes since the driver was loaded
    nvlink_received: int | None = None


@dataclass(frozen=True)
class GpuLimits:
    """What a GPU could do at most."""

    sm_mhz: int | None = None
    memory_mhz: int | None = None
    watts: float | None = None


class GpuReader:
    """Reads the state of one GPU. What the GPU or its driver does not offer is None."""

    def __init__(self, nvml: Nvml, gpu: str) -> None:
        self._nvml, self._gpu = nvml, gpu
        nvml.read_number("nvmlDeviceGetClockInfo", gpu, _SM_CLOCK)  # raises NvmlError if there is no such GPU
        self.limits = GpuLimits(
            sm_mhz=self._try("nvmlDeviceGetMaxClockInfo", _SM_CLOCK),
            memory_mhz=self._try("nvmlDeviceGetMaxClockInfo", _MEMORY_CLOCK),
            watts=_scale(self._try("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        )

    def read(self) -> GpuSample:
        reasons = self._try("nvmlDeviceGetCurrentClocksEventReasons", wide=True)
        if reasons is None:  # the older name
            reasons = self._try("nvmlDeviceGetCurrentClocksThrottleReasons", wide=True)
        return GpuSample(
            seconds=time.perf_counter(),
            sm_mhz=self._try("nvmlDeviceGetClockInfo", _SM_CLOCK),
            memory_mhz=self._try("nvmlDeviceGetClockInfo", _MEMORY_CLOCK),
            watts=_scale(self._try("nvmlDeviceGetPowerUsage"), 1e-3),
            celsius=self._try("nvmlDeviceGetTemperature", 0),
            reasons=tuple(name for bit, name in _REASONS.items() if (reasons or 0) & bit),
            pcie_sent=_scale(self._try("nvmlDeviceGetPcieThroughput", _SENT), _KB),
            pcie_received=_scale(self._try("nvmlDeviceGetPcieThroughput", _RECEIVED), _KB),
            nvlink_sent=self._read_counter(_NVLINK_SENT),
            nvlink_received=self._read_counter(_NVLINK_RECEIVED),
        )

    def _try(self, function: str, *arguments: int, wide: bool = False) -> int | None:
        try:
            return self._nvml.read_number(function, self._gpu, *arguments, wide=wide)
        except NvmlError:
            return None

    def _read_counter(self, field: int) -> int | None:
        try:
            return self._nvml.read_field(self._gpu, field) * _KIB
        except NvmlError:
            return None


class GpuSampler:
    """Samples, in a thread, the GPUs of the ranks of a host."""

    def __init__(self) -> None:
        self._gpus: dict[int, str] = {}  # by rank
        self._samples: dict[str, deque[GpuSample]] = {}  # by GPU
        self._limits: dict[str, GpuLimits] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._sample, name="gpu state", daemon=True)

    def watch(self, rank: int, index: int) -> None:
        """Sample the GPU of a rank, by its number among the visible ones."""
        try:
            self._gpus = {**self._gpus, rank: find_visible_gpu(index)}
        except ValueError:
            return  # the rank itself will report that
        if self._thread.ident is None:
            self._thread.start()

    def stop(self) -> None:
        """Stop sampling, without waiting for the driver."""
        self._stop.set()

    def summarise_window(self, rank: int, began: float, seconds: float) -> GpuState | None:
        """Summarise the samples of a rank's window; None if there are none."""
        gpu = self._gpus.get(rank, "")
        return summarise(list(self._samples.get(gpu, ())), self._limits.get(gpu, GpuLimits()), began, began + seconds)

    def _sample(self) -> None:
        try:
            nvml = Nvml()
        except NvmlError:
            return  # the note on memory says why
        readers: dict[str, GpuReader] = {}
        while not self._stop.wait(_STATE_SECONDS):
            for gpu in set(self._gpus.values()):
                if gpu in readers:
                    self._samples[gpu].append(readers[gpu].read())
                    continue
                try:
                    readers[gpu] = GpuReader(nvml, gpu)
                except NvmlError:
                    continue
                self._limits[gpu] = readers[gpu].limits
                self._samples[gpu] = deque([readers[gpu].read()], _MOST_SAMPLES)


def summarise(samples: Sequence[GpuSample], limits: GpuLimits, began: float, ended: float) -> GpuState | None:
    """Summarise the samples between two moments, or return None if there are none."""
    inside = [sample for sample in samples if began <= sample.seconds <= ended]
    if not inside:
        return None
    reasons = [reason for sample in inside for reason in sample.reasons]
    return GpuState(
        samples=len(inside),
        sm_mhz_mean=_mean([sample.sm_mhz for sample in inside]),
        sm_mhz_min=_find_least([sample.sm_mhz for sample in inside]),
        sm_mhz_limit=limits.sm_mhz,
        memory_mhz_mean=_mean([sample.memory_mhz for sample in inside]),
        memory_mhz_min=_find_least([sample.memory_mhz for sample in inside]),
        memory_mhz_limit=limits.memory_mhz,
        watts_mean=_mean([sample.watts for sample in inside]),
        watts_limit=limits.watts,
        celsius_max=max((sample.celsius for sample in inside if sample.celsius is not None), default=None),
        limited_share=sum(bool(sample.reasons) for sample in inside) / len(inside),
        limited_by={reason: reasons.count(reason) / len(inside) for reason in dict.fromkeys(reasons)},
        pcie_sent_per_second=_mean([sample.pcie_sent for sample in inside]),
        pcie_received_per_second=_mean([sample.pcie_received for sample in inside]),
        nvlink_sent_per_second=_compute_rate([(sample.seconds, sample.nvlink_sent) for sample in inside]),
        nvlink_received_per_second=_compute_rate([(sample.seconds, sample.nvlink_received) for sample in inside]),
    )


def _scale(value: int | None, factor: float) -> float | None:
    return None if value is None else value * factor


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return round(sum(known) / len(known), 3) if known else None


def _find_least(values: Sequence[int | None]) -> int | None:
    return min((value for value in values if value is not None), default=None)


def _compute_rate(counts: Sequence[tuple[float, int | None]]) -> float | None:
    """Return by how much a counter grows per second; None if it has fewer than two values or began again."""
    known = [(seconds, count) for seconds, count in counts if count is not None]
    if len(known) < 2 or known[-1][1] < known[0][1]:
        return None
    return round((known[-1][1] - known[0][1]) / (known[-1][0] - known[0][0]), 3)
