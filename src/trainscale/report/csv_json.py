"""Files for programs: results.csv, results.json, a CSV of each series."""

import csv
import io
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from ..analyse.checks import make_busy_flag
from ..analyse.series import Interval, Point, Series, find_common_unit, find_host_boundary
from ..analyse.titles import describe_differences
from ..runs import Run
from ..spec.config import Config
from ..worker.type_aliases import JsonObject
from . import wording
from .columns import COLUMNS
from .documents import Grid, encode_json, pick

# Schema history of results.json
#     1  first version
RESULTS_SCHEMA = 1
_BEGIN_FORMULA = ("=", "+", "-", "@", "\t", "\r")


# ---- CSV


def render_results_csv(runs: Sequence[Run]) -> str:
    """Return a row for each point, good or failed."""
    labelled = [(run.label, series) for run in runs for series in run.series]
    rows = [(label, series, point) for label, series in labelled for point in series.points]
    unit = find_common_unit(series for _, series in labelled)
    columns = [column for column in COLUMNS if column.in_csv and not column.unusual]
    for column in COLUMNS:
        if unusual := column.unusual:  # after the others, so that older runs give the same file
            values = [column.read(series, point) for _, series, point in rows]
            columns += [column] if any(map(unusual, values)) else []
    has_labels = any(run.label for run in runs)
    header = ["run"] if has_labels else []
    for column in columns:
        name = column.name_in_files(unit)
        header += [name, f"{name}_low", f"{name}_high"] if column.ends else [name]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for label, series, point in rows:
        cells: list[Any] = [label] if has_labels else []
        for column in columns:
            value = column.read(series, point)
            if column.ends:
                cells += [value.mean, value.low, value.high] if value else [None, None, None]
            elif isinstance(value, Interval):
                cells.append(value.mean)
            else:
                cells.append("; ".join(value) if isinstance(value, tuple) else value)
        writer.writerow(map(make_csv_cell, cells))
    return text.getvalue()


def make_csv_cell(value: object) -> object:
    """Put an apostrophe before text that a spreadsheet would compute."""
    if value is None:
        return ""
    if isinstance(value, str) and value.startswith(_BEGIN_FORMULA):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value


def make_series_files(all_series: Sequence[Series], label: str = "") -> dict[str, str]:
    """Return path (``csv_torch/alexnet_b512.csv``) and content."""
    paths = make_series_paths([series.config for series in all_series])
    end = f"_{make_slug(label)}.csv" if label else ".csv"
    good = [series for series in all_series if series.good]
    return {f"{paths[series.config]}{end}": render_series_csv(series) for series in good}


def render_series_csv(series: Series) -> str:
    """Return lines ``devices,samples_per_second``."""
    lines = []
    for point in series.good:
        value = point.samples_per_second.mean if point.samples_per_second else 0.0
        # At most three decimals; below 1 sample/s three significant digits, so that it is never 0.
        text = f"{value:.3f}" if value >= 1 else f"{value:.3g}"
        if "." in text and "e" not in text:
            text = text.rstrip("0").rstrip(".")
        lines.append(f"{point.devices},{text}\n")
    return "".join(lines)


def name_folder(config: Config) -> str:
    return f"csv_{make_slug(config.framework)}"


def make_series_paths(
    configs: Sequence[Config],
    folder_of: Callable[[Config], str] = name_folder,
    model_names: Mapping[str, str] = MappingProxyType({}),
) -> dict[Config, str]:
    """Return ``<folder>/<model>_b<batch>`` and what differs."""
    alike: defaultdict[str, list[Config]] = defaultdict(list)
    for config in configs:
        model = make_slug(model_names.get(config.model, config.model))
        alike[f"{folder_of(config)}/{model}_b{config.batch}"].append(config)
    paths = {}
    for base, group in alike.items():
        for config, parts in describe_differences(group).items():
            paths[config] = "_".join([base, *map(make_slug, parts)])
        if len({paths[config] for config in group}) < len(group):  # models a:b and a_b
            paths.update({config: f"{paths[config]}_{config.key}" for config in group})
    return paths


def make_slug(text: str) -> str:
    """Return a file name: ``ps2`` for ``ps:2``, ``timm_vit`` for ``timm:vit``."""
    joined = re.sub(r":(?=\d+$)", "", text)
    return re.sub(r"[^A-Za-z0-9.-]+", "_", joined).strip("_.-") or "model"


# ---- JSON


def render_results_json(runs: Sequence[Run], differences: Grid | None = None) -> str:
    all_series = [series for run in runs for series in run.series]
    definitions = wording.make_definitions(find_common_unit(all_series))
    contents: list[JsonObject] = []
    for run in runs:
        encoded = []
        for series in run.series:
            identity = pick(series, "title headline config parameters versions")
            identity |= {"parity": series.verdict, "host_boundary": find_host_boundary(series.points)}
            points = [_encode_point(series, point) for point in series.points]
            encoded.append({**identity, "points": points})
        contents.append({"run": run.info.to_dict(), "series": encoded})
    document: JsonObject = {"schema": RESULTS_SCHEMA}
    if differences is None:
        (content,) = contents
        document |= {"run": content["run"], "definitions": definitions, "series": content["series"]}
    else:
        labels = differences.header[1:]
        by_name = {name: dict(zip(labels, texts, strict=True)) for name, *texts in differences.rows}
        labelled = [{"label": run.label, **content} for run, content in zip(runs, contents, strict=True)]
        document |= {"definitions": definitions, "differences": by_name, "runs": labelled}
    return encode_json(document)


def _encode_point(series: Series, point: Point) -> JsonObject:
    learning = point.learning
    shown = [column for column in COLUMNS if column.in_json]
    values = {column.name_in_files(point.unit): column.read(series, point) for column in shown}
    if not point.compilation:  # of an older journal
        del values["compilation"]
    return {
        **values,
        "nvml_note": point.nvml_note,
        "learning": {**vars(learning), "epochs_trained": learning.last.epoch} if learning else None,
        "witness": point.verdict,
        **({"other_cores": point.other_cores} if make_busy_flag(point.other_cores) else {}),
        "failures": [
            {name: value for name, value in vars(failure).items() if value or name != "host"}
            for failure in point.failures
        ],
    }
