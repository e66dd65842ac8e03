"""Which process holds how much memory of the GPUs, as NVIDIA's driver tells it: a little of its management library
(NVML), by ctypes, because a keeper has the standard library alone.
"""

from __future__ import annotations

import ctypes
import struct
from typing import Any

LIBRARY = "libnvidia-ml.so.1"

_INSUFFICIENT_SIZE = 7
_NOT_AVAILABLE = 2**64 - 1  # NVML_VALUE_NOT_AVAILABLE: the driver does not count by process
_ROOM = 64  # processes of one GPU, until the driver asks for more
_ENTRY = struct.Struct("=I4xQ")  # how every version of nvmlProcessInfo_t begins: pid, usedGpuMemory
_FILL = 0xA5
# Sizes that an entry has had: without and with MIG's instances, and with what confidential computing adds. A function
# of one name has had more than one of them, by the driver's version: R535 wrote longer entries than R530 and R545.
_SIZES = (16, 24, 32)


class NvmlError(Exception):
    """Why nothing can be known, in words for a person."""


class Nvml:
    def __init__(self, library: str = LIBRARY) -> None:
        try:
            self._library = ctypes.CDLL(library)
        except OSError as error:
            raise NvmlError(f"NVIDIA's library cannot be loaded: {error}") from None
        self._call("nvmlInit_v2")
        self._list = self._newest("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
        count = ctypes.c_uint()
        self._check("nvmlDeviceGetCount", self._newest("nvmlDeviceGetCount_v2", "nvmlDeviceGetCount"), count)
        self._devices = [self._device(index) for index in range(count.value)]

    def processes(self) -> dict[int, int | None]:
        """Bytes that each process holds now, on all GPUs together; None where the driver does not say. A GPU that does
        not answer is left out, unless none does.
        """
        found: dict[int, int | None] = {}
        refused: NvmlError | None = None
        answers = 0
        for device in self._devices:
            try:
                entries = self._processes(device)
            except NvmlError as error:
                refused = error
                continue
            answers += 1
            for pid, size in entries:
                before = found.get(pid, 0)
                found[pid] = None if before is None or size == _NOT_AVAILABLE else before + size
        if refused and not answers:
            raise refused
        return found

    def _processes(self, device: Any) -> list[tuple[int, int]]:
        room = _ROOM
        while True:
            count = ctypes.c_uint(room)
            buffer = (ctypes.c_ubyte * (room * _SIZES[-1]))()
            ctypes.memset(buffer, _FILL, len(buffer))
            code = self._list(device, ctypes.byref(count), buffer)
            if code == _INSUFFICIENT_SIZE and count.value >= room:
                room = 2 * count.value
                continue
            self._accept("nvmlDeviceGetComputeRunningProcesses", code)
            return _entries(bytes(buffer), count.value)

    def _device(self, index: int) -> Any:
        handle = ctypes.c_void_p()
        get = self._newest("nvmlDeviceGetHandleByIndex_v2", "nvmlDeviceGetHandleByIndex")
        self._accept("nvmlDeviceGetHandleByIndex", get(ctypes.c_uint(index), ctypes.byref(handle)))
        return handle

    def _newest(self, *names: str) -> Any:
        for name in names:
            try:
                return getattr(self._library, name)
            except AttributeError:
                continue
        raise NvmlError(f"NVIDIA's library has no {' and no '.join(names)}")

    def _call(self, name: str) -> None:
        self._accept(name, self._newest(name)())

    def _check(self, name: str, function: Any, answer: Any) -> None:
        self._accept(name, function(ctypes.byref(answer)))

    def _accept(self, name: str, code: int) -> None:
        if code != 0:
            raise NvmlError(f"{name}: {self._words(code)}")

    def _words(self, code: int) -> str:
        try:
            say = self._library.nvmlErrorString
        except AttributeError:
            return f"error {code}"
        say.restype = ctypes.c_char_p
        words = say(ctypes.c_int(code))
        return f"{words.decode(errors='replace')} (error {code})" if words else f"error {code}"


def _entries(data: bytes, count: int) -> list[tuple[int, int]]:
    """Process numbers and bytes. How long an entry is shows in how much of the buffer was written on."""
    if not count:
        return []
    written = len(data.rstrip(bytes([_FILL])))
    size = next((size for size in _SIZES if size * count >= written), _SIZES[-1])
    return [_ENTRY.unpack_from(data, number * size) for number in range(count)]
