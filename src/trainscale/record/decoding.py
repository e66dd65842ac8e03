"""Typed decoding of the JSON files of a run. Its callers need not doubt types or control characters."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from ..errors import InputError, shorten_path
from ..worker.regular_files import read_regular
from ..worker.type_aliases import JsonObject

MOST_BYTES = 1 << 28  # of a file that is read as a whole
_MOST_DIGITS = 25  # of a whole number; sums of 64-bit hashes need 20
_EQUAL_DIGITS, _LONG_NUMBER = bytes.maketrans(b"123456789", b"000000000"), b"0" * (_MOST_DIGITS + 1)
Kind = TypeVar("Kind")


class DecodingError(ValueError):
    """The text is not JSON, or a value has the wrong type."""


# Control characters but newline and tab, and halves of surrogate pairs: in JSON, and decoded.
_ESCAPED = re.compile(rb"\\(?:[bfr]|u00[0189]|u007f|ud[89a-f])|\x7f|\xc2[\x80-\x9f]", re.IGNORECASE)
_UNPRINTABLE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def remove_unprintable(text: str) -> str:
    return _UNPRINTABLE.sub("", text)


def find_first_line(text: str) -> str:
    return next((line.strip() for line in remove_unprintable(text).splitlines() if line.strip()), "")


def read_document(path: Path, schema: int, what: str, decode: Callable[[JsonObject], Kind]) -> Kind | None:
    """Decode a JSON file of a run, if there is one. ``what`` is for the message."""
    try:
        values = decode_object(read_regular(path, MOST_BYTES))
        check_schema({"schema": schema, **values}, schema, str(path))
        return decode(values)
    except FileNotFoundError:
        return None
    except (OSError, DecodingError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InputError(f"{shorten_path(path)}: cannot be read as {what}: {reason}") from None


def decode_object(text: str | bytes) -> JsonObject:
    """Decode a JSON object, without control characters in its texts."""
    import msgspec

    data = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    has_unprintable = _ESCAPED.search(data) is not None  # or what looks like it
    values: Any = None
    try:
        # msgspec is much faster (bench/journal.py), but accepts numbers that no statistics can use.
        if not has_unprintable and _LONG_NUMBER not in data.translate(_EQUAL_DIGITS):
            values = msgspec.json.decode(data)
    except (ValueError, RecursionError):
        pass  # the standard library says better what is wrong
    try:
        if values is None:
            values = json.loads(text, parse_constant=_reject_constant, parse_int=_parse_int)
    except RecursionError:
        raise DecodingError("the JSON is nested too deeply") from None
    except ValueError as error:
        raise DecodingError(str(error)) from None
    if not isinstance(values, dict):
        raise DecodingError("this is not a JSON object")
    return dict(_clean(values)) if has_unprintable else values


def _clean(value: Any) -> Any:
    if isinstance(value, str):
        return remove_unprintable(value)
    if isinstance(value, list):
        return [_clean(item) for item in value]
    if isinstance(value, dict):
        return {remove_unprintable(key): _clean(item) for key, item in value.items()}
    return value


def convert(values: Any, kind: type[Kind]) -> Kind:
    """Make a typed object of decoded JSON. Unknown fields are ignored."""
    import msgspec

    try:
        return msgspec.convert(values, kind)
    except ValueError as error:  # a ValidationError, or a UnicodeError for half of a surrogate pair
        problem, _, path = str(error).partition(" - at `$")
        field = path.strip("`.")
        raise DecodingError(f"{field}: {problem}" if field else problem) from None


def check_schema(values: JsonObject, known: int, where: str) -> None:
    """Refuse a document whose schema is newer than ``known``."""
    schema = values.get("schema")
    if not isinstance(schema, int):
        raise DecodingError(f"schema: Expected a whole number, got {schema!r:.40}")
    if schema > known:
        raise InputError(f"{where}: written by a newer trainscale (schema {schema}, this one knows {known})")


def leave_out_nones(value: Any) -> JsonObject:
    return {name: field for name, field in asdict(value).items() if field is not None}


def _parse_int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits is too large")
    return int(text)


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not a JSON number")
