"""The tidy table as a CSV, JSON or Parquet file."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..errors import InputError
from ..report.csv_cells import make_csv_cell
from .base import Destination, Exporter, TextExporter, describe_file, write_file
from .columns import COLUMNS
from .frames import to_arrow
from .packages import import_package
from .stored_run import StoredRun, collect_rows

# Schema history
#     1  first version
TABLE_SCHEMA = 1


class CsvExporter(TextExporter):
    name = "csv"
    description = "the tidy table; an empty cell is a value that does not exist"

    def text(self, runs: Sequence[StoredRun]) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([column.name for column in COLUMNS])
        for row in collect_rows(runs):
            writer.writerow(map(_make_csv_cell, asdict(row).values()))
        return text.getvalue()


class JsonExporter(TextExporter):
    name = "json"
    description = "the tidy table as JSON, with the unit and meaning of every column"

    def text(self, runs: Sequence[StoredRun]) -> str:
        document = {
            "schema": TABLE_SCHEMA,
            "columns": [
                {"name": column.name, "type": column.kind.__name__, "unit": column.unit, "meaning": column.meaning}
                for column in COLUMNS
            ],
            "rows": [asdict(row) for row in collect_rows(runs)],
        }
        return json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


class ParquetExporter(Exporter):
    name = "parquet"
    description = "the tidy table as Parquet (needs pyarrow)"

    def export(self, runs: Sequence[StoredRun], destination: Destination) -> str:
        if destination.output is None:
            raise InputError("--to parquet: no file is named; valid with -o, such as -o trials.parquet")
        buffer = io.BytesIO()
        parquet = import_package("pyarrow.parquet", "--to parquet", "pyarrow")
        parquet.write_table(to_arrow(collect_rows(runs)), buffer)
        return describe_file(write_file(destination.output, buffer.getvalue()), runs)


def _make_csv_cell(value: Any) -> Any:
    return str(value).lower() if isinstance(value, bool) else make_csv_cell(value)
