"""The documentation describes the files of a run: columns, fields and statuses."""

import csv
import json
import re
from dataclasses import fields
from typing import Any

import pytest
from doc_pages import coded, rows, text, under
from this_machine import MACHINE, find_example_devices

from trainscale.measure.context import make_spec
from trainscale.record import trial
from trainscale.record.run import RunInfo, collect_provenance
from trainscale.record.trial import OK, OUT_OF_MEMORY, Failure, RankSample, TrialRecord
from trainscale.report.csv_json import render_results_csv, render_results_json
from trainscale.runs import Run
from trainscale.spec.config import Config, Trial
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.config import OMITTED_DEFAULTS

CONFIG = Config("torch", "alexnet", 8, "allreduce", 224, 1000)


def record(**changes: Any) -> TrialRecord:
    rank = RankSample(rank=0, host="host", samples=80, window_seconds=1.0, step_seconds=(0.1,) * 10)
    values = {"trial": Trial(CONFIG, 1, 0), "status": OK, "started": "", "seconds": 2.0, "ranks": (rank,)}
    return TrialRecord(**{**values, **changes})


def test_every_column_of_results_csv_is_described() -> None:
    (columns,) = csv.reader(render_results_csv([Run.from_records(RunInfo({}), [])]).splitlines())
    section = under(text("results.md"), "## results.csv")
    described = [name for row in rows(section) for name in re.findall(r"`([^`]+)`", row[0])]
    tidy = re.findall(r"^- `(\w+)` \(", text("export.md"), re.MULTILINE)
    assert set(described) <= set(columns)
    assert {re.sub("_(low|high)$", "", column) for column in columns} <= {*described, *tidy}


def test_every_field_of_results_json_is_described() -> None:
    document = json.loads(render_results_json([Run.from_records(RunInfo({}), [record()])]))
    (series,) = document["series"]
    (point,) = series["points"]
    section = under(text("results.md"), "## results.json")
    assert {*document, *series, *point, *point["images_per_second_cluster"]} <= coded(section)


def test_every_field_of_the_journal_is_described() -> None:
    failed = record(status=OUT_OF_MEMORY, failure=Failure(OUT_OF_MEMORY, "too large"))
    line = json.loads(json.dumps(failed.to_dict()))
    section = under(text("results.md"), "## trials.jsonl")
    assert {*line, *line["config"], *line["ranks"][0], *line["failure"]} <= coded(section)
    later = set(OMITTED_DEFAULTS)
    assert {field.name for field in fields(Config)} == {*line["config"], *later}
    assert later <= coded(section)


@pytest.mark.processes
def test_every_field_of_run_json_is_described() -> None:
    experiment = Experiment()
    plan = make_plan(experiment, find_example_devices(experiment))
    run = RunInfo(make_spec(plan), collect_provenance(["run"], MACHINE, {}))
    section = under(text("results.md"), "## run.json")
    keys = {*run.to_dict(), *run.spec, "ladder", *run.provenance}
    assert keys - {"load at start"} <= coded(section)
    assert "`load at start`" in section


def test_every_status_is_described() -> None:
    statuses = {trial.OK, trial.OUT_OF_MEMORY, trial.CRASH, trial.TIMEOUT, trial.HANG, trial.LOST, trial.REFUSED}
    statuses |= {trial.MISSING, trial.SKIPPED}
    section = under(text("results.md"), "## Statuses")
    assert {row[0].strip("`") for row in rows(section)} >= statuses
