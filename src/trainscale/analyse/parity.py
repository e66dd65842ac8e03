"""Whether two frameworks computed the same: every difference between their numbers against its tolerance.

float64 is strict, because only the order of sums differs. In float32 a single ReLU near zero may flip and change the
gradients, so only the logits and the first loss are compared.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..record.parity import FAILED, PROVEN, Check

# Relative differences. AlexNet and Inception v3 stay far below these in all seven frameworks (docs/method.md has the
# figures); deeper networks come closer. ResNet-152 amplifies the last bit of a float64 by seven orders of magnitude.
LOGITS_64 = 1e-7
LOSSES_64 = 1e-6
WEIGHTS_64 = 1e-4  # of the change in three steps, not of the weights themselves
LOGITS_32 = 5e-3
LOSS_32 = 5e-4
# A tensor that hardly changes (a bias before batch norm has no gradient except rounding) is compared with this share of
# the other tensors' change.
_LEAST_CHANGE = 1e-3


@dataclass(frozen=True)
class ParityNumbers:
    """What a framework computed in one precision: arrays ``before/NAME``, ``logits/0``, ``losses``, ``after/NAME``."""

    parameters: int
    macs: int
    arrays: Mapping[str, Sequence[float]]

    def part(self, start: str) -> dict[str, Sequence[float]]:
        return {name: values for name, values in self.arrays.items() if name.startswith(start)}


def compare(
    reference: tuple[ParityNumbers, ParityNumbers], other: tuple[ParityNumbers, ParityNumbers]
) -> tuple[Check, ...]:
    """Return all checks. Each side gives its numbers in float64 and in float32."""
    (a64, a32), (b64, b32) = reference, other
    return (
        _count("parameters", a64.parameters, b64.parameters),
        _count("multiply-adds", a64.macs, b64.macs),
        _largest("initial weights", a64.part("before/"), b64.part("before/"), 0.0),
        _largest("logits, float64", a64.part("logits/"), b64.part("logits/"), LOGITS_64),
        _largest("losses of 3 steps, float64", a64.part("losses"), b64.part("losses"), LOSSES_64),
        _changes(a64, b64),
        _largest("logits, float32", a32.part("logits/"), b32.part("logits/"), LOGITS_32),
        _largest("first loss, float32", a32.part("losses"), b32.part("losses"), LOSS_32),
    )


def judge(checks: Sequence[Check]) -> tuple[str, str]:
    """Return the state and, if it is not proven, the reason: the first check that failed causes the later ones."""
    failed = [check for check in checks if not check.ok]
    if not failed:
        return PROVEN, ""
    first = failed[0]
    return FAILED, f"{first.name}: {first.words}"


def _count(name: str, a: int, b: int) -> Check:
    return Check(name, float(abs(a - b)), 0.0, f"{b:,} against {a:,}")


def _largest(name: str, a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]], tolerance: float) -> Check:
    """Check the largest difference of a value, relative to the largest value of its array."""
    mismatch = _mismatch(a, b)
    if mismatch:
        return Check(name, None, tolerance, mismatch)
    worst, where = -1.0, ""
    for key, values in a.items():
        scale = max(map(abs, values), default=0.0) or 1.0
        difference = max((abs(x - y) for x, y in zip(values, b[key], strict=True)), default=0.0) / scale
        if not math.isfinite(difference):
            return Check(name, None, tolerance, f"{_short(key)} is not finite")
        if difference > worst:
            worst, where = difference, key
    return Check(name, worst, tolerance, f"differ by {worst:.1e}{_at(where)}, tolerance {tolerance:.0e}")


def _changes(a: ParityNumbers, b: ParityNumbers) -> Check:
    """Check how differently training changed the weights: for every tensor, the difference relative to its change."""
    name, before, ours, theirs = "weights after 3 steps, float64", a.part("before/"), a.part("after/"), b.part("after/")
    mismatch = _mismatch(ours, theirs)
    if mismatch:
        return Check(name, None, WEIGHTS_64, mismatch)
    changes, differences = {}, {}
    for key, values in ours.items():
        start = before["before/" + key.partition("/")[2]]
        changes[key] = math.dist(values, start)
        differences[key] = math.dist(values, theirs[key])
    typical = math.sqrt(sum(length**2 for length in changes.values()) / max(1, len(changes)))
    shares = {key: differences[key] / max(changes[key], _LEAST_CHANGE * typical, 1e-300) for key in ours}
    where = max(shares, key=lambda key: shares[key] if math.isfinite(shares[key]) else math.inf)
    worst = shares[where]
    if not math.isfinite(worst):
        return Check(name, None, WEIGHTS_64, f"{_short(where)} is not finite")
    detail = f"differ by {worst:.1e} of their change{_at(where)}, tolerance {WEIGHTS_64:.0e}"
    return Check(name, worst, WEIGHTS_64, detail)


def _mismatch(a: Mapping[str, Sequence[float]], b: Mapping[str, Sequence[float]]) -> str:
    """Return what only one side has; empty if both have the same arrays of the same sizes."""
    if a.keys() != b.keys():
        unmatched = min(a.keys() ^ b.keys())
        return f"only one of the two has {_short(unmatched)}"
    uneven = next((key for key in a if len(a[key]) != len(b[key])), None)
    return f"{_short(uneven)} has {len(b[uneven]):,} values against {len(a[uneven]):,}" if uneven else ""


def _short(key: str) -> str:
    return key.partition("/")[2] or key


def _at(key: str) -> str:
    return f" in {_short(key)}" if key.startswith(("before/", "after/")) else ""


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
