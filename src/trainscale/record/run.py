"""What a run is: its specification and where it was measured. This is run.json, written once when the run starts."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from .decoding import convert
from .trial import SCHEMA


@dataclass(frozen=True)
class RunInfo:
    """``spec`` decides whether a command continues this run; ``provenance`` is for the reader."""

    spec: dict[str, Any]
    provenance: dict[str, Any] = field(default_factory=dict)
    schema: int = SCHEMA

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> RunInfo:
        """Raises DecodingError if a value is missing or has the wrong type."""
        return convert(values, cls)
