"""Runs that earlier versions recorded give the same results as they did then.

recorded/schema-1 is a made-up run of the first version with everything that a journal can hold, and the results that
this version computed from it, but without the intervals of points with two repeats, which are not computed any more.
recorded/h200_sha256.json has the checksums of results.json for the runs in results/h200,
without the definitions, whose wording may change.
"""

import csv
import hashlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from trainscale.measure.batches import read_batches
from trainscale.record.journal import read_trials
from trainscale.report.csv_json import render_results_csv, render_results_json
from trainscale.runs import Run

RECORDED = Path(__file__).with_name("recorded")
SCHEMA_1 = RECORDED / "schema-1"
H200 = Path(__file__).parents[2] / "results" / "h200"
NEW = ("witness",)  # columns of results.csv and keys of points that the earlier versions did not have
CHECKSUMS: dict[str, str] = json.loads((RECORDED / "h200_sha256.json").read_text())


def read_results_csv(directory: Path) -> str:
    """Without the columns that are new since then. They are empty."""
    rows = list(csv.reader(io.StringIO(render_results_csv([Run(directory)]))))
    new = [rows[0].index(name) for name in NEW]
    assert {row[index] for row in rows[1:] for index in new} == {""}
    kept = [[cell for index, cell in enumerate(row) if index not in new] for row in rows]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(kept)
    return text.getvalue()


def read_results_json(directory: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(render_results_json([Run(directory)]))
    document.pop("definitions")
    for series in document["series"]:
        for point in series["points"]:
            assert [point.pop(name) for name in NEW] == [None] * len(NEW)
            point.pop("other_cores", None)  # where other programs were busy
    return document


def assert_same(ours: Any, recorded: Any, where: str = "") -> None:
    """Everything is equal; numbers may differ in the last digits, because statistics libraries do."""
    if isinstance(recorded, dict):
        assert ours.keys() == recorded.keys(), where
        for name, value in recorded.items():
            assert_same(ours[name], value, f"{where}.{name}")
    elif isinstance(recorded, list):
        assert len(ours) == len(recorded), where
        for index, value in enumerate(recorded):
            assert_same(ours[index], value, f"{where}[{index}]")
    elif isinstance(recorded, float):
        assert ours == pytest.approx(recorded, rel=1e-9), where
    else:
        assert ours == recorded, where


def parse_cell(cell: str) -> float | str:
    try:
        return float(cell)
    except ValueError:
        return cell


@pytest.mark.parametrize("name", CHECKSUMS)
def test_recorded_runs_give_the_same_bytes(name: str) -> None:
    directory = H200 / name
    assert read_results_csv(directory) == (directory / "results.csv").read_text()
    text = json.dumps(read_results_json(directory), indent=2, ensure_ascii=False, sort_keys=True)
    assert hashlib.sha256(text.encode()).hexdigest() == CHECKSUMS[name]


def test_every_recorded_run_is_read() -> None:
    assert {path.parent.name for path in H200.glob("*/trials.jsonl")} == set(CHECKSUMS)


def test_a_journal_of_schema_1_gives_the_same_results() -> None:
    tables = [(SCHEMA_1 / "results.csv").read_text(), read_results_csv(SCHEMA_1)]
    recorded, ours = ([list(map(parse_cell, row)) for row in csv.reader(io.StringIO(text))] for text in tables)
    assert_same(ours, recorded)
    document = json.loads((SCHEMA_1 / "results.json").read_text())
    document.pop("definitions")
    assert_same(read_results_json(SCHEMA_1), document)


def test_what_schema_1_called_images_are_samples() -> None:
    records = read_trials(SCHEMA_1)
    assert {rank.samples for record in records for rank in record.ranks} >= {96, 48}
    assert {(epoch.samples, epoch.valid_samples) for record in records for epoch in record.epochs} == {(49_920, 10_000)}
    assert {record.unit for record in records} == {"images"}


def test_the_searched_batches_of_an_earlier_version_are_read() -> None:
    (search,) = read_batches(SCHEMA_1).values()
    assert search.done
    assert search.largest is not None
    assert search.largest.batch == 8
