"""The documentation describes the files of a run, columns, fields and statuses, and the recipes of training."""

import csv
import json
import re
from dataclasses import fields

import pytest
from doc_pages import coded, rows, text, under
from factories import learning_config, learning_record, make_record
from this_machine import MACHINE, find_example_devices

from trainscale.measure.context import make_spec
from trainscale.record import trial
from trainscale.record.run import RunInfo, collect_provenance
from trainscale.record.trial import OUT_OF_MEMORY, Epoch, Failure
from trainscale.report.csv_json import render_results_csv, render_results_json
from trainscale.runs import Run
from trainscale.spec.config import Config
from trainscale.spec.experiment import Experiment
from trainscale.spec.plan import make_plan
from trainscale.worker.config import OMITTED_DEFAULTS, SCHEDULES
from trainscale.worker.models import MODELS, TrainingDefaults


def test_every_column_of_results_csv_is_described() -> None:
    (columns,) = csv.reader(render_results_csv([Run.from_records(RunInfo({}), [])]).splitlines())
    section = under(text("results.md"), "## results.csv")
    described = [name for row in rows(section) for name in re.findall(r"`([^`]+)`", row[0])]
    tidy = re.findall(r"^- `(\w+)` \(", text("export.md"), re.MULTILINE)
    assert set(described) <= set(columns)
    assert {re.sub("_(low|high)$", "", column) for column in columns} <= {*described, *tidy}


def test_every_field_of_results_json_is_described() -> None:
    document = json.loads(render_results_json([Run.from_records(RunInfo({}), [make_record()])]))
    (series,) = document["series"]
    (point,) = series["points"]
    section = under(text("results.md"), "## results.json")
    assert {*document, *series, *point, *point["images_per_second_cluster"]} <= coded(section)
    run = Run.from_records(RunInfo({}), [learning_record(learning_config(until_accuracy=0.8))])
    learning = json.loads(render_results_json([run]))["series"][0]["points"][0]["learning"]
    assert {*learning, *learning["to_accuracy"], *learning["epochs"][0]} <= coded(section)


def test_every_field_of_the_journal_is_described() -> None:
    failed = make_record(status=OUT_OF_MEMORY, failure=Failure(OUT_OF_MEMORY, "too large"))
    line = json.loads(json.dumps(failed.to_dict()))
    section = under(text("results.md"), "## trials.jsonl")
    assert {*line, *line["config"], *line["ranks"][0], *line["failure"]} <= coded(section)
    later = set(OMITTED_DEFAULTS)
    assert {field.name for field in fields(Config)} == {*line["config"], *later}
    assert later <= coded(section)
    assert {field.name for field in fields(Epoch)} <= coded(section.partition("### Epoch")[2])


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


def test_the_training_defaults_and_schedules_are_those_of_the_code() -> None:
    table = rows(under(text("training.md"), "## Training defaults"))[2:]
    cells = [[cell.strip("`") for cell in row] for row in table]
    documented = {name: TrainingDefaults(float(rate), float(decay), schedule) for name, rate, decay, schedule in cells}
    usual = TrainingDefaults()
    declared = {name: info.training for name, info in MODELS.items() if info.training != usual}
    assert documented == {**declared, "any other": usual}
    schedules = under(text("training.md"), "## Learning rate and schedule")
    assert all(f"| `{name}" in schedules for name in SCHEDULES)
