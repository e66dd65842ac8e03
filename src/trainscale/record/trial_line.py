"""One line of the journal, decoded into the record of a trial."""

from __future__ import annotations

import functools
from dataclasses import MISSING as NO_DEFAULT
from dataclasses import Field, field, fields, make_dataclass
from typing import Any, get_type_hints

from ..errors import InputError
from ..spec.config import Config, Trial
from .decoding import DecodingError, check_schema, decode_object, has_unprintable
from .trial import NOT_JOURNALED, SCHEMA, TrialRecord, find_problem

_EQUAL_DIGITS, _LONG_NUMBER = bytes.maketrans(b"123456789", b"000000000"), b"0" * 26
_OF_TRIAL = ("config", "devices", "repeat", "short")  # fields of a line that become the trial of the record
_NOT_JOURNALED = ("trial", *NOT_JOURNALED)
_configs: dict[bytes, Config] = {}  # by their text; most lines of a journal have one of few configs


class DamagedLine(InputError):
    """A line of the journal cannot be read."""


def decode_record(line: str | bytes, where: str) -> TrialRecord:
    """Decode one line of the journal. A DamagedLine says ``where`` (file and line) it cannot be read and why."""
    record = decode_quickly(line)
    if record is not None:
        return record
    try:
        values = decode_object(line)
        check_schema(values, SCHEMA, where)
        return TrialRecord.from_dict(values)
    except DecodingError as error:
        raise DamagedLine(f"{where}: this line is damaged: {error}") from None


def decode_quickly(line: str | bytes) -> TrialRecord | None:
    """Decode a line in one step, many times faster than by way of a dictionary. Return None for a line that has another
    schema or is damaged, for which ``decode_record`` takes the other way.
    """
    data = line.encode(errors="surrogatepass") if isinstance(line, str) else line
    if _LONG_NUMBER in data.translate(_EQUAL_DIGITS) or has_unprintable(data):
        return None  # a whole number that no statistics can use, or a control character, perhaps
    try:
        decoded = _make_line_decoder().decode(data)
        config = _decode_config(bytes(decoded.config))
    except (ValueError, RecursionError):
        return None
    trial = Trial(config, decoded.devices, decoded.repeat, decoded.short)
    if decoded.schema != SCHEMA or find_problem(trial):
        return None
    # The constructor of a frozen dataclass would take as long as the decoding, so the record takes over the values.
    values = vars(decoded)
    for name in ("schema", *_OF_TRIAL):
        values.pop(name, None)
    values.update(trial=trial, sketches={}, closing_sketches={}, samples_seen=())
    record = object.__new__(TrialRecord)
    object.__setattr__(record, "__dict__", values)
    return record


def _decode_config(text: bytes) -> Config:
    config = _configs.get(text)
    if config is None:
        config = _configs[text] = _make_config_decoder().decode(text)
    return config


@functools.cache
def _make_config_decoder() -> Any:
    import msgspec

    return msgspec.json.Decoder(Config)


@functools.cache
def _make_line_decoder() -> Any:
    """Return a decoder of a dataclass with the fields of a line: those of a record, with those of its trial beside
    them. The config stays text.
    """
    import msgspec

    types = get_type_hints(TrialRecord)
    of_trial = [("schema", int), ("config", msgspec.Raw), ("devices", int), ("repeat", int)]
    of_record = [(f.name, types[f.name], _copy_default(f)) for f in fields(TrialRecord) if f.name not in _NOT_JOURNALED]
    return msgspec.json.Decoder(make_dataclass("Line", [*of_trial, ("short", bool, False), *of_record]))


def _copy_default(original: Field[Any]) -> Any:
    if original.default_factory is not NO_DEFAULT:
        return field(default_factory=original.default_factory, kw_only=True)
    return field(default=original.default, kw_only=True) if original.default is not NO_DEFAULT else field(kw_only=True)
