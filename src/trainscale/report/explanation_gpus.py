"""What an explanation says about the clocks of GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.explanation import ranks
from ..analyse.explanation.explain import PointExplanation
from ..analyse.explanation.gpus import LimitedGpu
from ..analyse.explanation.ranks import SlowRank
from .numbers import THIN, format_integer, format_percent

_SAME_CLOCK = 0.98  # of the other clock
_MOST_LINES = 4  # more GPUs than these are described together


def describe_limited_gpus(point: PointExplanation) -> list[str]:
    """Return a line for every GPU whose clock was limited, or one for all if there are many."""
    gpus = point.limited_gpus
    if len(gpus) > _MOST_LINES:
        slowest, fastest = gpus[0], gpus[-1]
        return [
            f"the GPUs of {len(gpus)} of {point.devices} ranks ran below their highest clock of"
            f" {_format_mhz(slowest.highest_mhz)}, from {_format_mhz(slowest.mhz)} (rank {slowest.rank} on"
            f" {slowest.host or 'its host'}) to {_format_mhz(fastest.mhz)}; limited by {_join_reasons(gpus)}"
        ]
    return [f"the GPU of rank {gpu.rank} on {gpu.host or 'its host'} ran at {_describe_clock(gpu)}" for gpu in gpus]


def explain_slow_gpu(slow: SlowRank) -> str:
    """Say whether the clock of a slow rank's GPU explains that it is slow."""
    if slow.gpu_mhz is None or slow.others_gpu_mhz is None:
        return ""
    others = _format_mhz(slow.others_gpu_mhz)
    if slow.reason != ranks.SLOW_CLOCK:
        return (
            f". Its GPU ran at {_format_mhz(slow.gpu_mhz)} and those of the others at {others}, so it is not the clock"
        )
    clock = _describe_clock(slow.limited_gpu) if slow.limited_gpu else _format_mhz(slow.gpu_mhz)
    return f". Its GPU ran at {clock}, those of the others at {others}"


def describe_clocks(point: PointExplanation) -> str:
    """Say whether the clocks of GPUs that train at the same time are lower than that of one alone."""
    clocks = point.gpu_clocks
    if clocks is None:
        return ""
    together, alone = _format_mhz(clocks.together_mhz), _format_mhz(clocks.alone_mhz)
    text = f". Their GPUs ran at {together} on average, one alone at {alone}"
    return text if clocks.together_mhz < _SAME_CLOCK * clocks.alone_mhz else f"{text}, so it is not the clock"


def _describe_clock(gpu: LimitedGpu) -> str:
    return (
        f"{_format_mhz(gpu.mhz)} of {format_integer(round(gpu.highest_mhz))} ({_join_reasons([gpu])} in"
        f" {format_percent(gpu.limited_share)} of the window)"
    )


def _format_mhz(value: float) -> str:
    return f"{format_integer(round(value))}{THIN}MHz"


def _join_reasons(gpus: Sequence[LimitedGpu]) -> str:
    return ", ".join(dict.fromkeys(reason for gpu in gpus for reason in gpu.reasons)) or "an unknown reason"
