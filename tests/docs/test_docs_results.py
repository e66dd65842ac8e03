"""The documentation describes the files of a run: columns, fields and statuses."""

from __future__ import annotations

import csv
import json
import re
from dataclasses import fields
from typing import Any

import pytest
from doc_pages import coded, rows, text
from this_machine import MACHINE, find_example_devices

from trainscale.record.run import RunInfo
from trainscale.record.trial import OK, OUT_OF_MEMORY, Failure, RankSample, TrialRecord
from trainscale.spec.config import Config, Trial
from trainscale.spec.experiment import Experiment
from trainscale.worker.config import OMITTED_DEFAULTS

CONFIG = Config("torch", "alexnet", 8, "allreduce", 224, 1000)


def record(**changes: Any) -> TrialRecord:
    rank = RankSample(rank=0, host="host", samples=80, window_seconds=1.0, step_seconds=(0.1,) * 10)
    values = {"trial": Trial(CONFIG, 1, 0), "status": OK, "started": "", "seconds": 2.0, "ranks": (rank,)}
    return TrialRecord(**{**values, **changes})


def test_every_column_of_results_csv_is_described() -> None:
    from trainscale.report.csv_json import render_results_csv
    from trainscale.runs import Run

    (columns,) = csv.reader(render_results_csv([Run.from_records(RunInfo({}), [])]).splitlines())
    section = text("results.md").partition("## results.csv")[2].partition("\n## ")[0]
    described = [name for row in rows(section) for name in re.findall(r"`([^`]+)`", row[0])]
    tidy = re.findall(r"^- `(\w+)` \(", text("export.md"), re.MULTILINE)
    assert set(described) <= set(columns)
    assert {re.sub("_(low|high)$", "", column) for column in columns} <= {*described, *tidy}


def test_every_field_of_results_json_is_described() -> None:
    from trainscale.report.csv_json import render_results_json
    from trainscale.runs import Run

    document = json.loads(render_results_json([Run.from_records(RunInfo({}), [record()])]))
    (series,) = document["series"]
    (point,) = series["points"]
    section = text("results.md").partition("## results.json")[2].partition("\n## ")[0]
    assert {*document, *series, *point, *point["images_per_second_cluster"]} <= coded(section)


def test_every_field_of_the_journal_is_described() -> None:
    failed = record(status=OUT_OF_MEMORY, failure=Failure(OUT_OF_MEMORY, "too large"))
    line = json.loads(json.dumps(failed.to_dict()))
    section = text("results.md").partition("## trials.jsonl")[2].partition("\n## ")[0]
    assert {*line, *line["config"], *line["ranks"][0], *line["failure"]} <= coded(section)
    later = set(OMITTED_DEFAULTS)
    assert {field.name for field in fields(Config)} == {*line["config"], *later}
    assert later <= coded(section)


@pytest.mark.processes
def test_every_field_of_run_json_is_described() -> None:
    from trainscale.measure.context import make_spec
    from trainscale.record.run import collect_provenance
    from trainscale.spec.plan import make_plan

    experiment = Experiment()
    plan = make_plan(experiment, find_example_devices(experiment))
    run = RunInfo(make_spec(plan), collect_provenance(["run"], MACHINE, {}))
    section = text("results.md").partition("## run.json")[2].partition("\n## ")[0]
    keys = {*run.to_dict(), *run.spec, "ladder", *run.provenance}
    assert keys - {"load at start"} <= coded(section)
    assert "`load at start`" in section


def test_every_status_is_described() -> None:
    from trainscale.record import trial

    statuses = {trial.OK, trial.OUT_OF_MEMORY, trial.CRASH, trial.TIMEOUT, trial.HANG, trial.LOST, trial.REFUSED}
    statuses |= {trial.MISSING, trial.SKIPPED}
    section = text("results.md").partition("## Statuses")[2].partition("\n## ")[0]
    assert {row[0].strip("`") for row in rows(section)} >= statuses
