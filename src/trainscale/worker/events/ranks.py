"""The events that a rank sends."""

from __future__ import annotations

from dataclasses import dataclass, field

from .base import RESULT_KIND, Event


@dataclass(frozen=True)
class Hello(Event):
    """The rank has imported its framework: its host, process id, role, versions and C allocator variables."""

    kind = "hello"
    sender = "rank"
    host: str
    pid: int
    role: str
    versions: dict[str, str]
    allocator: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready(Event):
    """The network is built: its parameter count, and the unit in which its samples are counted."""

    kind = "ready"
    sender = "rank"
    parameters: int | None = None  # servers and schedulers may not know it
    unit: str = "images"


@dataclass(frozen=True)
class Heartbeat(Event):
    """The phase and step that the rank has reached, and the CPU seconds of its process so far."""

    kind = "heartbeat"
    sender = "rank, once a second"
    phase: str
    step: int
    cpu_seconds: float = 0.0


@dataclass(frozen=True)
class CallStack(Event):
    """The Python calls in which the rank is, the outermost first, each as `FILE:LINE FUNCTION`."""

    kind = "stack"
    sender = "rank, after 5 s in the same step"
    calls: list[str]


@dataclass(frozen=True)
class FirstSteps(Event):
    """The losses of the rank's first steps, and the sketch of how they changed its weights."""

    kind = "first-steps"
    sender = "rank, before the window"
    losses: list[float]
    total: str  # 64 little-endian float64 numbers in base64
    obstacle: str = ""  # why the first steps cannot be compared; then there are no numbers


@dataclass(frozen=True)
class TensorSketches(Event):
    """How the first steps changed single tensors, or by which gradients the closing steps did, up to four a line."""

    kind = "sketches"
    sender = "last worker, before and after the window"
    names: list[str]
    sketches: list[str]  # one for each name, encoded as in `first-steps`
    is_closing: bool = False


@dataclass(frozen=True)
class WindowProof(Event):
    """How much work the device still had when the window ended, and what weight decay has left of the head."""

    kind = "window-proof"
    sender = "rank, after the window"
    updates: int  # that the weights have had since the start
    unfinished_seconds: float
    decay: float | None  # the share of the head's class sum that is left; None where it cannot be known
    expected_decay: float
    next_decay: float  # after one more update
    counted_updates: int | None = None  # by the framework's own counter; None where it has none
    outer_seconds: float | None = None  # of the window, by a second clock around it


@dataclass(frozen=True)
class ClosingSteps(Event):
    """The losses of steps from the initial weights after the window, and the gradients that updated them."""

    kind = "closing-steps"
    sender = "rank, after the window"
    losses: list[float]
    gradients: list[str]  # of all weights: a sketch for each two steps, encoded as in `first-steps`
    head_gradients: list[str]  # of the head's weights
    change: float = 0.0  # the length of the longest update, divided by the learning rate


@dataclass(frozen=True)
class EpochSamples(Event):
    """Which samples the rank has trained on in an epoch: how many, and the sum of the hashes of their numbers."""

    kind = "epoch-samples"
    sender = "rank, where it trains on real data"
    train: int  # samples of the data set
    epoch: int
    count: int
    hash_sum: int
    complete: bool


@dataclass(frozen=True)
class SampleFlags(Event):
    """A piece of the flags of the samples that the rank's first epoch had, as text."""

    kind = "sample-flags"
    sender = "rank, where it trains on real data"
    text: str


@dataclass(frozen=True)
class Steps(Event):
    """Step times, up to 200 a line."""

    kind = "steps"
    sender = "rank, after the window"
    first: int  # the index of the first of them
    seconds: list[float]


@dataclass(frozen=True)
class Memory(Event):
    """Peaks of memory on the device, in the rank, and in the processes that prepare its images."""

    kind = "memory"
    sender = "rank"
    device_peak_bytes: int | None = None  # by the framework's allocator
    host_peak_bytes: int | None = None
    loaders_peak_bytes: int | None = None


@dataclass(frozen=True)
class MemoryLimit(Event):
    """How much memory the rank may allocate."""

    kind = "limit"
    sender = "rank, where its memory is limited"
    memory_limit_bytes: int


@dataclass(frozen=True)
class EpochEnd(Event):
    """Losses and accuracies of one epoch, of all ranks together."""

    kind = "epoch"
    sender = "rank 0, where it trains to an accuracy"
    epoch: int  # from 1
    seconds: float  # of the steps, without the very first one
    samples: int
    train_loss: float | None
    train_accuracy: float
    valid_loss: float | None
    valid_accuracy: float
    valid_samples: int
    waited_seconds: float = 0.0
    evaluation_seconds: float = 0.0


@dataclass(frozen=True)
class Resident(Event):
    """How long steps take on one batch that stays on the device."""

    kind = "resident"
    sender = "rank, where it trains on real data"
    steps: int
    seconds: float


@dataclass(frozen=True)
class Exchanges(Event):
    """How long gradients of several sizes take to exchange while nothing is computed."""

    kind = "exchanges"
    sender = "rank, after the window, with --explain"
    bytes: list[int]
    counts: list[int]
    seconds: list[float]  # of all exchanges of a size


@dataclass(frozen=True)
class FurtherBatches(Event):
    """How long steps take with other batches."""

    kind = "batches"
    sender = "rank of one device, after the window, with --explain"
    batches: list[int]
    steps: list[int]
    seconds: list[float]  # of all steps with a batch


@dataclass(frozen=True)
class Result(Event):
    """What a worker measured in its window."""

    kind = RESULT_KIND
    sender = "rank"
    samples: int
    steps: int
    warmup: int
    window_seconds: float
    startup_seconds: float
    first_step_seconds: float
    first_loss: float
    last_loss: float
    cpu_seconds: float
    involuntary_switches: int
    weights_digest: str
    waited_seconds: float | None = None  # for samples that were not ready
    core_wait_seconds: float | None = None  # in which threads were ready to run but had no core
    energy_joules: float | None = None  # in the window
    energy_source: str = ""  # nvml: of this rank's GPU; rapl: of the processors of its host
    witness_seconds: float = 0.0  # that proving the work took, before and after the window
    window_began: float | None = None  # by time.perf_counter of its host; the keeper dates its samples by that clock
    compilation: str = ""  # cold, warm or none: whether the rank compiled programs up to the window's end


@dataclass(frozen=True)
class ServerResult(Event):
    """What a parameter server or scheduler served."""

    kind = "served"
    sender = "rank"
    updates: int | None = None
    bytes: int | None = None  # of the weights that it held
    staleness_mean: float | None = None  # updates that a gradient was behind
    staleness_max: int | None = None


@dataclass(frozen=True)
class RankError(Event):
    """The rank fails: `oom`, `port`, `refused` or `crash`, and one line of explanation."""

    kind = "error"
    sender = "rank, parity, expectation"
    error: str
    message: str
