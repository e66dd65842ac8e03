"""Weak, strong or mixed by the batches of a curve, and the flags that follow."""

from __future__ import annotations

import pytest

from trainscale.published.curve import PublishedPoint
from trainscale.published.flags import (
    ABOVE_115,
    MIXED_BATCHES,
    SENTENCES,
    WEAK_LABELLED_STRONG,
    find_flags,
    find_scaling,
)


def points(*batches: float | None, speeds: tuple[float, ...] = (100.0, 190.0, 360.0)) -> list[PublishedPoint]:
    """Points at 1, 2 and 4 devices with these batches per device."""
    return [
        PublishedPoint(devices, speed, batch, None if batch is None else round(batch * devices))
        for devices, speed, batch in zip((1, 2, 4), speeds, batches, strict=True)
    ]


@pytest.mark.parametrize(
    ("batches", "scaling"),
    [
        ((32, 32, 32), "weak"),
        ((32, 16, 8), "strong"),
        ((32, 32, 16), "mixed"),
        ((32, None, 32), None),
        ((126, 126.5, 126), "weak"),
        ((43, 21.3, 10.7), "strong"),
    ],
)
def test_the_batches_tell_weak_from_strong(batches: tuple[float | None, ...], scaling: str | None) -> None:
    assert find_scaling(points(*batches)) == scaling


@pytest.mark.parametrize(
    ("stated", "batches", "flags"),
    [
        ("strong", (32, 32, 32), (WEAK_LABELLED_STRONG,)),
        ("weak", (32, 32, 32), ()),
        (None, (32, 32, 32), ()),
        ("strong", (32, 16, 8), ()),
        ("strong", (None, None, None), ()),
        (None, (32, 32, 16), (MIXED_BATCHES,)),
    ],
)
def test_weak_scaling_that_is_called_strong_is_flagged(
    stated: str | None, batches: tuple[float | None, ...], flags: tuple[str, ...]
) -> None:
    assert find_flags(points(*batches), stated) == flags


@pytest.mark.parametrize(("last", "is_flagged"), [(460.0, False), (461.0, True)])
def test_an_efficiency_above_115_percent_is_flagged(last: float, is_flagged: bool) -> None:
    flags = find_flags(points(8, 8, 8, speeds=(100.0, 200.0, last)), None)
    assert flags == ((ABOVE_115,) if is_flagged else ())


def test_every_flag_has_a_sentence() -> None:
    assert set(SENTENCES) == {ABOVE_115, WEAK_LABELLED_STRONG, MIXED_BATCHES}
