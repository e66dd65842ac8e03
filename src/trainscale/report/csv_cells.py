"""Cells of CSV files that spreadsheet programs do not take for formulas."""

from __future__ import annotations

_BEGIN_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def make_csv_cell(value: object) -> object:
    """Return the value; text that a spreadsheet would compute gets an apostrophe before it, as spreadsheets write it.
    Names of networks and hosts, and error messages, are text that others wrote.
    """
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_BEGIN_FORMULA) and not _is_number(value):
        return f"'{value}"
    return value


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
