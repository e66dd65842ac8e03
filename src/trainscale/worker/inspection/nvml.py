"""GPU memory by process, and the energy and state of a GPU, from NVIDIA's management library (NVML). It is called
through ctypes, because a keeper has only the standard library.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

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
