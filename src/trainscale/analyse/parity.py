"""Whether two frameworks computed the same: every difference between their numbers against its tolerance.

float64 is strict, because only the order of sums differs. Numbers in float32, the timed precision, are compared with
the reference's float64. A single ReLU near zero may flip and change gradients, so these tolerances are wider, but no
computation with fewer bits meets them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..record.parity import FAILED, PROVEN, Check


@dataclass(frozen=True)
class Allowance:
    """The bounds of a tolerance that depends on the network."""

    least: float
    most: float


# Relative differences. docs/method.md has the figures of all frameworks; deeper networks come closer. ResNet-152
# amplifies the last bit of a float64 by seven orders of magnitude.
LOGITS_64 = 1e-7
LOSSES_64 = 1e-6
WEIGHTS_64 = 1e-4  # of the change in three steps, not of the weights themselves
STATISTICS_64 = 1e-5
# How far float32 may lie from float64 depends on the network: a deep one amplifies rounding a thousand times more than
# one of three layers. So a framework may differ as much as the reference does, times a factor. TF32 has 2¹³ times the
# rounding of float32 and bfloat16 2¹⁶ times. The reference is held to the same factor, and both to a limit.
FLOAT32_FACTOR = 30.0
LOGITS_32 = Allowance(3e-6, 5e-3)
# The least is larger than for the others, because a single number may lie near the exact one by chance.
FIRST_LOSS_32 = Allowance(3e-5, 5e-4)
FIRST_STATISTICS_32 = Allowance(3e-5, 1e-2)
CLOSEST_TENSOR_32 = Allowance(3e-5, 1e-2)
# A ReLU near zero that comes out on the other side changes the gradients of all layers before it, by far more than
# rounding. So these only show whether the right update was made, of every tensor and in every step.
FIRST_UPDATE_32 = 0.1
FIRST_TENSOR_32 = 0.5
LOSSES_32 = 2e-2
WEIGHTS_32 = 0.5
DROPPED_DEVIATIONS = 5.0  # standard deviations of the share of zeros
KEPT = 1e-6  # of the value that is not dropped
PIXELS = 1e-6
# A tensor that hardly changes (a bias before batch norm has no gradient, only weight decay) is compared with this share
# of the other tensors' change.
_LEAST_CHANGE = 1e-3


Measure = Callable[[str, "ParityNumbers", "ParityNumbers", str, float], Check]


@dataclass(frozen=True)
class ParityNumbers:
    """What a framework computed in one precision: arrays ``before/NAME``, ``logits/0``, ``losses``, ``first/NAME``,
    ``first-statistics/NAME``, ``after/NAME``, ``statistics/NAME`` and, in float32, ``dropout/NAME`` and ``pixels``.
    """

    parameters: int
    macs: int
    arrays: Mapping[str, Sequence[float]]

    def select_part(self, start: str) -> dict[str, Sequence[float]]:
        return {name: values for name, values in self.arrays.items() if name.startswith(start)}


def compare(
    reference: tuple[ParityNumbers, ParityNumbers], other: tuple[ParityNumbers, ParityNumbers]
) -> tuple[Check, ...]:
    """Return all checks. Each side gives its numbers in float64 and in float32."""
    (exact, baseline), (double, single) = reference, other
    return (
        _check_count("parameters", exact.parameters, double.parameters),
        _check_count("multiply-adds", exact.macs, double.macs),
        _check_largest("initial weights", exact, double, "before/", 0.0),
        _check_largest("initial weights, float32", exact, single, "before/", 0.0),
        _check_largest("logits, float64", exact, double, "logits/", LOGITS_64),
        _check_worst_change("weights after 3 steps, float64", exact, double, "after/", WEIGHTS_64),
        _check_largest("losses of 3 steps, float64", exact, double, "losses", LOSSES_64),
        _check_largest("running statistics, float64", exact, double, "statistics/", STATISTICS_64),
        *_check_float32(exact, baseline, single),
        *_check_dropout(baseline, single),
        *_check_pixels(single),
    )


def _check_float32(exact: ParityNumbers, baseline: ParityNumbers, single: ParityNumbers) -> list[Check]:
    """Compare the timed precision with the reference's float64; ``baseline`` is the reference's own float32."""

    def both(measure: Measure, name: str, part: str, allowance: Allowance) -> Check:
        reference, own = (measure(name, exact, numbers, part, allowance.most) for numbers in (baseline, single))
        return _check_as_close(reference, own, allowance)

    return [
        both(_check_largest, "logits, float32", "logits/", LOGITS_32),
        both(_check_first_loss, "first loss, float32", "losses", FIRST_LOSS_32),
        both(_check_largest, "first running statistics, float32", "first-statistics/", FIRST_STATISTICS_32),
        both(_check_closest_change, "closest tensor after the first step, float32", "first/", CLOSEST_TENSOR_32),
        _check_total_change("weights after the first step, float32", exact, single, "first/", FIRST_UPDATE_32),
        _check_worst_change("each tensor after the first step, float32", exact, single, "first/", FIRST_TENSOR_32),
        _check_largest("losses of 3 steps, float32", exact, single, "losses", LOSSES_32),
        _check_total_change("weights after 3 steps, float32", exact, single, "after/", WEIGHTS_32),
    ]


def _check_as_close(reference: Check, own: Check, allowance: Allowance) -> Check:
    """Check that a float32 result is about as close to float64 as the reference's, and the reference's as it."""
    if own.difference is None or reference.difference is None:
        return own if own.difference is None else reference
    of_reference, of_own = (
        min(allowance.most, max(allowance.least, FLOAT32_FACTOR * difference))
        for difference in (own.difference, reference.difference)
    )
    if reference.difference > of_reference:
        detail = (
            f"the reference differs by {reference.difference:.1e} from its own float64, this by {own.difference:.1e}"
        )
        return Check(own.name, reference.difference, of_reference, detail)
    detail = f"differ by {own.difference:.1e} from float64, tolerance {of_own:.0e}"
    return Check(own.name, own.difference, of_own, detail)


def judge(checks: Sequence[Check]) -> tuple[str, str]:
    """Return the state and, if it is not proven, the reason: the first check that failed causes the later ones."""
    failed = [check for check in checks if not check.ok]
    if not failed:
        return PROVEN, ""
    first = failed[0]
    return FAILED, f"{first.name}: {first.words}"


def _check_count(name: str, a: int, b: int) -> Check:
    return Check(name, float(abs(a - b)), 0.0, f"{b:,} against {a:,}")


def _check_largest(name: str, a: ParityNumbers, b: ParityNumbers, part: str, tolerance: float) -> Check:
    """Check the largest difference of a value, relative to the largest value of its array."""
    ours, theirs = a.select_part(part), b.select_part(part)
    mismatch = _find_mismatch(ours, theirs)
    if mismatch:
        return Check(name, None, tolerance, mismatch)
    worst, where = 0.0, ""
    for key, values in ours.items():
        scale = max(map(abs, values), default=0.0) or 1.0
        difference = max((abs(x - y) for x, y in zip(values, theirs[key], strict=True)), default=0.0) / scale
        if not math.isfinite(difference):
            return Check(name, None, tolerance, f"{_shorten_key(key)} is not finite")
        if difference > worst:
            worst, where = difference, key
    return Check(name, worst, tolerance, f"differ by {worst:.1e}{_describe_key(where)}, tolerance {tolerance:.0e}")


def _check_first_loss(name: str, a: ParityNumbers, b: ParityNumbers, part: str, tolerance: float) -> Check:
    """Check the loss before any update."""
    ours, theirs = (ParityNumbers(0, 0, {part: numbers.arrays[part][:1]}) for numbers in (a, b))
    return _check_largest(name, ours, theirs, part, tolerance)


def _check_closest_change(name: str, a: ParityNumbers, b: ParityNumbers, part: str, tolerance: float) -> Check:
    """Check how differently the first step changed the kernel or matrix that is closest.

    No ReLU comes after the last matrix, so in float32 its gradient is exact to rounding. With fewer bits none is.
    """
    mismatch = _find_mismatch(a.select_part(part), b.select_part(part))
    if mismatch:
        return Check(name, None, tolerance, mismatch)
    lengths = _measure_changes(a, b, part)
    matrices = [key for key in lengths if key.endswith(".weight")] or list(lengths)
    shares = {key: lengths[key][1] / max(lengths[key][0], 1e-300) for key in matrices}
    where = min(shares, key=shares.__getitem__)
    return _make_change_check(name, shares[where], where, tolerance)


def _measure_changes(a: ParityNumbers, b: ParityNumbers, part: str) -> dict[str, tuple[float, float]]:
    """Return, for every tensor, how much training changed it and how much the two sides differ afterwards."""
    before, theirs = a.select_part("before/"), b.select_part(part)
    return {
        key: (math.dist(values, before["before/" + _shorten_key(key)]), math.dist(values, theirs[key]))
        for key, values in a.select_part(part).items()
    }


def _check_worst_change(name: str, a: ParityNumbers, b: ParityNumbers, part: str, tolerance: float) -> Check:
    """Check how differently training changed each tensor, relative to its change."""
    mismatch = _find_mismatch(a.select_part(part), b.select_part(part))
    if mismatch:
        return Check(name, None, tolerance, mismatch)
    lengths = _measure_changes(a, b, part)
    typical = math.sqrt(sum(change**2 for change, _ in lengths.values()) / max(1, len(lengths)))
    least = max(_LEAST_CHANGE * typical, 1e-300)
    shares = {key: difference / max(change, least) for key, (change, difference) in lengths.items()}
    where = max(shares, key=lambda key: shares[key] if math.isfinite(shares[key]) else math.inf)
    return _make_change_check(name, shares[where], where, tolerance)


def _check_total_change(name: str, a: ParityNumbers, b: ParityNumbers, part: str, tolerance: float) -> Check:
    """Check how differently training changed all weights together, relative to their change."""
    mismatch = _find_mismatch(a.select_part(part), b.select_part(part))
    if mismatch:
        return Check(name, None, tolerance, mismatch)
    changes, differences = zip(*_measure_changes(a, b, part).values(), strict=True)
    return _make_change_check(name, math.hypot(*differences) / max(math.hypot(*changes), 1e-300), "", tolerance)


def _make_change_check(name: str, share: float, where: str, tolerance: float) -> Check:
    if not math.isfinite(share):
        return Check(name, None, tolerance, f"{_shorten_key(where) or 'a weight'} is not finite")
    return Check(
        name,
        share,
        tolerance,
        f"differ by {share:.1e} of their change{_describe_key(where)}, tolerance {tolerance:.0e}",
    )


def _check_dropout(reference: ParityNumbers, numbers: ParityNumbers) -> list[Check]:
    """Check that every dropout layer drops its rate and scales the rest up to the same mean."""
    expected, layers = reference.select_part("dropout/"), numbers.select_part("dropout/")
    mismatch = _find_mismatch(expected, layers)
    if mismatch:
        return [Check("dropout rates", None, DROPPED_DEVIATIONS, mismatch)]
    if not layers:
        return []
    deviations, scales = {}, {}
    for name, (share, kept, rate, count) in layers.items():
        deviations[name] = abs(share - rate) / math.sqrt(max(rate * (1 - rate), 1e-12) / count)
        scales[name] = abs(kept * (1 - rate) - 1)
    where = max(deviations, key=deviations.__getitem__)
    share, _, rate, _ = layers[where]
    detail = f"{_shorten_key(where)} drops {share:.4f} of its values, its rate is {rate:g}"
    worst = max(scales.values())
    return [
        Check("dropout rates", deviations[where], DROPPED_DEVIATIONS, detail),
        Check("scale of what is kept", worst, KEPT, f"differs by {worst:.1e}, tolerance {KEPT:.0e}"),
    ]


def _check_pixels(numbers: ParityNumbers) -> list[Check]:
    """Check that 8-bit images become the same numbers on the device as on the host."""
    if "pixels" not in numbers.arrays:
        return []
    difference, wrong_labels = numbers.arrays["pixels"]
    if wrong_labels or not math.isfinite(difference):
        return [Check("8-bit images", None, PIXELS, "another shape or other labels than those of place")]
    return [Check("8-bit images", difference, PIXELS, f"differ by {difference:.1e}, tolerance {PIXELS:.0e}")]


def _find_mismatch(a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]]) -> str:
    """Return what only one side has; empty if both have the same arrays of the same sizes."""
    if a.keys() != b.keys():
        unmatched = min(a.keys() ^ b.keys())
        return f"only one of the two has {_shorten_key(unmatched)}"
    uneven = next((key for key in a if len(a[key]) != len(b[key])), None)
    return f"{_shorten_key(uneven)} has {len(b[uneven]):,} values against {len(a[uneven]):,}" if uneven else ""


def _shorten_key(key: str) -> str:
    return key.partition("/")[2] or key


def _describe_key(key: str) -> str:
    return f" in {_shorten_key(key)}" if key.startswith(("before/", "first/", "after/", "statistics/")) else ""


def read_numbers(data: bytes, index: Mapping[str, int]) -> dict[str, Sequence[float]]:
    """Read little-endian float64 arrays that follow each other; ``index`` has the length of each, in order."""
    values = array("d")
    values.frombytes(data)
    if array("H", [1]).tobytes() != b"\x01\x00":
        values.byteswap()
    arrays: dict[str, Sequence[float]] = {}
    start = 0
    for name, count in index.items():
        arrays[name] = values[start : start + count]
        start += count
    return arrays
