"""How numbers are written for people, in one place: the terminal and the HTML report show the same digits.

Machines read results.csv and results.json, which have full precision and none of this.
"""

from __future__ import annotations

import math

from ..analyse.statistics import Interval

THIN = "\u202f"  # narrow no-break space: groups digits, and holds a number and its unit together
MISSING = "–"
_LOPSIDED = 0.25  # half an interval over its mean; there the upper half is already a third wider than the lower


def significant(value: float, digits: int = 4) -> str:
    """``digits`` significant digits, thousands set apart: 30.40, 457.1. Whole digits all stay: 61 938."""
    if not math.isfinite(value):
        return MISSING
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    decimals = max(0, digits - 1 - magnitude)
    return f"{value:,.{decimals}f}".replace(",", THIN)


def integer(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}".replace(",", THIN)


def rate(value: float | None) -> str:
    """images/s."""
    return MISSING if value is None else significant(value)


def jitter(value: float | None) -> str:
    """A spread in images/s, which is not worth more than two digits."""
    return MISSING if value is None else significant(value, 2)


def plus_minus(interval: Interval | None) -> str:
    """Half the interval, relative: ±1.2 %. Empty where there is no interval."""
    share = interval.relative if interval else None
    return "" if share is None else f"±{_percentage(share, share)}{THIN}%"


def times(interval: Interval | None) -> str:
    """A speed-up: 3.88×, 203.7×."""
    return MISSING if interval is None else f"{interval.mean:.{2 if interval.mean < 100 else 1}f}×"


def percent(share: float | None) -> str:
    return MISSING if share is None else f"{share * 100:.0f}{THIN}%"


def efficiency(interval: Interval | None) -> str:
    """A share with half its interval, in percentage points: 79 ± 3 %, 97.3 ± 0.4 %, or 79 % without one.

    A wide interval of a ratio is lopsided, and would reach below zero as ±: its limits are said instead, 86 (30–240) %.
    """
    if interval is None:
        return MISSING
    half = interval.half_width
    if half is None or interval.low is None or interval.high is None:
        return percent(interval.mean)
    if half > _LOPSIDED * interval.mean:
        limits = f"{_percentage(interval.low, half)}–{_percentage(interval.high, half)}"
        return f"{_percentage(interval.mean, half)}{THIN}({limits}){THIN}%"
    return f"{_percentage(interval.mean, half)}{THIN}±{THIN}{_percentage(half, half)}{THIN}%"


def between(interval: Interval | None, digits: int = 3) -> str:
    """The limits of an interval: 3.80–3.96. Empty where there are none."""
    if interval is None or interval.low is None or interval.high is None:
        return ""
    return f"{significant(interval.low, digits)}–{significant(interval.high, digits)}"


def overhead(interval: Interval | None) -> str:
    """A small share that chance may make negative, in percentage points: 3.1 ± 0.8 %, −0.2 %."""
    if interval is None:
        return MISSING
    half = "" if interval.half_width is None else f"{THIN}±{THIN}{interval.half_width * 100:.1f}"
    return f"{interval.mean * 100:.1f}{half}{THIN}%".replace("-", "−")


def accuracy(interval: Interval | None) -> str:
    """A share of images, as papers write it: 0.8894. Its fourth decimal is one of 10,000 validation images."""
    return MISSING if interval is None else f"{interval.mean:.4f}"


def milliseconds(seconds: float | None) -> str:
    return MISSING if seconds is None else significant(seconds * 1000, 3)


def seconds(value: float | None) -> str:
    return MISSING if value is None else significant(value, 2)


def duration(value: float) -> str:
    """A longer time: 48.2 s, 12.3 min, 4.51 h."""
    for unit, length in (("h", 3600), ("min", 60)):
        if value >= 2 * length:
            return f"{significant(value / length, 3)}{THIN}{unit}"
    return f"{significant(value, 3)}{THIN}s"


def scientific(value: float | None) -> str:
    """A difference that spans many orders of magnitude: 3e-12. Zero is plainly 0."""
    if value is None:
        return MISSING
    return "0" if value == 0 else f"{value:.0e}"


def size(count: int | None) -> str:
    """Bytes in binary units: 1.23 GiB."""
    if count is None:
        return MISSING
    value, unit = float(count), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{count}{THIN}B" if unit == "B" else f"{significant(value, 3)}{THIN}{unit}"


def _percentage(share: float, error: float) -> str:
    """A share as a percentage with as many decimals as its error is worth."""
    return f"{share * 100:.{1 if error < 0.00995 else 0}f}"
