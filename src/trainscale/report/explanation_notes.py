"""What limits the explanation of a point, in sentences: what was not measured, and what may have disturbed it."""

from __future__ import annotations

from ..analyse.checks import OTHER_CORES
from ..analyse.explanation.causes import CONTENTION
from ..analyse.explanation.cores import has_comparable_cores
from ..analyse.explanation.explain import PointExplanation
from ..analyse.explanation.parts import Part
from ..spec.config import STRONG
from .explanation_gpus import describe_limited_gpus
from .explanation_sentences import format_share, join_causes, name_part
from .numbers import format_seconds, format_significant

# In windows of 0.2 s the step times of a rank that lacked its core looked like a slow exchange (docs/method.md, planted
# causes). The CPU time of ranks tells the two apart, where it can be compared.
_SHORT_WINDOW_SECONDS = 0.5


def list_notes(point: PointExplanation) -> list[str]:
    """Return what limits the answer: causes that are not separated, missing repeats, impossible values."""
    lines = []
    if point.missing:
        lines.append(f"not measured: {join_causes(point.missing)}")
    if point.has_few_repeats:
        lines.append("a point was measured once or twice only, so the parts have no intervals; --repeats 5 gives them")
    if point.other_cores > OTHER_CORES:
        lines.append(
            f"other programs used {format_significant(point.other_cores, 2)} cores while this was measured, so a part"
            " of it may be theirs; an idle machine would tell"
        )
    lines += _describe_short_windows(point)
    lines += describe_limited_gpus(point)
    for part in point.parts:
        if part.is_impossible:
            lines.append(
                f"{name_part(part)} was measured as {format_share(part.measured)}, which cannot be: it is shown as 0,"
                f" and the points that it was computed from do not fit together{_name_suspect(part)}"
            )
    if point.config.scaling == STRONG and not point.missing:
        lines.append("under strong scaling, contention includes that smaller batches are computed less efficiently")
    return lines


def _describe_short_windows(point: PointExplanation) -> list[str]:
    window = point.shortest_window_seconds
    tells_cores = has_comparable_cores(point.config) and point.core_share is not None
    if tells_cores or not window or window >= _SHORT_WINDOW_SECONDS:
        return []
    steps = int(float(f"{point.steps / window:.1e}"))  # of about a second, to two digits
    return [
        f"the shortest windows took {format_seconds(window)} s, too short to tell late ranks from a slow exchange;"
        f" --steps {steps} makes them a second long"
    ]


def _name_suspect(part: Part) -> str:
    if CONTENTION in part.causes:
        return " (the one-device trials were slower than those of several devices: was the machine busy?)"
    return ""
