"""Clocks, power, temperature and traffic of the GPUs of a trial, from NVIDIA's management library (NVML).

The keeper samples them in a thread, so that the ranks pay nothing for it. When a rank has reported its window, the
samples in that window are summarised. Processes of one host share the clock that dates them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from ..pinning import find_visible_gpu
from ..sample import GpuState
from .nvml import Nvml, NvmlError

_SAMPLE_SECONDS = 0.5
_MOST_SAMPLES = 20_000  # of a GPU, the latest: nearly three hours
_SM, _MEMORY = 1, 2  # nvmlClockType_t
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
        nvml.read_number("nvmlDeviceGetClockInfo", gpu, _SM)  # raises NvmlError if there is no such GPU
        self.limits = GpuLimits(
            sm_mhz=self._try("nvmlDeviceGetMaxClockInfo", _SM),
            memory_mhz=self._try("nvmlDeviceGetMaxClockInfo", _MEMORY),
            watts=_scale(self._try("nvmlDeviceGetEnforcedPowerLimit"), 1e-3),
        )

    def read(self) -> GpuSample:
        reasons = self._try("nvmlDeviceGetCurrentClocksEventReasons", wide=True)
        if reasons is None:  # the older name
            reasons = self._try("nvmlDeviceGetCurrentClocksThrottleReasons", wide=True)
        return GpuSample(
            seconds=time.perf_counter(),
            sm_mhz=self._try("nvmlDeviceGetClockInfo", _SM),
            memory_mhz=self._try("nvmlDeviceGetClockInfo", _MEMORY),
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
        while not self._stop.wait(_SAMPLE_SECONDS):
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
