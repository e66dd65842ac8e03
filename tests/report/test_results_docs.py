"""docs/results.md and docs/training.md name what results.json says of a training, and the recipes of the code."""

import json
import re
from dataclasses import fields
from pathlib import Path

from factories import learning_config, learning_record, make_run

from trainscale.record.trial import Epoch
from trainscale.report.csv_json import render_results_json
from trainscale.runs import Run
from trainscale.worker.config import SCHEDULES
from trainscale.worker.models import MODELS, TrainingDefaults

DOCS = Path(__file__).parents[2] / "docs"


def section(page: str, heading: str) -> str:
    return (DOCS / page).read_text().partition(f"\n{heading}\n")[2].partition("\n## ")[0]


def test_every_field_of_a_training_in_results_json_is_described() -> None:
    run = Run.from_records(make_run(), [learning_record(learning_config(until_accuracy=0.8))])
    (point,) = json.loads(render_results_json([run]))["series"][0]["points"]
    learning = point["learning"]
    named = set(re.findall(r"`([^`]+)`", section("results.md", "## results.json")))
    assert {*learning, *learning["to_accuracy"], *learning["epochs"][0]} <= named


def test_every_field_of_an_epoch_in_the_journal_is_described() -> None:
    named = set(re.findall(r"`([^`]+)`", section("results.md", "## trials.jsonl").partition("### Epoch")[2]))
    assert {field.name for field in fields(Epoch)} <= named


def test_the_training_defaults_are_those_of_the_code() -> None:
    lines = [line for line in section("training.md", "## Training defaults").splitlines() if line.startswith("| ")][2:]
    rows = [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines]
    documented = {name: TrainingDefaults(float(rate), float(decay), schedule) for name, rate, decay, schedule in rows}
    usual = TrainingDefaults()
    declared = {name: info.training for name, info in MODELS.items() if info.training != usual}
    assert documented == {**declared, "any other": usual}


def test_every_schedule_is_described() -> None:
    page_section = section("training.md", "## Learning rate and schedule")
    assert all(f"| `{name}" in page_section for name in SCHEDULES)
