"""An explanation in words: text of 100 columns, Markdown, JSON."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Sequence

from ...analyse.checks import OTHER_CORES
from ...analyse.statistics import Interval
from ...analyse.titles import find_model_title
from ...record.run import RunInfo
from ...record.trial import TrialRecord
from ...report.documents import encode_json, escape, join_lines, load_template, pick, split_paragraphs
from ...report.numbers import THIN, format_integer, format_number, format_percent
from ...worker.frameworks.catalog import FRAMEWORKS
from . import explain
from .causes import COMMUNICATION, ExplainedPart
from .explain import PointExplanation, explain_records
from .ranks import FULL_CORE, LimitedGpu

COLUMNS = 100
_NARROW = 0.005  # whole per cents would show less than this as 0


# ---- numbers


def format_share(interval: Interval) -> str:
    """Format a share: 31 ± 3 %, 24.4 ± 0.3 %, and with its limits beyond 100 %: 89 (68–100) %."""
    half = interval.half_width
    if half is not None and interval.mean + half > 1 >= interval.mean:
        percent, low = interval.mean * 100, (interval.low or 0.0) * 100
        return f"{percent:.0f}{THIN}({low:.0f}–100){THIN}%".replace("-", "−")
    decimals = 1 if half is not None and half < _NARROW else 0
    mean = f"{interval.mean * 100:.{decimals}f}".replace("-", "−")
    return f"{mean}{THIN}%" if half is None else f"{mean}{THIN}±{THIN}{half * 100:.{decimals}f}{THIN}%"


def format_limits(part: ExplainedPart) -> str:
    """Format the interval of a part in per cent: (24 … 30)."""
    low, high = part.measured.low, part.measured.high
    if low is None or high is None:
        return ""
    return f"({low * 100:.0f} … {high * 100:.0f})".replace("-", "−")


def round_to_percents(parts: Sequence[ExplainedPart]) -> list[tuple[ExplainedPart, int]]:
    """Return parts with whole percentages that add up to 100."""
    exact = [part.share * 100 for part in parts]
    floors = [int(value) for value in exact]
    by_remainder = sorted(range(len(exact)), key=lambda index: floors[index] - exact[index])
    for index in by_remainder[: 100 - sum(floors)]:
        floors[index] += 1
    return list(zip(parts, floors, strict=True))


def format_milliseconds(seconds: float) -> str:
    return f"{format_number(seconds * 1000, 3)}{THIN}ms"


def _format_bytes(count: float) -> str:
    """Format bytes in decimal units: 244 MB, 1.2 MB, 1.1 GB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{format_number(count / size, 3 if count >= 100 * size else 2)}{THIN}{unit}"
    return f"{count:.0f}{THIN}B"


def _format_mhz(value: float) -> str:
    return f"{format_integer(round(value))}{THIN}MHz"


# ---- the verdict


def list_closing_verdicts(run: RunInfo, records: Sequence[TrialRecord]) -> list[str]:
    """Return the verdict on the largest point of every series."""
    if run.is_search or any(record.epochs for record in records):
        return []
    largest: dict[str, PointExplanation] = {}
    for point in explain_records(records):
        if point.loss is not None and point.verdict != explain.UNKNOWN:
            largest[point.title] = point  # device counts ascend
    has_several = len(largest) > 1
    return [f"{describe_verdict(point, with_title=has_several)}." for point in largest.values()]


def describe_verdict(point: PointExplanation, with_title: bool = False) -> str:
    """Name the cause, the evidence and what would help."""
    subject = point.title if with_title else find_model_title(point.config.model)
    return join_lines(_render("verdict.j2", point, subject=f"{subject} on {point.devices} devices"))


def list_notes(point: PointExplanation) -> list[str]:
    return split_paragraphs(_render("notes.j2", point))


def _render(template: str, point: PointExplanation, **further: str) -> str:
    framework = FRAMEWORKS.get(point.config.framework)

    def say_efficiency(less_seconds: float) -> str:
        """Return the efficiency, or the time of a step, then."""
        step = max(0.0, point.step_seconds - less_seconds)
        if point.work_seconds is None:
            return format_milliseconds(step)
        return format_percent(min(1.0, point.work_seconds / max(step, point.work_seconds)))

    return load_template(__package__, template).render(
        point=point,
        within=sum(part.seconds for part in point.parts if part.causes == (COMMUNICATION,)),
        others_ran=point.other_cores > OTHER_CORES,
        can_compile=framework is not None and framework.compiles and not point.config.compile,
        full_core=FULL_CORE,
        efficiency=say_efficiency,
        share=format_share,
        ms=format_milliseconds,
        bytes=_format_bytes,
        mhz=_format_mhz,
        limit=_describe_limit,
        **further,
    )


def _describe_limit(gpu: LimitedGpu) -> str:
    reasons = ", ".join(gpu.reasons) or "an unknown reason"
    why = f"{reasons} in {format_percent(gpu.limited_share)} of the window"
    return f"{_format_mhz(gpu.mhz)} of {format_integer(round(gpu.highest_mhz))} ({why})"


# ---- documents


def render_document(points: Sequence[PointExplanation], command: str, form: str) -> str:
    """Return the explanation as ``text`` or ``markdown``."""
    wrapper = textwrap.TextWrapper(COLUMNS, "  ", "    ", break_long_words=False, break_on_hyphens=False)
    filters = (("escape", escape), ("percents", round_to_percents), ("wrap", wrapper.fill))
    text = load_template(__package__, f"document.{form}.j2", filters).render(
        points=points,
        command=command,
        columns=COLUMNS,
        limits=format_limits,
        ms=format_milliseconds,
        notes=list_notes,
        verdict=describe_verdict,
    )
    return re.sub(" +$", "", text, flags=re.MULTILINE)


def render_json(points: Sequence[PointExplanation], command: str) -> str:
    encoded = []
    for point in points:
        parts = [pick(part, "share measured seconds causes") for part in point.parts]
        main = point.main.causes if point.main else None
        sentences = {"sentence": describe_verdict(point), "notes": list_notes(point)}
        own = {**vars(point), **pick(point, "config")}
        encoded.append({**own, "main": main, "parts": parts, **sentences})
    missing = command if any(point.missing for point in points) else None
    return encode_json({"schema": 1, "points": encoded, "command_for_missing": missing})
