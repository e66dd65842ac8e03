"""The tidy table as a frame of pandas or polars, or as a table of Arrow. Each package is imported when it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .columns import COLUMNS, TrialRow
from .packages import import_package

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

# pandas' own types that can hold a missing value.
_PANDAS = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}


def list_values_by_column(rows: Sequence[TrialRow]) -> dict[str, list[Any]]:
    return {column.name: [getattr(row, column.name) for row in rows] for column in COLUMNS}


def to_pandas(rows: Sequence[TrialRow]) -> pandas.DataFrame:
    """Return a frame in which a missing value is ``pandas.NA``. Units and meanings are in its ``attrs``."""
    pandas = import_package("pandas", "to_pandas()")
    values = list_values_by_column(rows)
    arrays = {column.name: pandas.array(values[column.name], dtype=_PANDAS[column.kind]) for column in COLUMNS}
    frame = pandas.DataFrame(arrays)
    frame.attrs = {"units": {column.name: column.unit for column in COLUMNS if column.unit}}
    return frame


def to_polars(rows: Sequence[TrialRow]) -> polars.DataFrame:
    """Return a frame in which a missing value is null."""
    polars = import_package("polars", "to_polars()")
    kinds = {str: polars.String, int: polars.Int64, float: polars.Float64, bool: polars.Boolean}
    schema = {column.name: kinds[column.kind] for column in COLUMNS}
    return polars.DataFrame(list_values_by_column(rows), schema=schema)


def to_arrow(rows: Sequence[TrialRow]) -> pyarrow.Table:
    """Return a table whose fields have their unit and meaning as metadata."""
    pyarrow = import_package("pyarrow", "to_arrow()")
    kinds = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    fields = [
        pyarrow.field(
            column.name, kinds[column.kind], column.is_optional, {"unit": column.unit, "meaning": column.meaning}
        )
        for column in COLUMNS
    ]
    return pyarrow.table(list_values_by_column(rows), schema=pyarrow.schema(fields))
