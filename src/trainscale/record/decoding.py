"""Typed decoding of the JSON files of a run. What they hold is checked against the dataclasses that it becomes."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from ..errors import InputError
from ..worker.type_aliases import JsonObject

MOST_BYTES = 1 << 28  # of a file that is read as a whole
_MOST_DIGITS = 25  # of a whole number; sums of 64-bit hashes need 20
Kind = TypeVar("Kind")


class DecodingError(ValueError):
    """The text is not JSON, or a value in it has the wrong type. The message names the field."""


@dataclass(frozen=True)
class _Versioned:
    schema: int


def decode_object(text: str | bytes) -> JsonObject:
    """Decode a JSON object. The standard library's decoder also reads what it wrote itself, such as lone surrogates."""
    try:
        values = json.loads(text, parse_constant=_reject_constant, parse_int=_parse_int)
    except RecursionError:
        raise DecodingError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise DecodingError(str(error)) from None
    if not isinstance(values, dict):
        raise DecodingError("this is not a JSON object")
    return values


def convert(values: Any, kind: type[Kind]) -> Kind:
    """Make a typed object of decoded JSON. Fields that this version does not know are ignored."""
    import msgspec

    try:
        return msgspec.convert(values, kind)
    except ValueError as error:  # a ValidationError, or a UnicodeError for half of a surrogate pair
        problem, _, path = str(error).partition(" - at `$")
        field = path.strip("`.")
        raise DecodingError(f"{field}: {problem}" if field else problem) from None


def check_schema(values: JsonObject, known: int, where: str) -> int:
    """Return the schema of a document. A newer one than ``known`` is an InputError."""
    schema = convert(values, _Versioned).schema
    if schema > known:
        raise InputError(f"{where}: written by a newer trainscale (schema {schema}, this one knows {known})")
    return schema


def leave_out_nones(value: Any) -> JsonObject:
    """Return the fields of a dataclass that have a value."""
    return {name: field for name, field in asdict(value).items() if field is not None}


def _parse_int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits is too large")
    return int(text)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
