"""A setting, declared once, and groups of settings.

The command line, the experiment file, the help texts and the messages about wrong values are made from these
declarations. The groups of an experiment are in groups/; a launcher may declare a group of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from ..errors import InputError, shorten
from .value_types import ValueType

SettingValues = dict[str, Any]  # values of settings, by key

_MOST_BITS = 1024  # of a whole number in an experiment file
_TOML_TYPES = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a table",
}


@dataclass(frozen=True)
class Setting:
    """One setting. Its key names it in an experiment file, and its main flag is made from the key.

    ``default_text`` says how the default is derived where it depends on something; ``{}`` in it stands for ``default``.
    """

    key: str
    value_type: ValueType
    description: str
    aliases: tuple[str, ...] = ()
    default: Any = None
    default_text: str = ""
    metavar: str = ""
    group: str = ""  # title of the group in --help

    @property
    def flag(self) -> str:
        return f"--{self.key.replace('_', '-')}"

    @property
    def flags(self) -> tuple[str, ...]:
        """All flags; short ones come first."""
        short = [alias for alias in self.aliases if not alias.startswith("--")]
        return (*short, self.flag, *(alias for alias in self.aliases if alias not in short))

    @property
    def default_phrase(self) -> str:
        """The default in words, or nothing where the setting is simply unset."""
        value = "" if self.default in (None, ()) else self.value_type.format(self.default)
        return self.default_text.replace("{}", value) if self.default_text else value

    @property
    def help(self) -> str:
        return f"{self.description} (default: {self.default_phrase})" if self.default_phrase else self.description

    def complete(self, value: Any) -> Any:
        """Return a value as the setting holds it: lists are tuples, and a single value of a list is a list of one."""
        if not self.value_type.is_plural or value is None or isinstance(value, tuple):
            return value
        return tuple(value) if isinstance(value, list) else (value,)

    def read_text(self, text: str, flag: str) -> Any:
        """Read a value from the command line."""
        try:
            return self._parse(text)
        except ValueError as error:
            raise InputError(f"{flag}: {error}") from None

    def read_toml(self, value: Any, where: str) -> Any:
        """Read a value from an experiment file: check its TOML type, then read its text as on the command line."""
        kind = self.value_type
        if kind.is_table and isinstance(value, dict) and all(isinstance(item, str) for item in value.values()):
            value = [f"{name}={item}" for name, item in value.items()]
        items = value if isinstance(value, list) else [value]
        if (isinstance(value, list) and not kind.is_plural) or not all(kind.accepts(item) for item in items):
            given_type = _TOML_TYPES.get(type(value), type(value).__name__)
            raise InputError(f"{where}: {self.key} must be {kind.name}, not {given_type} ({_format_value(value)})")
        try:
            return self._parse(kind.separator.join(map(_to_text, items)))
        except ValueError as error:
            raise InputError(f"{where}: {self.key}: {error}") from None

    def _parse(self, text: str) -> Any:
        """Read a value. Raise ValueError, also for a NUL in a path, name or line: no system call takes one."""
        if "\0" in text:
            raise ValueError(f"{shorten(text)!r} has a NUL character")
        return self.value_type.parse(text)


def _to_text(item: Any) -> str:
    """Return a value of an experiment file as it would be on the command line."""
    if isinstance(item, bool):
        return str(item).lower()
    if isinstance(item, int) and item.bit_length() > _MOST_BITS:
        raise ValueError(f"a number of {item.bit_length()} bits is too large")
    return str(item)


def _format_value(value: Any) -> str:
    """Return a value of an experiment file for a message."""
    try:
        return shorten(repr(value))
    except (ValueError, RecursionError):  # a hexadecimal number may be too long to be written in decimal
        return "too long to show"


def setting(
    value_type: ValueType,
    description: str,
    *aliases: str,
    default: Any = None,
    default_text: str = "",
    metavar: str = "",
) -> Any:
    """Declare a field of a SettingGroup. The field's name is the setting's key."""
    metavar = metavar or value_type.metavar
    declared = Setting("", value_type, description, aliases, default, default_text, metavar)
    return field(default=default, metadata={"setting": declared})


@dataclass(frozen=True)
class SettingGroup:
    """A frozen dataclass whose fields are all declared by ``setting``. None means that a setting is unset.

    ``table`` names the group's table in an experiment file, ``title`` its heading in --help.
    """

    table: ClassVar[str]
    title: ClassVar[str]

    @classmethod
    def settings(cls) -> tuple[Setting, ...]:
        return tuple(replace(item.metadata["setting"], key=item.name, group=cls.title) for item in fields(cls))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """Make the group from those of the values that belong to it. A list of one value may be given as that value."""
        own = [declared for declared in cls.settings() if declared.key in values]
        return cls(**{declared.key: declared.complete(values[declared.key]) for declared in own})
