"""Declares the fields of dataclasses that people see: tables, frames and the documentation are made from them."""

from __future__ import annotations

from dataclasses import field
from typing import Any


def column(meaning: str, unit: str = "", **options: Any) -> Any:
    """Declare a field that people see, with what it means. A value that does not exist is None."""
    return field(metadata={"meaning": meaning, "unit": unit}, **options)
