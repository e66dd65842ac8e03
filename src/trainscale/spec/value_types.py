"""Types of values that a setting can have. Each one reads text, and says what is valid when it cannot."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import explain_unknown, shorten, shorten_path
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.training.learning_rate import check_schedule
from . import data
from .config import AUTO

SEARCH_LISTS, SEARCH_DEFAULT = "lists", "default"  # which space a search looks at

_UNIT_SECONDS = {"h": 3600, "m": 60, "s": 1}
_BETWEEN_PAIRS = re.compile(r",(?=[\w -]*=)|,\s*$")  # a path may contain commas
_SHARE = re.compile(r"([0-9]*\.?[0-9]+|[0-9]+\.)\s*(%?)")
_LARGEST_SHARE = 0.5
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")


_MOST = 10**12
_DIGITS = 20  # Python takes long for numbers with many more
_LONGEST_NUMBER = 100  # characters of a duration or share
_LONGEST_SECONDS = 100 * 365 * 86400.0  # a century


@dataclass(frozen=True)
class ValueType:
    """A type of value. ``parse`` reads text and raises ValueError; ``toml`` names the TOML types that a file may use.

    With ``is_table``, a file may also have a TOML table: ``{a = "x"}`` means the list ``["a=x"]``. With ``bare``, a
    flag may stand alone and then means this text; with ``negated``, the flag with ``--no-`` means that text.
    ``choices`` are texts that a shell may offer; where there are any, other texts may be valid too.
    """

    name: str
    parse: Callable[[str], Any]
    toml: tuple[type, ...]
    metavar: str = "NAME"
    is_plural: bool = False
    is_table: bool = False
    separator: str = ","  # between the items of a list
    format: Callable[[Any], str] = str  # for the defaults in help texts
    bare: str = ""
    negated: str = ""
    choices: tuple[str, ...] = ()

    def accepts(self, item: Any) -> bool:
        """Return whether a value from a file has the right TOML type."""
        # In Python a bool is an int; in an experiment file `steps = true` is a mistake.
        return isinstance(item, self.toml) and (bool in self.toml or not isinstance(item, bool))


def whole(least: int, most: int = _MOST) -> ValueType:
    def parse(text: str) -> int:
        try:
            value = int(text.replace("_", "")[:_DIGITS])
        except ValueError:
            raise ValueError(f"{shorten(text)!r} is not a whole number") from None
        if value < least:
            raise ValueError(f"{value} is too small; valid: {least} or more")
        if value > most:
            raise ValueError(f"{shorten(text)} is too large; valid: {least} … {most}")
        return value

    return ValueType("a whole number", parse, (int,), "N")


def number(least: float, most: float, above: bool = False) -> ValueType:
    """Return the type of a number in this range. With ``above``, the value must be larger than ``least``."""

    def parse(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"{shorten(text)!r} is not a number") from None
        if not (least < value if above else least <= value) or not value <= most:
            end = "" if most == math.inf else f", at most {most:g}"
            raise ValueError(f"{shorten(text)} is not valid; valid: {'above' if above else 'at least'} {least:g}{end}")
        return value

    return ValueType("a number", parse, (int, float), "N", format="{:g}".format)


def choice(*valid: str) -> ValueType:
    def parse(text: str) -> str:
        if text.lower() not in valid:
            raise ValueError(str(explain_unknown("value", text, valid)))
        return text.lower()

    return ValueType(f"one of {', '.join(valid)}", parse, (str,), choices=valid)


def listed(kind: ValueType, bare: str = "", negated: str = "") -> ValueType:
    """Return the type of a list of values, each of which is measured. Values that are repeated count once."""

    def parse(text: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(kind.parse(part) for part in _parse_names(text)))

    return replace(
        kind,
        name=f"{kind.name}, or a list of these",
        parse=parse,
        is_plural=True,
        format=",".join,
        bare=bare,
        negated=negated,
    )


def parse_duration(text: str) -> float:
    """Return the seconds of «90», «90s», «5m» or «1h30m»."""
    match = _DURATION.fullmatch(text.strip().lower()) if len(text) <= _LONGEST_NUMBER else None
    parts = zip(match.groups(), _UNIT_SECONDS.values(), strict=True) if match else ()
    seconds = sum(float(count) * unit for count, unit in parts if count)
    if not 0 < seconds <= _LONGEST_SECONDS:
        reason = "is too long" if seconds else "is not a duration"
        raise ValueError(f"{shorten(text)!r} {reason}; valid: 90s, 5m, 1h30m")
    return seconds


def _parse_share(text: str) -> float:
    """Read «1%» or «0.01»."""
    match = _SHARE.fullmatch(text.strip()) if len(text) <= _LONGEST_NUMBER else None
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= _LARGEST_SHARE:
        raise ValueError(
            f"{shorten(text)!r} is not valid; valid: above 0, at most {_LARGEST_SHARE:.0%}, such as 1% or 0.01"
        )
    return share


def _format_duration(seconds: float) -> str:
    return f"{seconds / 60:g}m" if seconds % 60 == 0 else f"{seconds:g}s"


def _parse_batch(text: str) -> int:
    return AUTO if text.lower() == "auto" else int(whole(1).parse(text))


def _parse_names(text: str) -> tuple[str, ...]:
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    if not names:
        raise ValueError("the list is empty")
    return names


def _parse_lines(text: str) -> tuple[str, ...]:
    lines = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not lines:
        raise ValueError("there is no line")
    return lines


def _parse_counts(text: str) -> tuple[int, ...]:
    return tuple(sorted({whole(1).parse(part) for part in _parse_names(text)}))


def find_python(text: str) -> str:
    """Return the absolute path of the interpreter that a path or a name means. Links are not followed, because the
    Python of a virtual environment is a link.
    """
    path = os.path.abspath(os.path.expanduser(text)) if os.sep in text else shutil.which(text)  # noqa: PTH100, PTH111
    if not text or path is None:
        raise ValueError(
            f"there is no Python {shorten_path(text)!r} on the PATH; valid: a path to one, or the name of one"
        )
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; valid: the Python in it, such as {Path(path) / 'bin/python'}")
    if not Path(path).exists():
        raise ValueError(f"there is no Python at {shorten_path(path)}")
    if not os.access(path, os.X_OK):
        raise ValueError(f"{path} is not executable")
    return path


def _parse_pythons(text: str) -> tuple[tuple[str, str], ...]:
    """Read pairs ``FRAMEWORK=PATH``."""
    pythons: dict[str, str] = {}
    for pair in (part.strip() for part in _BETWEEN_PAIRS.split(text) if part.strip()):
        name, equals, path = (part.strip() for part in pair.partition("="))
        framework = name.lower()
        if not equals:
            raise ValueError(
                f"{shorten(pair)!r} has no framework; valid: FRAMEWORK=PATH, such as mxnet=/path/to/python"
            )
        if framework not in FRAMEWORKS:
            raise ValueError(str(explain_unknown("framework", name, FRAMEWORKS)))
        if framework in pythons:
            raise ValueError(f"two Pythons for {framework}; valid: one")
        # A path that does not exist here may exist on the hosts; the local launcher checks it.
        on_hosts = path.startswith(os.sep) and not Path(path).exists()
        pythons[framework] = path if on_hosts else find_python(path)
    if not pythons:
        raise ValueError("the list is empty")
    return tuple(pythons.items())


def _parse_switch(text: str) -> bool:
    if text.lower() in ("true", "yes", "on", "1"):
        return True
    if text.lower() in ("false", "no", "off", "0"):
        return False
    raise ValueError(f"{shorten(text)!r} is neither true nor false")


def _parse_search(text: str) -> str | None:
    values = {"lists": SEARCH_LISTS, "on": SEARCH_LISTS, "true": SEARCH_LISTS, "default": SEARCH_DEFAULT}
    if text.lower() in ("off", "false"):
        return None
    if text.lower() not in values:
        raise ValueError(f"{shorten(text)!r} is not valid; valid: lists (the settings that are lists) or default")
    return values[text.lower()]


NAME = ValueType("a name", str, (str,))
NAMES = ValueType("a list of names", _parse_names, (str,), "LIST", is_plural=True, format=",".join)
COUNTS = ValueType("a list of whole numbers", _parse_counts, (int,), "LIST", is_plural=True)
LINES = ValueType("a list of lines", _parse_lines, (str,), "LINE", is_plural=True, separator="\n")
PYTHONS = ValueType(
    "a table of frameworks and their Pythons", _parse_pythons, (str,), "LIST", is_plural=True, is_table=True
)
SWITCH = ValueType("true or false", _parse_switch, (bool,), format=lambda value: "on" if value else "off")
SWITCHES = replace(
    listed(SWITCH, bare="on", negated="off"), name=SWITCH.name, metavar="[on,off]", choices=("on", "off")
)
DURATION = ValueType('a duration such as "5m"', parse_duration, (str, int, float), "TIME", format=_format_duration)
SHARE = ValueType("a share", _parse_share, (str, float), "SHARE", format="{:.0%}".format)
BATCH = ValueType('a whole number or "auto"', _parse_batch, (int, str), "N", choices=("auto",))
BATCHES = listed(BATCH)
SEARCH = ValueType(
    'true, false, "lists" or "default"',
    _parse_search,
    (bool, str),
    "[default]",
    bare=SEARCH_LISTS,
    choices=(SEARCH_LISTS, SEARCH_DEFAULT),
)
DATA = ValueType("a source of images", data.parse_data, (str,))
SCHEDULE = ValueType("a schedule", check_schedule, (str,), choices=("constant", "cosine"))
