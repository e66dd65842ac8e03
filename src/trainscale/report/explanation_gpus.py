"""What an explanation says about the clocks of GPUs."""

from __future__ import annotations

from collections.abc import Sequence

from ..analyse.explanation import ranks
from ..analyse.explanation.explain import PointExplanation
from ..analyse.explanation.gpus import LimitedGpu
from ..analyse.explanation.ranks import SlowRank
from .numbers import THIN, integer, percent

_SAME_CLOCK = 0.98  # of the other clock
_MOST_LINES = 4  # more GPUs than these are described together


def gpu_lines(point: PointExplanation) -> list[str]:
    """Return a line for every GPU whose clock was limited, or one for all if there are many."""
    gpus = point.limited_gpus
    if len(gpus) > _MOST_LINES:
        slowest, fastest = gpus[0], gpus[-1]
        return [
            f"the GPUs of {len(gpus)} of {point.devices} ranks ran below their highest clock of"
            f" {_mhz(slowest.highest_mhz)}, from {_mhz(slowest.mhz)} (rank {slowest.rank} on"
            f" {slowest.host or 'its host'}) to {_mhz(fastest.mhz)}; limited by {_reasons(gpus)}"
        ]
    return [f"the GPU of rank {gpu.rank} on {gpu.host or 'its host'} ran at {_clock(gpu)}" for gpu in gpus]


def why_slow_gpu(slow: SlowRank) -> str:
    """Say whether the clock of a slow rank's GPU explains that it is slow."""
    if slow.gpu_mhz is None or slow.others_gpu_mhz is None:
        return ""
    others = _mhz(slow.others_gpu_mhz)
    if slow.reason != ranks.SLOW_CLOCK:
        return f". Its GPU ran at {_mhz(slow.gpu_mhz)} and those of the others at {others}, so it is not the clock"
    clock = _clock(slow.limited_gpu) if slow.limited_gpu else _mhz(slow.gpu_mhz)
    return f". Its GPU ran at {clock}, those of the others at {others}"


def clocks_together(point: PointExplanation) -> str:
    """Say whether the clocks of GPUs that train at the same time are lower than that of one alone."""
    clocks = point.gpu_clocks
    if clocks is None:
        return ""
    text = f". Their GPUs ran at {_mhz(clocks.together_mhz)} on average, one alone at {_mhz(clocks.alone_mhz)}"
    return text if clocks.together_mhz < _SAME_CLOCK * clocks.alone_mhz else f"{text}, so it is not the clock"


def _clock(gpu: LimitedGpu) -> str:
    return (
        f"{_mhz(gpu.mhz)} of {integer(round(gpu.highest_mhz))} ({_reasons([gpu])} in {percent(gpu.limited_share)} of"
        " the window)"
    )


def _mhz(value: float) -> str:
    return f"{integer(round(value))}{THIN}MHz"


def _reasons(gpus: Sequence[LimitedGpu]) -> str:
    return ", ".join(dict.fromkeys(reason for gpu in gpus for reason in gpu.reasons)) or "an unknown reason"
