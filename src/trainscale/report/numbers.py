"""How numbers, durations and sizes are written for people."""

import math

from ..analyse.statistics import Estimate, Interval

THIN = "\u202f"  # narrow no-break space: holds a number and its unit together
MISSING = "–"
_LOPSIDED = 0.25  # half an interval divided by its mean


def format_number(value: float | None, digits: int = 4) -> str:
    """Format with significant digits: 30.40, but 61,938."""
    if value is None or not math.isfinite(value):
        return MISSING
    magnitude = math.floor(math.log10(abs(value))) if value else 0
    decimals = max(0, digits - 1 - magnitude)
    return f"{value:,.{decimals}f}"


def format_mean(interval: Interval | Estimate | None) -> str:
    return format_number(interval.mean if interval else None)


def format_integer(value: int | None) -> str:
    return MISSING if value is None else f"{value:,}"


def format_count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def format_plus_minus(interval: Interval | None) -> str:
    """Format half the interval relative to the mean: ±1.2 %."""
    return format_relative_error(interval.relative if interval else None)


def format_relative_error(share: float | None) -> str:
    return "" if share is None else f"±{_format_share(share, share)}{THIN}%"


def format_times(interval: Interval | None) -> str:
    return MISSING if interval is None else f"{interval.mean:.{2 if interval.mean < 100 else 1}f}×"


def format_percent(share: float | None) -> str:
    return MISSING if share is None else f"{share * 100:.0f}{THIN}%"


def format_efficiency(interval: Interval | None) -> str:
    """Format a share with half its interval: 79 ± 3 %, 97.3 ± 0.4 %, or 79 % without one.

    A wide interval of a ratio is lopsided, so its limits are shown: 86 (30–240) %.
    """
    if interval is None:
        return MISSING
    half, low, high = interval.half_width, interval.low, interval.high
    if half is None or low is None or high is None:
        return format_percent(interval.mean)
    mean = _format_share(interval.mean, half)
    if half > _LOPSIDED * interval.mean:
        limits = f"{_format_share(low, half)}–{_format_share(high, half)}"
        return f"{mean}{THIN}({limits}){THIN}%"
    return f"{mean}{THIN}±{THIN}{_format_share(half, half)}{THIN}%"


def format_limits(interval: Interval | None, digits: int = 3) -> str:
    """Format the limits of an interval: 3.80–3.96."""
    if interval is None or interval.low is None or interval.high is None:
        return ""
    return f"{format_number(interval.low, digits)}–{format_number(interval.high, digits)}"


def format_with_limits(interval: Interval, digits: int = 3) -> str:
    """Format a mean whose interval is lopsided: 2,842 (2,416–2,927)."""
    limits = format_limits(interval, digits)
    return format_number(interval.mean, digits) + (f" ({limits})" if limits else "")


def format_overhead(interval: Interval | None) -> str:
    """Format a share that may be negative: 3.1 ± 0.8 %, −0.2 %."""
    if interval is None:
        return MISSING
    half = "" if interval.half_width is None else f"{THIN}±{THIN}{interval.half_width * 100:.1f}"
    return f"{interval.mean * 100:.1f}{half}{THIN}%".replace("-", "−")


def format_accuracy(interval: Interval | None) -> str:
    return MISSING if interval is None else f"{interval.mean:.4f}"


def format_milliseconds(seconds: float | None) -> str:
    return MISSING if seconds is None else format_number(seconds * 1000, 3)


def format_duration(value: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if value >= 2 * length:
            return f"{format_number(value / length, 3)}{THIN}{unit}"
    return f"{format_number(value, 3)}{THIN}s"


def format_rough_duration(seconds: float) -> str:
    """Format a time that need not be exact: 48 s, 12 min, 4 h 31 min."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.0f} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02d} min"


def format_scientific(value: float | None) -> str:
    if value is None:
        return MISSING
    return "0" if value == 0 else f"{value:.0e}"


def format_size(count: int | None) -> str:
    """Format bytes in binary units: 1.23 GiB."""
    if count is None or count < 1024:
        return MISSING if count is None else f"{count}{THIN}B"
    exponent = min(4, (count.bit_length() - 1) // 10)
    unit = ("KiB", "MiB", "GiB", "TiB")[exponent - 1]
    return f"{format_number(count / 1024**exponent, 3)}{THIN}{unit}"


def format_gibibytes(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"


def format_decimal_size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"


def _format_share(share: float, error: float) -> str:
    """Format a share with the decimals of its error."""
    return f"{share * 100:.{1 if error < 0.00995 else 0}f}"
