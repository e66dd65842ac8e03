"""Whether two frameworks computed the same: every difference between their numbers against its tolerance.

Numbers in float32 are compared with the reference's float64; no computation with fewer bits meets their tolerances.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ..record.parity import FAILED, PROVEN, Check


@dataclass(frozen=True)
class Allowance:
    """The bounds of a tolerance that depends on the network."""

    least: float
    most: float


# Relative differences. docs/method.md has the figures of all frameworks.
LOGITS_64 = 1e-7
LOSSES_64 = 1e-6
WEIGHTS_64 = 1e-4  # of the change in three steps, not of the weights themselves
STATISTICS_64 = 1e-5
# A deep network amplifies rounding, so float32 may differ from float64 as much as the reference does, times this,
# up to a limit. The reference is held to the same. TF32 has 2¹³ times the rounding of float32.
FLOAT32_FACTOR = 30.0
LOGITS_32 = Allowance(3e-6, 5e-3)
FIRST_LOSS_32 = Allowance(3e-5, 5e-4)  # a single number may be near the exact one by chance
FIRST_STATISTICS_32 = Allowance(3e-5, 1e-2)
CLOSEST_TENSOR_32 = Allowance(3e-5, 1e-2)
# A ReLU near zero may flip, so these only show whether the right update was made.
FIRST_UPDATE_32 = 0.1
FIRST_TENSOR_32 = 0.5
LOSSES_32 = 2e-2
WEIGHTS_32 = 0.5
DROPPED_DEVIATIONS = 5.0  # standard deviations of the share of zeros
KEPT = 1e-6  # of the value that is not dropped
PIXELS = 1e-6
_LEAST_CHANGE = 1e-3  # of the others' change, for a tensor that changes less, as a bias before batch norm


@dataclass(frozen=True)
class ParityNumbers:
    """What a framework computed in one precision (worker/inspection/parity.py)."""

    parameters: int
    macs: int
    arrays: Mapping[str, Sequence[float]]

    def select_part(self, start: str) -> dict[str, Sequence[float]]:
        return {name: values for name, values in self.arrays.items() if name.startswith(start)}


# Returns by how much two sides differ in arrays of one kind, and in which most.
Measure = Callable[[ParityNumbers, ParityNumbers, str], tuple[float, str]]


def compare(
    reference: tuple[ParityNumbers, ParityNumbers], other: tuple[ParityNumbers, ParityNumbers]
) -> tuple[Check, ...]:
    """Return all checks. Each side gives its numbers in float64 and in float32."""
    (exact, baseline), (double, single) = reference, other

    def check_as_close(name: str, measure: Measure, part: str, allowance: Allowance) -> Check:
        """Check that float32 is as close to float64 as the reference's, and vice versa."""
        first, own = (_check(name, measure, exact, side, part, allowance.most) for side in (baseline, single))
        if own.difference is None or first.difference is None:
            return own if own.difference is None else first
        of_first, of_own = (
            min(allowance.most, max(allowance.least, FLOAT32_FACTOR * difference))
            for difference in (own.difference, first.difference)
        )
        if first.difference > of_first:
            differences = f"by {first.difference:.1e} from its own float64, this by {own.difference:.1e}"
            return Check(name, first.difference, of_first, f"the reference differs {differences}")
        words = f"differ by {own.difference:.1e} from float64, tolerance {of_own:.0e}"
        return Check(name, own.difference, of_own, words)

    def check(name: str, measure: Measure, part: str, tolerance: float) -> Check:
        side = single if name.endswith("float32") else double
        return _check(name, measure, exact, side, part, tolerance)

    return (
        _check_count("parameters", exact.parameters, double.parameters),
        _check_count("multiply-adds", exact.macs, double.macs),
        check("initial weights", _largest, "before/", 0.0),
        check("initial weights, float32", _largest, "before/", 0.0),
        check("logits, float64", _largest, "logits/", LOGITS_64),
        check("weights after 3 steps, float64", _worst_change, "after/", WEIGHTS_64),
        check("losses of 3 steps, float64", _largest, "losses", LOSSES_64),
        check("running statistics, float64", _largest, "statistics/", STATISTICS_64),
        check_as_close("logits, float32", _largest, "logits/", LOGITS_32),
        check_as_close("first loss, float32", _first, "losses", FIRST_LOSS_32),
        check_as_close("first running statistics, float32", _largest, "first-statistics/", FIRST_STATISTICS_32),
        check_as_close("closest tensor after the first step, float32", _closest, "first/", CLOSEST_TENSOR_32),
        check("weights after the first step, float32", _total, "first/", FIRST_UPDATE_32),
        check("each tensor after the first step, float32", _worst_change, "first/", FIRST_TENSOR_32),
        check("losses of 3 steps, float32", _largest, "losses", LOSSES_32),
        check("weights after 3 steps, float32", _total, "after/", WEIGHTS_32),
        *_check_dropout(baseline, single),
        *_check_pixels(single),
    )


def judge(checks: Sequence[Check]) -> tuple[str, str]:
    first = next((check for check in checks if not check.ok), None)
    return (FAILED, f"{first.name}: {first.words}") if first else (PROVEN, "")


def _check_count(name: str, a: int, b: int) -> Check:
    return Check(name, float(abs(a - b)), 0.0, f"{b:,} against {a:,}")


def _check(name: str, measure: Measure, a: ParityNumbers, b: ParityNumbers, part: str, tolerance: float) -> Check:
    mismatch = _find_mismatch(a.select_part(part), b.select_part(part))
    if mismatch:
        return Check(name, None, tolerance, mismatch)
    difference, key = measure(a, b, part)
    short = _shorten_key(key)
    if not math.isfinite(difference):
        return Check(name, None, tolerance, f"{short or 'a weight'} is not finite")
    of_what = "" if measure in (_largest, _first) else " of their change"
    where = f" in {short}" if key.startswith(("before/", "first/", "after/", "statistics/")) else ""
    words = f"differ by {difference:.1e}{of_what}{where}"
    return Check(name, difference, tolerance, f"{words}, tolerance {tolerance:.0e}")


def _largest(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    """Return the largest difference, relative to the largest value of its array."""
    worst, where = 0.0, ""
    theirs = b.select_part(part)
    for key, values in a.select_part(part).items():
        scale = max(map(abs, values), default=0.0) or 1.0
        pairs = zip(values, theirs[key], strict=True)
        difference = max((abs(x - y) for x, y in pairs), default=0.0) / scale
        if not math.isfinite(difference):
            return math.inf, key
        if difference > worst:
            worst, where = difference, key
    return worst, where


def _first(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    ours, theirs = a.arrays[part][0], b.arrays[part][0]
    return abs(ours - theirs) / (abs(ours) or 1.0), part


def _closest(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    """Return the difference of the closest matrix: after the last one, no ReLU comes."""
    lengths = _list_changes(a, b, part)
    matrices = [key for key in lengths if key.endswith(".weight")] or list(lengths)
    shares = {key: lengths[key][1] / max(lengths[key][0], 1e-300) for key in matrices}
    where = min(shares, key=shares.__getitem__)
    return shares[where], where


def _worst_change(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    """Return the largest difference of a tensor, relative to its change."""
    lengths = _list_changes(a, b, part)
    typical = math.sqrt(sum(change**2 for change, _ in lengths.values()) / max(1, len(lengths)))
    least = max(_LEAST_CHANGE * typical, 1e-300)
    shares = {key: difference / max(change, least) for key, (change, difference) in lengths.items()}
    where = max(shares, key=lambda key: shares[key] if math.isfinite(shares[key]) else math.inf)
    return shares[where], where


def _total(a: ParityNumbers, b: ParityNumbers, part: str) -> tuple[float, str]:
    changes, differences = zip(*_list_changes(a, b, part).values(), strict=True)
    return math.hypot(*differences) / max(math.hypot(*changes), 1e-300), ""


def _list_changes(a: ParityNumbers, b: ParityNumbers, part: str) -> dict[str, tuple[float, float]]:
    """Return the change of each tensor, and the difference of the two sides."""
    before, theirs = a.select_part("before/"), b.select_part(part)
    return {
        key: (math.dist(values, before["before/" + _shorten_key(key)]), math.dist(values, theirs[key]))
        for key, values in a.select_part(part).items()
    }


def _check_dropout(reference: ParityNumbers, numbers: ParityNumbers) -> list[Check]:
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
    """Check that 8-bit images are the same numbers on device and host."""
    if "pixels" not in numbers.arrays:
        return []
    difference, wrong_labels = numbers.arrays["pixels"]
    if wrong_labels or not math.isfinite(difference):
        return [Check("8-bit images", None, PIXELS, "another shape or other labels than those of place")]
    return [Check("8-bit images", difference, PIXELS, f"differ by {difference:.1e}, tolerance {PIXELS:.0e}")]


def _find_mismatch(a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]]) -> str:
    """Return what only one side has, or where sizes differ."""
    if a.keys() != b.keys():
        unmatched = min(a.keys() ^ b.keys())
        return f"only one of the two has {_shorten_key(unmatched)}"
    for key in a:
        if len(a[key]) != len(b[key]):
            return f"{_shorten_key(key)} has {len(b[key]):,} values against {len(a[key]):,}"
    return ""


def _shorten_key(key: str) -> str:
    return key.partition("/")[2] or key
