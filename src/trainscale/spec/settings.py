"""A setting, declared once, and groups of settings.

The command line, the experiment file, the help texts and the messages about wrong values are made from these
declarations. The groups of an experiment are in groups.py; a launcher may declare a group of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Self

from ..errors import InputError
from .value_types import ValueType

SettingValues = dict[str, Any]  # values of settings, by key


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
    is_rare: bool = False  # --help only names it

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

    def read_text(self, text: str | Sequence[str], flag: str) -> Any:
        """Return the value that the text of a flag means."""
        try:
            return self.value_type.read_text(text)
        except ValueError as error:
            raise InputError(f"{flag}: {error}") from None

    def read_value(self, value: Any, where: str) -> Any:
        """Return the value that a value of an experiment file, or of a Python program, means."""
        try:
            return self.value_type.read_value(value)
        except ValueError as error:
            raise InputError(f"{where}: {self.key}: {error}") from None


def setting(
    value_type: ValueType,
    description: str,
    *aliases: str,
    default: Any = None,
    default_text: str = "",
    metavar: str = "",
    is_rare: bool = False,
) -> Any:
    """Declare a field of a SettingGroup. The field's name is the setting's key."""
    metavar = metavar or value_type.metavar
    declared = Setting("", value_type, description, aliases, default, default_text, metavar, is_rare=is_rare)
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
