"""Hostile values for property-based tests: text, JSON and files that a person, a program or a damaged disk may give."""

from __future__ import annotations

import atexit
import copy
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from trainscale.errors import TrainscaleError

Keys = tuple[str | int, ...]

NUMBERS = st.one_of(
    st.integers(-3, 70),
    st.integers(-(10**40), 10**40),
    st.floats(),
    st.sampled_from([10**400, -(10**400), 1e308, 5e-324, 2**31, 2**63, 2**64, 0.1]),
)
LONG = st.sampled_from([5000 * "9", 5000 * "0" + "1", "1e" + 5000 * "9", 0 * "", "a" * 5000, "/" + "b/" * 2500])
SPECIAL = st.sampled_from(
    ["", " ", "--", "-", "\0", "a\0b", "\n", "\r", "\x1b[31m", "\ud800", "\u2028", "\ufeff", "[red]", "{}", "%s",
     "'; id", "$(id)", "../..", "/dev/zero", "nan", "inf", "-inf", "1e999", "0x" + 5000 * "f", "٣", "²", "1_000", "+1"]
)  # fmt: skip
TEXT = st.one_of(st.text(max_size=20), SPECIAL, LONG)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, TEXT)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=6,
)


def refusal(call: Callable[[], object]) -> str:
    """Return the message with which a call refuses its input; empty if it does not. Any other error goes on."""
    try:
        call()
    except TrainscaleError as error:
        message = str(error)
        assert message.strip()
        assert len(message) < 10_000, "nobody reads such a message"
        return message
    return ""


def scratch_folder(name: str) -> Path:
    """Return a folder for the files of a test. Hypothesis calls a test often, so it cannot be a fixture of a test."""
    folder = tempfile.mkdtemp(prefix=f"trainscale-fuzz-{name}-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _paths(value: Any, path: Keys = ()) -> Iterator[Keys]:
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value[:4]):
            yield from _paths(item, (*path, index))


def _changed(document: Any, path: Keys, action: str, value: Any) -> Any:
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        place = place[key]
    last = path[-1]
    if action == "remove" and isinstance(place, dict):
        del place[last]
    elif action == "repeat" and isinstance(place, list):
        place += place[:3]
    else:
        place[last] = value
    return changed


def mutations(document: Any) -> st.SearchStrategy[Any]:
    """Return copies of a JSON document of which one value is removed, repeated or replaced."""
    actions = st.sampled_from(["replace", "replace", "replace", "remove", "repeat"])
    paths = st.sampled_from(sorted(_paths(document), key=str))
    return st.builds(lambda path, action, value: _changed(document, path, action, value), paths, actions, VALUES)


def damaged(content: bytes) -> st.SearchStrategy[bytes]:
    """Return copies of a file that is cut, or in which a few bytes are others."""

    def damage(places: list[tuple[int, int]], length: int) -> bytes:
        changed = bytearray(content)
        for place, byte in places:
            changed[place % len(changed)] = byte
        return bytes(changed[: max(0, len(changed) - length)])

    places = st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 255)), max_size=4)
    return st.builds(damage, places, st.sampled_from([0, 0, 0, 1, 7, 100, 1 << 30]))
