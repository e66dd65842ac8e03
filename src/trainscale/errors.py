"""The errors that are reported to the person, and their exit codes.

    TrainscaleError            exit 1
    ├── InputError             exit 2   a flag, a file or a value that cannot be used
    └── AllocationEnded        exit 130 the cluster took its hosts back; the same command continues later

Ctrl-C and termination signals are KeyboardInterrupt, exit 130.

An InputError says what is wrong, where, and what is valid. It is raised before anything is written.
"""

import difflib
from collections.abc import Iterable


class TrainscaleError(Exception):
    """Something failed; the message is for the person at the terminal."""

    exit_code = 1


class InputError(TrainscaleError):
    """The input cannot be used as it is."""

    exit_code = 2


class AllocationEnded(TrainscaleError):
    """The hosts of a run do not belong to it any more. The message says why."""

    exit_code = 130


def shorten(text: str, most: int = 60) -> str:
    """Cut a value that is too long for a message."""
    return text if len(text) <= most else f"{text[:most]}… ({len(text)} characters)"


def shorten_path(path: object) -> str:
    return shorten(str(path), 500)


def explain_unknown(what: str, value: str, valid: Iterable[str], where: str = "", see: str = "") -> InputError:
    """Return an InputError for a name that does not exist: the most similar names, then all valid ones.

    Where these are too many to read, ``see`` says where they are.
    """
    names, text = list(valid), value[:100].lower()
    matcher = difflib.SequenceMatcher
    similarity = {name: matcher(None, text, name.lower()).ratio() for name in names}
    # At most three, nearly as similar as the best of them.
    least = max(0.0 if see else 0.5, max(similarity.values(), default=0.0) - 0.2)
    similar = [name for name in names if similarity[name] >= least]
    similar.sort(key=lambda name: -similarity[name])
    *others, last = [repr(name) for name in similar[:3]] or [""]
    nearest = f"{', '.join(others)} or {last}" if others else last
    hint = f"; did you mean {nearest}?" if last else ""
    prefix = f"{where}: " if where else ""
    rest = see or f"valid: {', '.join(names)}"
    return InputError(f"{prefix}unknown {what} {shorten(value)!r}{hint}\n  {rest}")
