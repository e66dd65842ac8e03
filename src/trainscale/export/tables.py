"""The tidy table as a CSV, JSON or Parquet file, and as a frame of pandas or polars or a table of Arrow."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..errors import InputError
from ..report.csv_json import make_csv_cell
from ..runs import Run
from .base import Destination, Exporter, TextExporter, describe_file, import_package, write_file
from .columns import COLUMNS, TrialRow

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

# Schema history
#     1  first version
TABLE_SCHEMA = 1

# pandas' own types that can hold a missing value.
_PANDAS = {str: "string", int: "Int64", float: "Float64", bool: "boolean"}


class CsvExporter(TextExporter):
    name = "csv"
    description = "the tidy table; an empty cell is a value that does not exist"

    def text(self, runs: Sequence[Run]) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.name for column in COLUMNS])
        for row in [row for run in runs for row in run.rows]:
            writer.writerow(map(_make_csv_cell, asdict(row).values()))
        return text.getvalue()


class JsonExporter(TextExporter):
    name = "json"
    description = "the tidy table as JSON, with the unit and meaning of every column"

    def text(self, runs: Sequence[Run]) -> str:
        document = {
            "schema": TABLE_SCHEMA,
            "columns": [
                {"name": column.name, "type": column.kind.__name__, "unit": column.unit, "meaning": column.meaning}
                for column in COLUMNS
            ],
            "rows": [asdict(row) for row in [row for run in runs for row in run.rows]],
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class ParquetExporter(Exporter):
    name = "parquet"
    description = "the tidy table as Parquet (needs pyarrow)"

    def export(self, runs: Sequence[Run], destination: Destination) -> str:
        if destination.output is None:
            raise InputError("--to parquet: no file is named; valid with -o, such as -o trials.parquet")
        buffer = io.BytesIO()
        parquet = import_package("pyarrow.parquet", "--to parquet", "pyarrow")
        parquet.write_table(to_arrow([row for run in runs for row in run.rows]), buffer)
        return describe_file(write_file(destination.output, buffer.getvalue()), runs)


def _make_csv_cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else make_csv_cell(value)


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
