"""What limits the explanation of a point, in sentences: what was not measured, and what may have disturbed it."""

from __future__ import annotations

from ..analyse.checks import OTHER_CORES
from ..analyse.explanation.causes import CONTENTION
from ..analyse.explanation.explain import PointExplanation
from ..analyse.explanation.parts import Part
from ..spec.config import STRONG
from .explanation_gpus import describe_limited_gpus
from .explanation_sentences import format_share, join_causes, name_part
from .numbers import format_seconds, format_significant

# In windows of 0.2 s a rank that lacked its core looked like a slow exchange (docs/method.md, planted causes).
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
    if point.shortest_window_seconds is not None and 0 < point.shortest_window_seconds < _SHORT_WINDOW_SECONDS:
        lines.append(
            f"the shortest windows took {format_seconds(point.shortest_window_seconds)} s, too short to tell late ranks"
            f" from a slow exchange; --steps {_estimate_steps(point)} makes them a second long"
        )
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


def _estimate_steps(point: PointExplanation) -> int:
    """Return the steps with which the shortest windows would take about a second, to two digits."""
    assert point.shortest_window_seconds
    return int(float(f"{point.steps / point.shortest_window_seconds:.1e}"))


def _name_suspect(part: Part) -> str:
    if CONTENTION in part.causes:
        return " (the one-device trials were slower than those of several devices: was the machine busy?)"
    return ""
