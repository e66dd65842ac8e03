"""The tidy table as a file or a frame, and lines ``key: value unit`` for ReFrame and JUBE."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from ..analyse.series import Point
from ..analyse.throughput import is_measured
from ..errors import InputError
from ..record.files import write_output
from ..record.trial import SKIPPED
from ..report.csv_json import make_csv_cell, make_series_paths, make_slug
from ..runs import Run
from .base import Destination, Exporter, TextExporter, describe_file, import_package
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
        for run in runs:
            for row in run.rows:
                values = asdict(row).values()
                writer.writerow(str(v).lower() if isinstance(v, bool) else make_csv_cell(v) for v in values)
        return text.getvalue()


class JsonExporter(TextExporter):
    name = "json"
    description = "the tidy table as JSON, with the unit and meaning of every column"

    def text(self, runs: Sequence[Run]) -> str:
        columns = [
            {"name": column.name, "type": column.kind.__name__, "unit": column.unit, "meaning": column.meaning}
            for column in COLUMNS
        ]
        rows = [asdict(row) for run in runs for row in run.rows]
        document = {"schema": TABLE_SCHEMA, "columns": columns, "rows": rows}
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
        return describe_file(write_output(destination.output, buffer.getvalue()), runs)


def list_values_by_column(rows: Sequence[TrialRow]) -> dict[str, list[Any]]:
    return {column.name: [getattr(row, column.name) for row in rows] for column in COLUMNS}


def to_pandas(rows: Sequence[TrialRow]) -> pandas.DataFrame:
    """Return a frame in which a missing value is ``pandas.NA``. Units are in its ``attrs``."""
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
    fields = []
    for column in COLUMNS:
        metadata = {"unit": column.unit, "meaning": column.meaning}
        fields.append(pyarrow.field(column.name, kinds[column.kind], column.is_optional, metadata))
    return pyarrow.table(list_values_by_column(rows), schema=pyarrow.schema(fields))


def list_summary_lines(run: Run) -> Iterator[str]:
    """Yield lines ``key: value unit``: counts of trials, then every point with a result.

    A key has only letters, digits, ``_``, ``-`` and ``.``; a unit has no spaces.
    """
    configs = [series.config for series in run.series]
    paths = make_series_paths(configs, lambda config: make_slug(config.framework))
    counted = [record for record in run.records if record.status != SKIPPED]
    yield f"trials: {len(counted)} trials"
    yield f"failed_trials: {sum(not is_measured(record) for record in counted)} trials"
    for series in run.series:
        name = paths[series.config].replace("/", "_")  # torch_alexnet_b32, unique in the run
        for point in series.good:
            unit, key = make_unit_name(point), f"{name}.n{point.devices}"
            if point.samples_per_second:
                yield f"{key}.{unit}_per_second: {point.samples_per_second.mean:.6g} {unit}/s"
            if point.step_seconds is not None:
                yield f"{key}.step_time: {point.step_seconds * 1000:.6g} ms"
            if point.speedup:
                yield f"{key}.speedup: {point.speedup.mean:.6g} times"
            if point.efficiency:
                yield f"{key}.efficiency: {point.efficiency.mean * 100:.6g} %"


def make_unit_name(point: Point) -> str:
    """Return the unit of a point's samples as a part of a name. A plug-in chooses its own."""
    return re.sub(r"[^A-Za-z0-9]+", "_", point.unit)
