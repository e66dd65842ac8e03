"""Types of values that a setting can have: what msgspec converts a value to, and what the words of a flag mean."""

from __future__ import annotations

import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from ..errors import explain_unknown, shorten, shorten_path
from ..worker.frameworks.catalog import FRAMEWORKS
from ..worker.training.learning_rate import check_schedule
from . import data
from .config import AUTO

SEARCH_LISTS, SEARCH_DEFAULT = "lists", "default"  # which space a search looks at

_MOST = 10**12
_LONGEST_NUMBER = 100  # characters
_LONGEST_SECONDS = 100 * 365 * 86400.0  # a century
_LARGEST_SHARE = 0.5
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_SHARE = re.compile(r"([0-9]*\.?[0-9]+|[0-9]+\.)\s*(%?)")
_COMMA, _LINE_BREAK = r",", r"[\r\n]+"
_COMMA_BEFORE_PAIR = r",(?=[\w -]*=)|,\s*$"  # a path may contain commas


@dataclass(frozen=True)
class ValueType:
    """A type of value. A value of an experiment file must have the ``type``; the text of a flag is converted to it.

    ``parse`` makes the value of the setting from that, and raises ValueError. A type with a ``separator`` (a regular
    expression) is a list: ``type`` and ``parse`` are those of an item, ``collect`` makes a tuple of all. With
    ``is_table``, a file may also have a TOML table: ``{a = "x"}`` means the list ``["a=x"]``. With ``bare``, a flag may
    stand alone and then means this text; with ``negated``, the flag with ``--no-`` means that text. ``choices`` are
    texts that a shell may offer; other texts may be valid too.
    """

    name: str  # says in a message what is valid
    type: Any
    parse: Callable[[Any], Any] = lambda value: value
    limits: Mapping[str, Any] = field(default_factory=dict)  # of a number, as msgspec.Meta takes them
    metavar: str = "NAME"
    separator: str = ""
    collect: Callable[[list[Any]], tuple[Any, ...]] = tuple
    is_table: bool = False
    format: Callable[[Any], str] = str  # for the defaults in help texts
    bare: str = ""
    negated: str = ""
    choices: tuple[str, ...] = ()

    @property
    def is_plural(self) -> bool:
        return bool(self.separator)

    def read_text(self, text: str | Sequence[str]) -> Any:
        """Return the value that a flag means. A list may be given in several texts. Raise ValueError."""
        return self._read([text] if isinstance(text, str) else list(text), strict=False)

    def read_value(self, value: Any) -> Any:
        """Return the value that a value of an experiment file means. Raise ValueError."""
        if self.is_table and isinstance(value, dict):
            value = [f"{key}={item}" if isinstance(item, str) else item for key, item in value.items()]
        return self._read(value if isinstance(value, list) and self.is_plural else [value], strict=True)

    def _read(self, items: list[Any], strict: bool) -> Any:
        if not self.is_plural:
            return self._read_item(items[0], strict)
        parts = [
            part
            for item in items
            for part in (re.split(self.separator, item) if isinstance(item, str) else [item])
            if not isinstance(part, str) or part.strip()
        ]
        if not parts:
            raise ValueError(f"the list is empty; valid: {self.name}")
        return self.collect([self._read_item(part, strict) for part in parts])

    def _read_item(self, item: Any, strict: bool) -> Any:
        """Convert a value from outside, which may be anything: text with a NUL, which no system call takes, or a number
        with a thousand digits.
        """
        import msgspec  # here, so that --help does without it

        if isinstance(item, str):
            if "\0" in item:
                raise ValueError(f"{shorten(item)!r} has a NUL character")
            item = item.strip() if self.is_plural else item
        try:
            if not strict and isinstance(item, str) and self.type is bool:
                item = _SWITCH_WORDS.get(item.lower(), item)
            elif not strict and self.type is not str and isinstance(item, str):
                item = item.strip().replace("_", "")  # 1_000 is a number
            limited = Annotated[self.type, msgspec.Meta(**self.limits)] if self.limits else self.type
            return self.parse(msgspec.convert(item, limited, strict=strict))
        except (msgspec.ValidationError, OverflowError):
            raise ValueError(f"{_format_value(item)} is not valid; valid: {self.name}") from None


_SWITCH_WORDS: dict[str, bool] = {"yes": True, "on": True, "no": False, "off": False}


def _format_value(value: Any) -> str:
    try:
        return shorten(repr(value))
    except (ValueError, RecursionError):  # a hexadecimal number may be too long to be written in decimal
        return "a number that is too long to show"


def whole(least: int, most: int = _MOST) -> ValueType:
    limit = f"{least} or more" if most == _MOST else f"{least} … {most}"
    return ValueType(f"a whole number, {limit}", int, limits={"ge": least, "le": most}, metavar="N")


def number(least: float, most: float, above: bool = False) -> ValueType:
    """Return the type of a number in this range. With ``above``, the value must be larger than ``least``."""
    limits: dict[str, Any] = {"gt" if above else "ge": least, **({} if most == math.inf else {"le": most})}
    name = f"a number, {'above' if above else 'at least'} {least:g}{'' if most == math.inf else f', at most {most:g}'}"
    return ValueType(name, float, limits=limits, metavar="N", format="{:g}".format)


def choice(*valid: str) -> ValueType:
    def parse(text: str) -> str:
        if text.lower() not in valid:
            raise ValueError(str(explain_unknown("value", text, valid)))
        return text.lower()

    return ValueType(f"one of {', '.join(valid)}", str, parse, choices=valid)


def listed(kind: ValueType, bare: str = "", negated: str = "") -> ValueType:
    """Return the type of a list of values, each of which is measured. Values that are repeated count once."""
    return replace(
        kind,
        name=f"{kind.name}, or a list of these",
        separator=_COMMA,
        collect=lambda items: tuple(dict.fromkeys(items)),
        format=",".join,
        bare=bare,
        negated=negated,
    )


def parse_duration(text: str | float) -> float:
    """Return the seconds of "90", "90s", "5m" or "1h30m"."""
    text = str(text)
    match = _DURATION.fullmatch(text.strip().lower()) if len(text) <= _LONGEST_NUMBER else None
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total <= _LONGEST_SECONDS:
        reason = "is too long" if total else "is not a duration"
        raise ValueError(f"{shorten(text)!r} {reason}; valid: 90s, 5m, 1h30m")
    return total


def _parse_share(text: str | float) -> float:
    """Read "1%" or "0.01"."""
    text = str(text)
    match = _SHARE.fullmatch(text.strip()) if len(text) <= _LONGEST_NUMBER else None
    share = float(match[1]) / (100 if match[2] else 1) if match else 0.0
    if not 0 < share <= _LARGEST_SHARE:
        valid = f"above 0, at most {_LARGEST_SHARE:.0%}, such as 1% or 0.01"
        raise ValueError(f"{shorten(text)!r} is not valid; valid: {valid}")
    return share


def _format_duration(seconds: float) -> str:
    return f"{seconds / 60:g}m" if seconds % 60 == 0 else f"{seconds:g}s"


def _parse_batch(value: int | str) -> int:
    number = replace(whole(1), name=BATCH.name)
    return AUTO if str(value).lower() == "auto" else int(number.read_text(str(value)))


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


def _parse_python(pair: str) -> tuple[str, str]:
    """Read ``FRAMEWORK=PATH``."""
    name, equals, path = (part.strip() for part in pair.partition("="))
    if not equals:
        raise ValueError(f"{shorten(pair)!r} has no framework; valid: FRAMEWORK=PATH, such as mxnet=/path/to/python")
    if name.lower() not in FRAMEWORKS:
        raise ValueError(str(explain_unknown("framework", name, FRAMEWORKS)))
    # A path that does not exist here may exist on the hosts; the local launcher checks it.
    on_hosts = path.startswith(os.sep) and not Path(path).exists()
    return name.lower(), path if on_hosts else find_python(path)


def _collect_pythons(pairs: list[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    names = [name for name, _ in pairs]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two Pythons for {name}; valid: one")
    return tuple(pairs)


def _parse_search(value: bool | str) -> str | None:
    words = {"lists": SEARCH_LISTS, "on": SEARCH_LISTS, "true": SEARCH_LISTS, "default": SEARCH_DEFAULT}
    words_off = dict.fromkeys(("off", "false"))
    text = str(value).lower()
    if text not in {**words, **words_off}:
        raise ValueError(f"{shorten(str(value))!r} is not valid; valid: lists (the settings that are lists) or default")
    return words.get(text)


NAME = ValueType("a name", str)
NAMES = ValueType("a list of names", str, metavar="LIST", separator=_COMMA, format=",".join)
COUNTS = replace(
    whole(1),
    name="a list of whole numbers, 1 or more",
    metavar="LIST",
    separator=_COMMA,
    collect=lambda counts: tuple(sorted(set(counts))),
)
LINES = ValueType("a list of lines", str, metavar="LINE", separator=_LINE_BREAK)
PYTHONS = ValueType(
    "a table of frameworks and their Pythons",
    str,
    _parse_python,
    metavar="LIST",
    separator=_COMMA_BEFORE_PAIR,
    collect=_collect_pythons,
    is_table=True,
)
SWITCH = ValueType("true or false", bool, format=lambda value: "on" if value else "off")
SWITCHES = replace(
    listed(SWITCH, bare="on", negated="off"), name=SWITCH.name, metavar="[on,off]", choices=("on", "off")
)
DURATION = ValueType(
    'a duration such as "5m"', str | int | float, parse_duration, metavar="TIME", format=_format_duration
)
SHARE = ValueType("a share", str | int | float, _parse_share, metavar="SHARE", format="{:.0%}".format)
BATCH = ValueType('a whole number, 1 or more, or "auto"', int | str, _parse_batch, metavar="N", choices=("auto",))
BATCHES = listed(BATCH)
SEARCH = ValueType(
    'true, false, "lists" or "default"',
    bool | str,
    _parse_search,
    metavar="[default]",
    bare=SEARCH_LISTS,
    choices=(SEARCH_LISTS, SEARCH_DEFAULT),
)
DATA = ValueType("a source of images", str, data.parse_data)
SCHEDULE = ValueType("a schedule", str, check_schedule, choices=("constant", "cosine"))
