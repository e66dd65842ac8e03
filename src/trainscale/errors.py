"""The errors a person can cause or meet, and the exit codes that go with them.

    TrainscaleError            exit 1
    └── InputError             exit 2   a flag, a file or a value that cannot be used

Ctrl-C and termination signals are KeyboardInterrupt, exit 130.

An InputError says what was wrong, where, and what is valid. It is raised before anything is written.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TrainscaleError(Exception):
    """Something failed; the message is for the person at the terminal."""

    exit_code = 1


class InputError(TrainscaleError):
    """The input cannot be used as it is."""

    exit_code = 2


def unknown(what: str, value: str, valid: Iterable[str], where: str = "") -> InputError:
    """An InputError for a name that does not exist: it names the nearest ones, then all of them."""
    names = list(valid)
    near = _nearest(value, names)
    hint = f"; did you mean {_either(near)}?" if near else ""
    prefix = f"{where}: " if where else ""
    return InputError(f"{prefix}unknown {what} {value!r}{hint}\n  valid: {', '.join(names)}")


def _nearest(value: str, names: list[str]) -> list[str]:
    """At most three names that are much like the value, and about as much as the best of them."""
    likeness = {name: difflib.SequenceMatcher(None, value.lower(), name.lower()).ratio() for name in names}
    best = max(likeness.values(), default=0.0)
    near = [name for name in names if likeness[name] >= max(0.5, best - 0.2)]
    return sorted(near, key=lambda name: -likeness[name])[:3]


def _either(names: list[str]) -> str:
    quoted = [f"{name!r}" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} or {quoted[-1]}"
