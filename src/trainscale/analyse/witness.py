"""The verdict on a trial: whether it did the work that it was timed for.

The first steps are compared with those of the reference network, the closing steps with the first.
Updates, clock and samples are checked, without the code that deals out samples.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import mul

from ..record.parity import PROVEN, REFUTED, UNPROVEN, Check, WitnessVerdict
from ..record.trial import Failure, TrialRecord
from ..worker.data.facts import SYNTHETIC
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.sample import HASH_MODULUS, SeenByRank, compute_hash_sum, unpack_flags
from ..worker.training.loop import RESIDENT_WARMUP
from .checks import STEPS_OFF_WINDOW
from .throughput import is_synchronous

_UPDATES = 0.45  # at least: rounding grows with their number (Framework.update_count_error)
_COUNTED_PRECISION = "fp32"  # others do not sum to zero precisely enough over the classes
UNFINISHED_SHARE, _UNFINISHED_SECONDS = 0.01, 0.02  # of the window, but at least a scheduler's delay
_SECOND_CLOCK_SECONDS = 0.05  # for which a busy machine may stop a process between two readings
_DEVIATION = 0.2  # samples are standard normal; an image of 28 pixels a side has 1 ± 0.025
_SAME_BY_CHANCE = 1e-9  # how likely random labels may be all alike, where that refutes a trial
_TINY = 1e-300  # in place of a divisor of 0

Sketch = tuple[float, ...]  # 64 numbers (worker/witness/sketch.py)


@dataclass(frozen=True)
class SampleFacts:
    """The samples of the first step, on rank 0 and the last rank."""

    deviation: float  # standard deviation of their values
    copies: float  # of another one
    label_kinds: float
    count: float


@dataclass(frozen=True)
class Expectation:
    """What a correct trial computes in its first steps, by the reference network.

    Spreads are relative: how far a correct computation in the timed precision may be from the exact one.
    """

    losses: tuple[tuple[float, ...], ...]  # of each step and worker; asynchronous servers: one step
    sketches: Mapping[str, Sketch]  # change of each tensor of the last worker, after the last step
    totals: tuple[Sketch, ...]  # change of all tensors: one sketch for all workers, or one for each
    loss_spreads: tuple[float, ...]  # of each step
    spreads: Mapping[str, float]  # of each tensor
    total_spread: float
    arithmetic: str = "fp64"  # of the reference; fp32 where there was no memory for fp64
    # What a first step subtracts from the weights, divided by the learning rate: for all workers, or each.
    gradients: tuple[Sketch, ...] = ()
    gradient_spread: float = 0.0
    head_gradients: tuple[Sketch, ...] = ()  # of the head's weights alone
    head_gradient_spread: float = 0.0
    tensor_gradients: Mapping[str, Sketch] = field(default_factory=dict)  # of the last worker
    tensor_gradient_spreads: Mapping[str, float] = field(default_factory=dict)
    samples: SampleFacts | None = None
    initial_losses: tuple[float, ...] = ()  # with the initial weights; empty: the first ones


@dataclass(frozen=True)
class Tolerances:
    """How much a trial may differ, relatively: ``spreads`` times the spread, at least these."""

    spreads: float
    loss: float
    size: float  # of the change of all weights
    total: float  # of the change of all weights, also in direction
    tensor: float  # of the change of a single tensor
    head: float  # of the gradient of the head's weights, in which nothing is decided the other way
    head_spreads: float  # in place of ``spreads`` there; other convolutions may round that much more


# By precision. Frameworks sum in other orders, so a value near zero before a ReLU may be decided the other way.
# That changed all weights by up to 8e-4 of their change in fp32, and a tensor by 1.2e-2 (docs/method.md).
TOLERANCES = {
    "fp32": Tolerances(10.0, 3e-6, 5e-4, 3e-3, 3e-2, 2e-4, 30.0),
    "tf32": Tolerances(8.0, 1e-4, 2e-3, 1e-2, 1e-1, 1e-2, 24.0),
    "bf16": Tolerances(4.0, 2e-3, 5e-3, 2e-2, 2e-1, 2e-1, 4.0),
    "fp16": Tolerances(4.0, 1e-3, 5e-3, 2e-2, 2e-1, 2e-1, 4.0),
}
_OTHER_DECISIONS = 5e-5  # of a change of the loss: ten times what such decisions were seen to make
_LEAST_CHANGE = 1e-2  # of the typical change: a tensor that changes less is compared with this
EQUAL = 1e-5  # ranks that train together have the same weights, to the last bits of their sums
_UPDATE_ERROR = 5e-7  # of an update in float32, as weights are kept in every precision: four roundings


class _Trial:
    def __init__(self, record: TrialRecord) -> None:
        self.record = record
        self.config = record.trial.config
        self.last = record.trial.devices - 1
        self.witnesses = {rank.rank: rank.witness for rank in record.ranks if rank.witness}
        self.checks: dict[str, tuple[Check, int | None]] = {}  # of the rank that differs most

    def add(
        self, name: str, rank: int | None, difference: float, tolerance: float, message: str, group: str = ""
    ) -> None:
        finite = float(difference) if math.isfinite(difference) else None
        size = f"by {difference:.1e}" if finite is not None else "without bound"
        words = f"{message} (differs {size}, tolerance {tolerance:.1e})"
        self.add_check(Check(name, finite, tolerance, words), rank, group)

    def add_check(self, check: Check, rank: int | None, group: str = "") -> None:
        def find_size(check: Check) -> tuple[bool, float]:
            return not check.ok, math.inf if check.difference is None else check.difference

        worst, _ = self.checks.get(group or check.name, (None, None))
        if worst is None or find_size(check) > find_size(worst):
            self.checks[group or check.name] = check, rank


def find_point_verdict(records: Sequence[TrialRecord]) -> WitnessVerdict | None:
    """Return the first verdict that is not proven. None in older journals."""
    verdicts = [record.witness for record in records if record.witness is not None]
    unproven = [verdict for verdict in verdicts if verdict.state != PROVEN]
    return next(iter(unproven or verdicts), None)


def apply_verdict(record: TrialRecord, expectation: Expectation | str) -> TrialRecord:
    """Return the record with its verdict. A refuted trial is a failed one."""
    if not record.ok:
        return record
    verdict = judge(record, expectation)
    record = replace(record, witness=verdict)
    if verdict.state != REFUTED:
        return record
    ranks = record.ranks if record.hosts > 1 else ()
    host = next((rank.host for rank in ranks if rank.rank == verdict.rank), "")
    message = f"{verdict.reason} (rank {verdict.rank} is on {host})" if host else verdict.reason
    return replace(record, status=REFUTED, failure=Failure(REFUTED, message, verdict.rank, host=host))


def judge(record: TrialRecord, expectation: Expectation | str) -> WitnessVerdict:
    """Return the verdict on a measured trial. A text says why there is no expectation."""
    trial = _Trial(record)
    if isinstance(expectation, Expectation):
        _check_first_steps(trial, expectation)
        _check_closing_steps(trial, expectation)
        _check_random_samples(trial, expectation)
    _check_updates(trial)
    _check_equal_weights(trial)
    _check_clocks(trial)
    if record.samples_seen:
        batch = trial.config.batch_per_device(record.trial.devices)
        problem = find_sample_problem(batch, record.samples_seen)
        trial.add_check(Check("samples", None if problem else 0.0, 0.0, problem or ""), None)
    recorded = tuple(check for check, _ in trial.checks.values())
    for check, rank in trial.checks.values():
        if not check.ok:
            return WitnessVerdict(REFUTED, check.words, rank, recorded)
    if not isinstance(expectation, Expectation):
        return WitnessVerdict(UNPROVEN, expectation, checks=recorded)
    for sample in record.ranks:
        if not sample.witness or not sample.witness.losses:
            obstacle = sample.witness.obstacle if sample.witness else ""
            reason = obstacle or f"rank {sample.rank} reported nothing about its first steps"
            return WitnessVerdict(UNPROVEN, reason, sample.rank, recorded)
    return WitnessVerdict(PROVEN, checks=recorded)


# ---- the steps that are compared


def _check_first_steps(trial: _Trial, expectation: Expectation) -> None:
    limits, last = TOLERANCES[trial.config.precision], trial.last
    for step, expected in enumerate(expectation.losses):
        tolerance = max(limits.loss, limits.spreads * expectation.loss_spreads[step])
        if step:  # before it, a ReLU near zero or a max pool may have been decided the other way
            before, after = (math.fsum(losses) for losses in expectation.losses[step - 1 : step + 1])
            share = _OTHER_DECISIONS * abs(after - before) / max(abs(after), _TINY)
            tolerance = max(tolerance, share)
        for rank, witness in trial.witnesses.items():
            if step < len(witness.losses):
                _check_loss(trial, f"step {step + 1}", rank, witness.losses[step], expected, tolerance)

    count = len(expectation.losses)
    steps = "after one step" if count == 1 else f"after {count} steps"
    totals = {rank: witness.total for rank, witness in trial.witnesses.items() if witness.total}
    tensor = _find_worst_tensor(trial.record.sketches, expectation.sketches, expectation.spreads, limits)
    for rank, total in totals.items():
        where = f"{steps}, rank {rank}: the change of the weights"
        expected = _select_sketch(expectation.totals, rank)
        length = math.fsum(value * value for value in expected)
        size = math.inf  # in the expected direction
        if length and len(total) == len(expected):
            size = math.fsum(map(mul, total, expected)) / length
        tolerance = max(limits.size, limits.spreads * expectation.total_spread / 2)
        words = f"{where} is {size:.5g} times the expected one"
        trial.add("size of the change", rank, abs(size - 1), tolerance, words)

        difference = _find_difference(total, expected)
        tolerance = max(limits.total, limits.spreads * expectation.total_spread)
        words = f"{where} differs by {_format_share(difference)} from the expected one"
        if difference > tolerance and tensor:
            words += f", most in {tensor[0]}"
        trial.add("change of all weights", rank, difference, tolerance, words)
    if tensor:
        name, difference, tolerance = tensor
        where = f"{steps}, rank {last}: the change of {name}"
        words = f"{where} differs by {_format_share(difference)} from the expected one"
        trial.add("change of each tensor", last, difference, tolerance, words)
    if len(expectation.totals) == 1 and last in totals and len(totals) > 1:
        for rank, total in totals.items():
            words = f"{steps}, ranks {rank} and {last} do not have the same weights"
            trial.add("equal weights", rank, _find_difference(total, totals[last]), EQUAL, words)


def _check_closing_steps(trial: _Trial, expectation: Expectation) -> None:
    limits, witnesses = TOLERANCES[trial.config.precision], trial.witnesses
    tolerance = max(limits.loss, limits.spreads * expectation.loss_spreads[0])
    expected_losses = expectation.initial_losses or expectation.losses[0]
    for rank, witness in witnesses.items():
        for number, loss in enumerate(witness.closing_losses, 1):
            _check_loss(trial, f"closing step {number}", rank, loss, expected_losses, tolerance)

    def check_gradient(part: str, rank: int, difference: float, tolerance: float, what: str) -> None:
        where = f"after the window, rank {rank}: steps from the initial weights update {part}"
        share = _format_share(difference)
        words = f"{where} by a gradient that differs by {share} from that of the first step"
        trial.add(f"gradient of {what} in the closing steps", rank, difference, tolerance, words)

    longest = max((witness.closing_change for witness in witnesses.values()), default=0.0)
    gradients = {rank: witness.gradients for rank, witness in witnesses.items()}
    of_head = {rank: witness.head_gradients for rank, witness in witnesses.items()}
    tolerance = max(limits.total, limits.spreads * expectation.gradient_spread)
    head_tolerance = max(limits.head, limits.head_spreads * expectation.head_gradient_spread)
    for part, own, expected, least in (
        ("the weights", gradients, expectation.gradients, tolerance),
        ("the head's weights", of_head, expectation.head_gradients, head_tolerance),
    ):
        # Where training diverges, the gradient is the small difference of two large updates.
        shortest = min((math.hypot(*gradient) for gradient in expected), default=0.0)
        tolerance = max(least, _UPDATE_ERROR * longest / shortest if shortest else 0.0)
        for rank, reported in own.items():
            if reported and expected:
                theirs = _select_sketch(expected, rank)
                difference = max(_find_difference(gradient, theirs) for gradient in reported)
                check_gradient(part, rank, difference, tolerance, part)
    seen, expected_tensors = trial.record.closing_sketches, expectation.tensor_gradients
    tensor = _find_worst_tensor(seen, expected_tensors, expectation.tensor_gradient_spreads, limits)
    if tensor:
        name, difference, tolerance = tensor
        check_gradient(name, trial.last, difference, tolerance, "each tensor")

    reported_by = {rank: own for rank, own in gradients.items() if own}
    if len(expectation.gradients) == 1 and len(reported_by) > 1:
        last = max(reported_by)
        # Hosts of different kinds may round differently.
        tolerance = max(EQUAL, expectation.gradient_spread)
        for rank, reported in reported_by.items():
            difference = max(map(_find_difference, reported, reported_by[last]))
            words = f"after the window, ranks {rank} and {last} update their weights by different gradients"
            trial.add("equal gradients in the closing steps", rank, difference, tolerance, words)


def _check_loss(
    trial: _Trial, step: str, rank: int, loss: float | None, expected: Sequence[float], tolerance: float
) -> None:
    """Check the loss of a rank. None is a loss that is not finite."""
    if rank < len(expected):
        text = "not finite" if loss is None else f"{loss:.7g}"
        words = f"{step}, rank {rank}: the loss is {text} where {expected[rank]:.7g} is expected"
        difference = _find_difference((math.nan if loss is None else loss,), (expected[rank],))
        trial.add(f"loss of {step}", rank, difference, tolerance, words)


def _find_worst_tensor(
    seen: Mapping[str, Sequence[float]],
    expected: Mapping[str, Sequence[float]],
    spreads: Mapping[str, float],
    limits: Tolerances,
) -> tuple[str, float, float] | None:
    if not seen or not expected:
        return None
    unmatched = expected.keys() ^ seen.keys()
    if unmatched:
        return min(unmatched), math.inf, limits.tensor
    lengths = [math.hypot(*sketch) for sketch in expected.values()]
    typical = math.sqrt(sum(length**2 for length in lengths) / len(lengths))
    tensors = []
    for (name, sketch), length in zip(expected.items(), lengths, strict=True):
        scale = max(length, _LEAST_CHANGE * typical, _TINY)
        difference = math.dist(seen[name], sketch) / scale
        difference = difference if math.isfinite(difference) else math.inf
        tolerance = max(limits.tensor, limits.spreads * spreads.get(name, 0.0) * length / scale)
        tensors.append((name, difference, tolerance))
    return max(tensors, key=lambda tensor: tensor[1] / tensor[2])


def _select_sketch(sketches: Sequence[Sketch], rank: int) -> Sketch:
    return sketches[rank] if len(sketches) > 1 else sketches[0]


def _find_difference(seen: Sequence[float], expected: Sequence[float]) -> float:
    """Return the distance relative to the expected length."""
    if len(seen) != len(expected):
        return math.inf
    difference = math.dist(seen, expected) / max(math.hypot(*expected), _TINY)
    return difference if math.isfinite(difference) else math.inf


def _format_share(difference: float) -> str:
    return f"{100 * difference:.2g} %" if math.isfinite(difference) else "more than any bound"


# ---- what is counted, timed and drawn


def _check_updates(trial: _Trial) -> None:
    """Count the updates: by framework, servers, and weight decay of the head."""
    config, witnesses = trial.config, trial.witnesses
    for rank, witness in witnesses.items():
        counted, updates = witness.counted_updates, witness.updates
        if counted is not None:
            name = "updates that the framework counted"
            words = f"rank {rank}: the framework has counted {counted} updates of the weights and not {updates}"
            trial.add(name, rank, abs(counted - updates), 0.0, words)

    counts = [server.updates for server in trial.record.servers if server.updates is not None]
    if config.strategy == "ps-async" and counts and witnesses:
        closing = sum(len(witness.closing_losses) for witness in witnesses.values())
        ranks = [rank for rank in trial.record.ranks if rank.resident_steps]
        resident = sum(rank.resident_steps + RESIDENT_WARMUP for rank in ranks)
        sent = next(iter(witnesses.values())).updates + closing + resident
        for count in counts:
            words = f"a server has counted {count} updates, where {sent} gradients were sent"
            trial.add("updates that the servers counted", None, abs(count - sent), 0.0, words)

    if config.precision != _COUNTED_PRECISION or not config.weight_decay:
        return
    surplus: dict[int, float] = {}
    for rank, witness in witnesses.items():
        one_update = witness.next_decay - witness.expected_decay
        if witness.decay is not None and one_update:
            off = (witness.decay - witness.expected_decay) / one_update
            surplus[rank] = off if math.isfinite(off) else math.inf
    if config.strategy == "ps-async" and surplus:  # the last to push has the newest weights
        newest = max(surplus, key=surplus.__getitem__)
        surplus = {newest: surplus[newest]}
    error = FRAMEWORKS[config.framework].update_count_error
    for rank, off in surplus.items():
        updates = witnesses[rank].updates
        by_decay = f"by their weight decay, the weights had {updates + off:.1f} updates and not {updates}"
        tolerance = max(_UPDATES, error * updates)
        trial.add("number of updates", rank, abs(off), tolerance, f"rank {rank}: {by_decay}")


def _check_equal_weights(trial: _Trial) -> None:
    """Check that ranks of one host end with the same weights; others may round differently."""
    ranks = [rank for rank in trial.record.ranks if rank.weights_digest and rank.witness]
    digests = {rank.rank: rank.weights_digest for rank in ranks}
    if not is_synchronous(trial.config) or trial.record.hosts > 1 or len(digests) < 2:
        return
    first = min(digests)
    other = next((rank for rank in sorted(digests) if digests[rank] != digests[first]), None)
    words = f"after the window, ranks {first} and {other} do not have the same weights"
    difference = None if other is not None else 0.0
    trial.add_check(Check("equal weights after the window", difference, 0.0, words), other)


def _check_clocks(trial: _Trial) -> None:
    batch, steps = trial.config.batch_per_device(trial.record.trial.devices), trial.record.steps
    for sample in trial.record.ranks:
        rank, witness, window = sample.rank, sample.witness, max(sample.window_seconds, 1e-9)
        if witness is None:
            continue
        left = witness.unfinished_seconds
        end = f"rank {rank}: when the window of {sample.window_seconds:.3g} s ended"
        work = f"the device still had {left:.3g} s of work to do"
        words = f"{end}, {work}, so the steps were not waited for"
        tolerance = max(UNFINISHED_SHARE, _UNFINISHED_SECONDS / window)
        trial.add("work left after the window", rank, left / window, tolerance, words)
        if len(sample.step_seconds) == steps and steps:  # lost lines have a flag of their own
            total = math.fsum(sample.step_seconds)
            words = f"rank {rank}: the {steps} steps took {total:.4g} s, the window {window:.4g} s"
            tolerance = max(STEPS_OFF_WINDOW, _UNFINISHED_SECONDS / window)
            name = "step times and window"
            trial.add(name, rank, abs(total / window - 1), tolerance, words)
            surplus = abs(sample.samples / (batch * steps) - 1)
            words = f"rank {rank}: {sample.samples} samples are counted in {steps} steps of {batch}"
            trial.add("samples in the window", rank, surplus, 0.0, words, group=name)
        if (outer := witness.outer_seconds) is not None:
            words = f"rank {rank}: the window took {window:.4g} s, and by a second clock {outer:.4g} s"
            tolerance = max(UNFINISHED_SHARE, _SECOND_CLOCK_SECONDS / window)
            trial.add("a second clock", rank, abs(outer / window - 1), tolerance, words)


def _check_random_samples(trial: _Trial, expectation: Expectation) -> None:
    """Check that synthetic samples are random: hardware may be faster on zeros."""
    facts = expectation.samples
    if facts is None or trial.config.data != SYNTHETIC:
        return
    words = f"the standard deviation of the synthetic samples is {facts.deviation:.3g} and not 1"
    trial.add("deviation of the samples", None, abs(facts.deviation - 1), _DEVIATION, words)
    words = f"{facts.copies:.0f} of {facts.count:.0f} synthetic samples are copies of another one"
    trial.add("copies among the samples", None, facts.copies, 0.0, words)
    if trial.config.classes ** (1 - facts.count) < _SAME_BY_CHANCE:
        words = f"all {facts.count:.0f} synthetic samples have the same label"
        trial.add("kinds of labels", None, float(facts.label_kinds < 2), 0.0, words)


def find_sample_problem(batch: int, ranks: Sequence[SeenByRank]) -> str | None:
    """Return the first problem of the samples of the ranks, or None.

    No sample comes twice in the first epoch. In finished epochs every rank has the right number, and no two
    have the same. Where no sample is left over, the sum of hashes shows that each came once.
    """
    import numpy as np

    train = ranks[0].train
    first_epochs: dict[int, int] = {}  # by rank a number whose bit i stands for sample i
    for entry in ranks:
        if not entry.flags:
            continue
        try:
            samples = unpack_flags(entry.flags)
        except ValueError as error:
            return str(error)
        first = entry.epochs[0] if entry.epochs else None
        distinct = samples.bit_count()
        if first and samples >> train:
            return f"rank {entry.rank} trained on a sample beyond the {train} of the data set"
        if first and distinct != first.count:
            count = f"{first.count} samples in epoch {first.epoch}"
            return f"rank {entry.rank} trained on {count}, of which only {distinct} are different"
        first_epochs[entry.rank] = samples
    taken = 0
    for rank, samples in first_epochs.items():
        if shared := taken & samples:
            lowest = (shared & -shared).bit_length() - 1
            other = next(other for other, theirs in first_epochs.items() if theirs >> lowest & 1)
            both = f"ranks {other} and {rank} both trained on sample {lowest}"
            return f"{both} ({shared.bit_count()} in common)"
        taken |= samples
    per_rank, left_over = divmod(train, batch * len(ranks))
    hash_sum = None if left_over else compute_hash_sum(np.arange(train))
    for epoch in sorted({seen.epoch for entry in ranks for seen in entry.epochs}):
        seen = [(entry.rank, part) for entry in ranks for part in entry.epochs if part.epoch == epoch]
        finished = {rank: part for rank, part in seen if part.complete}
        by_hash: dict[int, int] = {}
        for rank, part in finished.items():
            if part.count != per_rank * batch:
                return f"rank {rank} trained on {part.count} samples in epoch {epoch}, not {per_rank * batch}"
            if part.count and (other := by_hash.setdefault(part.hash_sum, rank)) != rank:
                return f"ranks {other} and {rank} trained on the same samples in epoch {epoch}"
        total = sum(part.hash_sum for part in finished.values()) % HASH_MODULUS
        if hash_sum is not None and len(finished) == len(ranks) and total != hash_sum:
            return f"the ranks together did not train on every sample of epoch {epoch} once"
    return None
