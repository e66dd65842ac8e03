"""Which series of two runs belong together, and the refusal to compare what differs."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ...errors import InputError
from ..text import remove_unprintable
from .differences import NAMES, Difference, compare_configs, find_differences, list_common_devices, list_names
from .sides import Side

Pair = tuple[Side, Side]


def match_sides(all_a: Sequence[Side], all_b: Sequence[Side], despite: Collection[str]) -> list[Pair]:
    """Return the series of A with their counterparts in B: those with the same config, except for what ``despite``
    names. Raise an InputError if there are none, or if a series of A has several.
    """
    if len(all_a) == len(all_b) == 1:
        return [(all_a[0], all_b[0])]
    pairs = []
    for a in all_a:
        alike = [b for b in all_b if not _find_forbidden(compare_configs(a.config, b.config), despite)]
        same = [b for b in alike if b.config == a.config] or alike
        if len(same) > 1:
            raise InputError(
                f"{same[0].source}: {len(same)} series may be the counterpart of {a.title!r}; name one of them as"
                f" {same[0].source}:SERIES or with --series{_list_titles(same)}"
            )
        pairs += [(a, b) for b in same]
    for b in {b.config: b for _, b in pairs}.values():
        partners = [a for a, other in pairs if other is b]
        if len(partners) > 1:
            raise InputError(
                f"{partners[0].source}: {len(partners)} series may be the counterpart of {b.title!r}; name one of them"
                f" as {partners[0].source}:SERIES or with --series{_list_titles(partners)}"
            )
    return pairs or [_find_nearest(all_a, all_b)]


def check_sides(a: Side, b: Side, despite: Collection[str]) -> tuple[Difference, ...]:
    """Return the differences that ``despite`` names. Any other is an InputError that says what differs."""
    differences = find_differences(a, b)
    if not list_common_devices(a, b):
        counts = [", ".join(map(str, sorted(side.points))) for side in (a, b)]
        raise InputError(
            f"no device count was measured in both: A, {a.title!r}, has {counts[0]}; B, {b.title!r}, has {counts[1]}"
        )
    forbidden = _find_forbidden(differences, despite)
    if forbidden:
        raise InputError(_explain_refusal(a, b, forbidden, despite))
    return differences


def select_series(sides: Sequence[Side], text: str) -> Side:
    """Return the series whose title a person typed, in full or so much of it that only one series has it."""
    wanted = text.strip().casefold()
    exact = [side for side in sides if side.title.casefold() == wanted]
    parts = wanted.replace("·", " ").split()
    matching = exact or [
        side for side in sides if set(parts) <= set(side.title.casefold().replace("·", " ").split()) and parts
    ]
    if len(matching) == 1:
        return matching[0]
    problem = "no such series" if not matching else f"{len(matching)} series match"
    raise InputError(f"{sides[0].source}: {problem}: {text!r}{_list_titles(sides)}")


def _find_forbidden(differences: Sequence[Difference], despite: Collection[str]) -> list[Difference]:
    return [difference for difference in differences if difference.name not in despite]


def _find_nearest(all_a: Sequence[Side], all_b: Sequence[Side]) -> Pair:
    """Return the two series with the fewest differences, so that the refusal names those."""
    pairs = [(a, b) for a in all_a for b in all_b]
    return min(pairs, key=lambda pair: len(compare_configs(pair[0].config, pair[1].config)))


def _explain_refusal(a: Side, b: Side, forbidden: Sequence[Difference], despite: Collection[str]) -> str:
    width = max(len(difference.field) for difference in forbidden)
    lines = [
        f"\n    {difference.name + ':':<13}{difference.field:<{width}}  A {remove_unprintable(difference.a)}"
        f"  B {remove_unprintable(difference.b)}"
        for difference in forbidden
    ]
    names = [name for name in NAMES if name in {*despite, *list_names(forbidden)}]
    return (
        f"A ({a.title}) and B ({b.title}) are not compared, because they differ in"
        f" {', '.join(list_names(forbidden))}:{''.join(lines)}\n"
        f"  Measure both in the same way; or, if the change was meant: --despite {','.join(names)}"
    )


def _list_titles(sides: Sequence[Side]) -> str:
    return "\n  valid: " + "\n         ".join(side.title for side in sides)
