"""What a worker measured and what proves its work. The rank fills one ``Report`` as it goes
and sends it once. The journal stores its sample as it is.

To add a quantity, add a field here, set it where it is measured, and add its column.
"""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# Whether a rank compiled, read all needed programs from the cache, or needed none.
COLD, WARM, NONE = "cold", "warm", "none"


@dataclass(frozen=True)
class ExchangeTime:
    """How long ``count`` exchanges of gradients of one size took, after the window."""

    bytes: int
    count: int
    seconds: float


@dataclass(frozen=True)
class BatchTime:
    """How long ``steps`` steps took with another batch, after the window."""

    batch: int
    steps: int
    seconds: float


@dataclass(frozen=True)
class GpuState:
    """What a rank's GPU did in its window, by NVIDIA's driver. None is what it does not report."""

    samples: int
    sm_mhz_mean: float | None = None
    sm_mhz_min: int | None = None
    sm_mhz_limit: int | None = None  # the highest clock that the GPU has
    memory_mhz_mean: float | None = None
    memory_mhz_min: int | None = None
    memory_mhz_limit: int | None = None
    watts_mean: float | None = None
    watts_limit: float | None = None
    celsius_max: int | None = None
    limited_share: float = 0.0  # of the samples in which something limited its clocks
    limited_by: dict[str, float] = field(default_factory=dict)  # the share of each reason
    pcie_sent_per_second: float | None = None
    pcie_received_per_second: float | None = None
    nvlink_sent_per_second: float | None = None
    nvlink_received_per_second: float | None = None


@dataclass
class RankWitness:
    """What one worker reports about its first steps, its window and its closing steps."""

    losses: tuple[float | None, ...] = ()  # of the first steps; None where a loss is not finite
    total: tuple[float, ...] = ()  # the sketch of how the first steps changed its weights
    updates: int = 0  # that its weights have had since the start
    counted_updates: int | None = None  # the same by the framework's own counter
    unfinished_seconds: float = 0.0  # of work that its device had left when the window ended
    outer_seconds: float | None = None  # of the window by a second clock around it
    decay: float | None = None  # the share of the head's class sum that weight decay has left
    expected_decay: float = 1.0
    next_decay: float = 1.0  # after one more update
    closing_losses: tuple[float | None, ...] = ()  # from the initial weights, after the window
    gradients: tuple[tuple[float, ...], ...] = ()  # by which each two of them were updated
    head_gradients: tuple[tuple[float, ...], ...] = ()  # the same of the head's weights alone
    closing_change: float = 0.0  # the length of their longest update, divided by the rate
    obstacle: str = ""  # why its first steps cannot be compared
    seconds: float = 0.0  # that proving the work took, besides the first steps


@dataclass
class RankSample:
    """What one worker measured in its window. All times are in seconds, all memory is in bytes."""

    rank: int
    host: str
    samples: int
    window_seconds: float
    step_seconds: tuple[float, ...]
    startup_seconds: float = 0.0
    first_step_seconds: float = 0.0
    first_loss: float | None = None
    last_loss: float | None = None
    weights_digest: str | None = None
    device_peak_bytes: int | None = None  # as the framework's allocator counts
    nvml_peak_bytes: int | None = None  # as the driver counts, for its own processes; by the keeper
    nvml_note: str = ""  # why the driver's count is missing on a GPU
    host_peak_bytes: int | None = None
    loaders_peak_bytes: int | None = None  # the sum over this rank's loader processes
    cpu_seconds: float | None = None
    involuntary_switches: int | None = None
    waited_seconds: float | None = None  # part of the window in which no samples were ready
    core_wait_seconds: float | None = None  # of threads that were ready but had no core
    resident_steps: int = 0  # steps after the window, on one batch that stayed on the device
    resident_seconds: float = 0.0
    exchanges: tuple[ExchangeTime, ...] = ()  # with --explain: exchanges alone, by size
    further_batches: tuple[BatchTime, ...] = ()  # with --explain, on one device
    energy_joules: float | None = None  # in the window; None where nothing counts it
    energy_source: str = ""  # nvml: of this rank's GPU; rapl: of the processors of its host
    # By the keeper. None on CPUs, in older journals, and without samples.
    gpu: GpuState | None = None
    compilation: str = ""  # COLD, WARM or NONE; empty: unknown
    witness: RankWitness | None = None


@dataclass(frozen=True)
class SamplesSeen:
    """The samples of one epoch that a rank has trained on."""

    epoch: int
    count: int
    hash_sum: int  # of the numbers of its samples, modulo HASH_MODULUS
    complete: bool  # the rank was given every batch that it asked for


@dataclass(frozen=True)
class SeenByRank:
    """The samples of a data set of ``train`` samples that one worker trained on."""

    rank: int
    train: int
    epochs: tuple[SamplesSeen, ...]
    flags: str = ""  # of its first epoch; empty for a very large data set


@dataclass
class Report:
    """All that a worker sends: its sample, and what is too large for the journal."""

    sample: RankSample
    warmup: int = 0  # steps before the window
    window_began: float | None = None  # by time.perf_counter of its host
    # From the last worker: each tensor's change in the first steps, and closing gradients.
    sketches: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    closing_sketches: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    seen: SeenByRank | None = None  # with real data

    @property
    def witness(self) -> RankWitness:
        if self.sample.witness is None:
            self.sample.witness = RankWitness()
        return self.sample.witness


def describe_compilation(needed: int, cached: int) -> str:
    """Return the state of a rank, of whose ``needed`` programs a cache had ``cached``."""
    if not needed:
        return NONE
    return WARM if cached >= needed else COLD


def keep_finite(value: float) -> float | None:
    """Return None for NaN and infinity, which JSON does not have."""
    return value if math.isfinite(value) else None


# ---- which samples of a data set a rank has trained on, so that the ranks can be compared

MOST_SAMPLES = 16_000_000  # with flags: 16 MB of memory, 2 MB to send
HASH_MODULUS = 2**61 - 1


def compute_hash_sum(samples: Any) -> int:
    """Return the sum of a 64-bit hash (a bijection) of sample numbers, modulo 2⁶¹ - 1.

    Two different sets of samples have the same sum with a probability of 2⁻⁶¹.
    """
    import numpy as np

    mixed = np.asarray(samples).astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    mixed ^= mixed >> np.uint64(31)
    # Halves, so that the sums of up to 2³² hashes fit into 64 bits.
    high, low = int((mixed >> np.uint64(32)).sum()), int((mixed & np.uint64(2**32 - 1)).sum())
    return ((high << 32) + low) % HASH_MODULUS


class SamplesTracker:
    """Counts the samples of a rank, which has ``share`` of the ``train`` samples in an epoch.

    ``flags`` say which samples the first epoch had; None for a very large data set.
    """

    def __init__(self, train: int, share: int) -> None:
        import numpy as np

        self.flags: Any = np.zeros(train, np.bool_) if train <= MOST_SAMPLES else None
        self.epochs: dict[int, SamplesSeen] = {}
        self._share = share

    def add(self, epoch: int, samples: Any, hash_sum: int) -> None:
        seen = self.epochs.get(epoch, SamplesSeen(epoch, 0, 0, False))
        count, total = seen.count + len(samples), (seen.hash_sum + hash_sum) % HASH_MODULUS
        self.epochs[epoch] = SamplesSeen(epoch, count, total, count == self._share)
        if self.flags is not None and epoch == next(iter(self.epochs)):
            self.flags[samples] = True


def pack_flags(flags: Any) -> str:
    import numpy as np

    packed = np.packbits(flags, bitorder="little").tobytes()
    return base64.b64encode(zlib.compress(packed, 1)).decode()


def unpack_flags(text: str) -> int:
    """Return the whole number whose bit i is flag i. Raises ValueError."""
    try:
        return int.from_bytes(zlib.decompress(base64.b64decode(text, validate=True)), "little")
    except zlib.error as error:
        raise ValueError(f"damaged flags of samples: {error}") from None
