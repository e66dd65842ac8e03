"""A setting, declared once, from which the command line, the experiment file, help and messages are made."""

import math
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from ..errors import InputError, explain_unknown, shorten, shorten_path
from ..worker.config import check_schedule
from ..worker.frameworks.catalog import FRAMEWORKS
from . import data
from .config import AUTO

SEARCH_LISTS, SEARCH_DEFAULT = "lists", "default"  # which space a search looks at

_MOST = 10**12
_LONGEST_SECONDS = 100 * 365 * 86400.0  # a century
_DURATION = re.compile(r"(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?")
_SHARE = re.compile(r"([0-9]*\.?[0-9]+|[0-9]+\.)\s*(%?)")
_COMMA, _LINE_BREAK = r",", r"[\r\n]+"
_COMMA_BEFORE_PAIR = r",(?=[\w -]*=)|,\s*$"  # a path may contain commas
_SWITCH_WORDS = {"yes": True, "on": True, "no": False, "off": False}  # besides those that msgspec knows

SettingValues = dict[str, Any]  # values of settings, by key


# ---- types of values


@dataclass(frozen=True)
class ValueType:
    """A type of value, or of the items of a list, if it has a ``separator``."""

    name: str  # says in a message what is valid
    type: Any  # that a value in a file has; the text of a flag is converted to it
    parse: Callable[[Any], Any] = lambda value: value  # makes the value of the setting; raises ValueError
    limits: Mapping[str, Any] = field(default_factory=dict)  # of a number, as msgspec.Meta takes them
    metavar: str = "NAME"
    separator: str = ""  # a regular expression
    collect: Callable[[list[Any]], tuple[Any, ...]] = tuple  # makes the value of the items
    is_table: bool = False  # a file may also have a table: {a = "x"} means the list ["a=x"]
    format: Callable[[Any], str] = str  # for the defaults in help texts
    bare: str = ""  # what a flag that stands alone means
    negated: str = ""  # what the flag with --no- means
    choices: tuple[str, ...] = ()  # for a shell to offer; other texts may be valid too

    def read_text(self, text: str | Sequence[str]) -> Any:
        return self._read([text] if isinstance(text, str) else list(text), strict=False)

    def read_value(self, value: Any) -> Any:
        if self.is_table and isinstance(value, dict):
            value = [f"{key}={item}" if isinstance(item, str) else item for key, item in value.items()]
        return self._read(value if isinstance(value, list) and self.separator else [value], strict=True)

    def _read(self, items: list[Any], strict: bool) -> Any:
        if not self.separator:
            return self._convert(items[0], strict)
        parts = []
        for item in items:
            parts += re.split(self.separator, item) if isinstance(item, str) else [item]
        parts = [part.strip() if isinstance(part, str) else part for part in parts]
        values = [self._convert(part, strict) for part in parts if part != ""]
        if not values:
            raise ValueError(f"the list is empty; valid: {self.name}")
        return self.collect(values)

    def _convert(self, item: Any, strict: bool) -> Any:
        """Convert a value from outside: it may hold a NUL or have a thousand digits."""
        import msgspec  # here, so that --help does without it

        if isinstance(item, str) and "\0" in item:
            raise ValueError(f"{shorten(item)!r} has a NUL character")
        limited = Annotated[self.type, msgspec.Meta(**self.limits)] if self.limits else self.type
        try:
            if isinstance(item, str) and not strict and self.type is bool:
                item = _SWITCH_WORDS.get(item.lower(), item)
            elif isinstance(item, str) and not strict and self.type is not str:
                item = item.strip().replace("_", "")  # 1_000 is a number
            return self.parse(msgspec.convert(item, limited, strict=strict))
        except (msgspec.ValidationError, OverflowError):
            try:
                shown = shorten(repr(item))
            except (ValueError, RecursionError):  # a hexadecimal number may be too long for decimal
                shown = "a number that is too long to show"
            raise ValueError(f"{shown} is not valid; valid: {self.name}") from None


def whole(least: int, most: int = _MOST) -> ValueType:
    limit = f"{least} or more" if most == _MOST else f"{least} … {most}"
    return ValueType(f"a whole number, {limit}", int, limits={"ge": least, "le": most}, metavar="N")


def number(least: float, most: float, above: bool = False) -> ValueType:
    limits = {"gt" if above else "ge": least}
    name = f"a number, {'above' if above else 'at least'} {least:g}"
    if most != math.inf:
        limits["le"] = most
        name += f", at most {most:g}"
    return ValueType(name, float, limits=limits, metavar="N", format="{:g}".format)


def choice(*valid: str) -> ValueType:
    def parse(text: str) -> str:
        if text.lower() not in valid:
            raise ValueError(str(explain_unknown("value", text, valid)))
        return text.lower()

    return ValueType(f"one of {', '.join(valid)}", str, parse, choices=valid)


def listed(kind: ValueType, **options: Any) -> ValueType:
    """Return the type of a list, each item of which is measured once."""
    name = f"{kind.name}, or a list of these"
    options = {"name": name, "format": ",".join, **options}
    return replace(kind, separator=_COMMA, collect=lambda items: tuple(dict.fromkeys(items)), **options)


def parse_duration(text: str | float) -> float:
    """Return the seconds of "90", "90s", "5m" or "1h30m"."""
    match = _DURATION.fullmatch(str(text).strip().lower())
    hours, minutes, seconds = (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    total = 3600 * hours + 60 * minutes + seconds
    if not 0 < total <= _LONGEST_SECONDS:
        reason = "is too long" if total else "is not a duration"
        raise ValueError(f"{shorten(str(text))!r} {reason}; valid: 90s, 5m, 1h30m")
    return total


def share(most: float) -> ValueType:
    def parse(text: str | float) -> float:
        match = _SHARE.fullmatch(str(text).strip())
        value = float(match[1]) / (100 if match[2] else 1) if match else 0.0
        if not 0 < value <= most:
            valid = f"above 0, at most {most:.0%}, such as 1% or 0.01"
            raise ValueError(f"{shorten(str(text))!r} is not valid; valid: {valid}")
        return value

    return ValueType("a share", str | int | float, parse, metavar="SHARE", format="{:.0%}".format)


def _parse_batch(value: int | str) -> int:
    if str(value).lower() == "auto":
        return AUTO
    return int(replace(whole(1), name=BATCH.name).read_text(str(value)))


def _parse_search(value: bool | str) -> str | None:
    words = {"lists": SEARCH_LISTS, "on": SEARCH_LISTS, "true": SEARCH_LISTS, "default": SEARCH_DEFAULT}
    text = str(value).lower()
    if text not in (*words, "off", "false"):
        valid = "lists (the settings that are lists) or default"
        raise ValueError(f"{shorten(str(value))!r} is not valid; valid: {valid}")
    return words.get(text)


def find_python(text: str) -> str:
    """Return the absolute path. Links stay: the Python of a virtual environment is one."""
    path = os.path.abspath(os.path.expanduser(text)) if os.sep in text else shutil.which(text)  # noqa: PTH100, PTH111
    if not text or path is None:
        raise ValueError(f"there is no Python {shorten_path(text)!r} on the PATH; valid: a path or a name")
    if Path(path).is_dir():
        raise ValueError(f"{path} is a folder; valid: the Python in it, such as {Path(path) / 'bin/python'}")
    if not Path(path).exists():
        raise ValueError(f"there is no Python at {shorten_path(path)}")
    if not os.access(path, os.X_OK):
        raise ValueError(f"{path} is not executable")
    return path


def _parse_pythons(pairs: list[str]) -> tuple[tuple[str, str], ...]:
    pythons: dict[str, str] = {}
    for pair in pairs:
        name, equals, path = (part.strip() for part in pair.partition("="))
        name = name.lower()
        if not equals:
            valid = "FRAMEWORK=PATH, such as mxnet=/path/to/python"
            raise ValueError(f"{shorten(pair)!r} has no framework; valid: {valid}")
        if name not in FRAMEWORKS:
            raise ValueError(str(explain_unknown("framework", name, FRAMEWORKS)))
        if name in pythons:
            raise ValueError(f"two Pythons for {name}; valid: one")
        # A path may exist on the hosts only; the local launcher checks it.
        is_on_hosts = path.startswith(os.sep) and not Path(path).exists()
        pythons[name] = path if is_on_hosts else find_python(path)
    return tuple(pythons.items())


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
    metavar="LIST",
    separator=_COMMA_BEFORE_PAIR,
    collect=_parse_pythons,
    is_table=True,
)
SWITCH = ValueType("true or false", bool, format=lambda value: "on" if value else "off")
SWITCHES = listed(SWITCH, name=SWITCH.name, metavar="[on,off]", choices=("on", "off"), bare="on", negated="off")
DURATION = ValueType(
    'a duration such as "5m"',
    str | int | float,
    parse_duration,
    metavar="TIME",
    format=lambda seconds: f"{seconds:g}s" if seconds % 60 else f"{seconds / 60:g}m",
)
SHARE = share(0.5)
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


# ---- settings


@dataclass(frozen=True)
class Setting:
    key: str  # in an experiment file; the main flag is made from it
    value_type: ValueType
    description: str
    aliases: tuple[str, ...] = ()
    default: Any = None
    default_text: str = ""  # how the default is derived; {} in it stands for ``default``
    metavar: str = ""
    group: str = ""  # title of the group in --help
    is_rare: bool = False  # --help only names it

    @property
    def flag(self) -> str:
        return f"--{self.key.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        return tuple(sorted((self.flag, *self.aliases), key=lambda flag: flag.startswith("--")))

    @property
    def default_phrase(self) -> str:
        value = "" if self.default in (None, ()) else self.value_type.format(self.default)
        return self.default_text.replace("{}", value) if self.default_text else value

    @property
    def help(self) -> str:
        phrase = self.default_phrase
        return f"{self.description} (default: {phrase})" if phrase else self.description

    def read_text(self, text: str | Sequence[str], flag: str) -> Any:
        try:
            return self.value_type.read_text(text)
        except ValueError as error:
            raise InputError(f"{flag}: {error}") from None

    def read_value(self, value: Any, where: str) -> Any:
        try:
            return self.value_type.read_value(value)
        except ValueError as error:
            raise InputError(f"{where}: {self.key}: {error}") from None


def setting(value_type: ValueType, description: str, *aliases: str, default: Any = None, **options: Any) -> Any:
    """Declare a field of a SettingGroup. ``options`` are fields of Setting."""
    options = {"metavar": value_type.metavar, **options}
    declared = Setting("", value_type, description, aliases, default, **options)
    return field(default=default, metadata={"setting": declared})


@dataclass(frozen=True)
class SettingGroup:
    """A frozen dataclass whose fields are declared by ``setting``. None means unset."""

    table: ClassVar[str]  # in an experiment file
    title: ClassVar[str]  # in --help

    @classmethod
    def settings(cls) -> tuple[Setting, ...]:
        return tuple(replace(item.metadata["setting"], key=item.name, group=cls.title) for item in fields(cls))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Make the group from its part of the values. A list of one may be given as its item."""
        own = {declared.key: values[declared.key] for declared in cls.settings() if declared.key in values}
        for declared in cls.settings():
            value = own.get(declared.key)
            if declared.value_type.separator and not (value is None or isinstance(value, tuple)):
                own[declared.key] = tuple(value) if isinstance(value, list) else (value,)
        return cls(**own)
