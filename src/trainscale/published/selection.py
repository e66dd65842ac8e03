"""The curves that a person asks for, by network, hardware, framework, year and size; and how they are normalised."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from ..errors import InputError, explain_unknown
from .curve import PublishedCurve

# How the report shows a curve together with a run: see analyse/published/overlay.py.
SPEEDUP, PER_DEVICE, ABSOLUTE = "speedup", "per-device", "absolute"
NORMALISATIONS = (SPEEDUP, PER_DEVICE, ABSOLUTE)


@dataclass(frozen=True)
class Wanted:
    """What a curve must have. None stands for anything. Texts are parts of names, in any case."""

    network: str | None = None
    hardware: str | None = None
    framework: str | None = None
    years: tuple[int, int] | None = None  # first and last
    min_devices: int | None = None


def select_curves(curves: Sequence[PublishedCurve], wanted: Wanted) -> list[PublishedCurve]:
    """Return the curves that have all of it. A name that no curve has is an InputError with the valid ones."""
    texts: tuple[tuple[str, str | None, Callable[[PublishedCurve], Iterable[str]]], ...] = (
        ("network", wanted.network, lambda c: (c.network.name, c.network.title, c.network_stated)),
        ("hardware", wanted.hardware, lambda c: (c.device or "", c.hardware)),
        ("framework", wanted.framework, lambda c: (c.framework, c.framework_stated)),
    )
    chosen = list(curves)
    for name, text, names_of in texts:
        if text is not None:
            matching = {curve.id for curve in curves if any(_has(text, each) for each in names_of(curve))}
            if not matching:
                valid = sorted({first for curve in curves if (first := next(iter(names_of(curve))))})
                raise explain_unknown(name, text, valid, f"--{name}")
            chosen = [curve for curve in chosen if curve.id in matching]
    if wanted.years:
        chosen = [curve for curve in chosen if wanted.years[0] <= curve.source.year <= wanted.years[1]]
    return [curve for curve in chosen if curve.most_devices >= (wanted.min_devices or 1)]


def parse_years(text: str) -> tuple[int, int]:
    """Read ``2017`` or ``2015-2018``."""
    match = re.fullmatch(r"\s*([12][0-9]{3})\s*(?:[-–]\s*([12][0-9]{3})\s*)?", text)
    years = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
    if years[0] > years[1]:
        raise InputError(f"--year {text}: valid: a year or a range of years, such as 2017 or 2015-2018")
    return years


def _has(text: str, name: str) -> bool:
    """Whether a name contains a text. Spaces, dashes and the case do not matter: resnet50 is part of ResNet-50 v1.5."""
    first, second = (re.sub(r"[\s_-]", "", each).casefold() for each in (text, name))
    return first in second
