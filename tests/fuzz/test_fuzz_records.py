"""Hostile journals, parity verdicts, results and published tables: what is readable is kept, and the message names
file, line and field.
"""

import json
from pathlib import Path
from typing import Any

from full_run import full_records, full_run
from hostile import damaged, mutations, refusal, scratch_folder
from hypothesis import given
from hypothesis import strategies as st

from trainscale.export.columns import make_rows
from trainscale.questions.best.best import Question, find_best
from trainscale.questions.compare.sides import read_results
from trainscale.questions.explain.explain import explain_records
from trainscale.questions.published.curves import FILE as CURVES
from trainscale.questions.published.curves import parse_curves
from trainscale.record.journal import RUN, TRIALS, read_run, read_trials
from trainscale.record.parity import FILE as PARITY
from trainscale.record.parity import read_parity
from trainscale.report.csv_json import render_results_csv, render_results_json
from trainscale.runs import Run

FOLDER = scratch_folder("records")
RUN_FILE, RECORDS = full_run(), full_records()
LINES = [json.loads(json.dumps(record.to_dict())) for record in (RECORDS[0], RECORDS[2], RECORDS[-1])]
for line in LINES:
    for rank in line["ranks"]:
        rank["step_seconds"] = rank["step_seconds"][:6]
RUN_VALUES = json.loads(json.dumps(RUN_FILE.to_dict()))
PARITY_VALUES: dict[str, Any] = {
    "schema": 1,
    "verdicts": [
        {"framework": "jax", "model": "resnet50", "image_size": 224, "classes": 1000, "layout": "nhwc",
         "device": "cuda", "reference": "torch nchw", "state": "proven", "reason": "",
         "checks": [{"name": "loss", "difference": 1e-9, "tolerance": 1e-6, "words": ""}]}
    ],
}  # fmt: skip
PUBLISHED = json.loads((Path(__file__).parents[2] / "src/trainscale/questions/published" / CURVES).read_bytes())
PUBLISHED["curves"] = PUBLISHED["curves"][:2]
RESULTS = json.loads(render_results_json([Run.from_records(RUN_FILE, RECORDS[:8])]))


def _encode(value: Any) -> bytes:
    text = json.dumps(value).replace('"1e999"', "1e999")  # a number beyond the largest, which JSON can hold
    return text.encode()


JOURNAL = b"".join(_encode(line) + b"\n" for line in LINES)


def _read_all(run: bytes, trials: bytes, parity: bytes) -> None:
    """Do with a run what the commands do that only read it."""
    for name, content in ((RUN, run), (TRIALS, trials), (PARITY, parity)):
        (FOLDER / name).write_bytes(content)
    skipped: list[str] = []
    message = refusal(lambda: _use(skipped))
    for text in (*skipped, *([message] if message else ())):
        assert text.startswith(str(FOLDER)), text


def _use(skipped: list[str]) -> None:
    info, records, verdicts = read_run(FOLDER), read_trials(FOLDER, skipped.append), read_parity(FOLDER)
    run = Run.from_records(info, records, verdicts)
    render_results_json([run])
    render_results_csv([run])
    explain_records(records)
    make_rows("run", info, records, run.series)
    find_best([run], Question())


def _with_line(changed: tuple[int, Any]) -> bytes:
    lines = [*LINES]
    lines[changed[0]] = changed[1]
    return b"".join(_encode(line) + b"\n" for line in lines)


MUTATED = st.one_of(*(mutations(line).map(lambda value, n=number: (n, value)) for number, line in enumerate(LINES)))


@given(MUTATED.map(_with_line))
def test_journals(trials: bytes) -> None:
    _read_all(_encode(RUN_VALUES), trials, _encode(PARITY_VALUES))


@given(damaged(JOURNAL))
def test_damaged_journals(trials: bytes) -> None:
    _read_all(_encode(RUN_VALUES), trials, _encode(PARITY_VALUES))


@given(mutations(RUN_VALUES).map(_encode))
def test_run_files(run: bytes) -> None:
    _read_all(run, JOURNAL, _encode(PARITY_VALUES))


@given(st.one_of(mutations(PARITY_VALUES).map(_encode), damaged(_encode(PARITY_VALUES))))
def test_parity_files(parity: bytes) -> None:
    _read_all(_encode(RUN_VALUES), JOURNAL, parity)


@given(st.one_of(mutations(RESULTS).map(_encode), damaged(_encode(RESULTS))))
def test_results_files(text: bytes) -> None:
    message = refusal(lambda: read_results("results.json", text))
    assert not message or message.startswith("results.json")


@given(st.one_of(mutations(PUBLISHED).map(_encode), damaged(_encode(PUBLISHED))))
def test_published_tables(text: bytes) -> None:
    message = refusal(lambda: parse_curves(text, "curves.json"))
    assert not message or message.startswith("curves.json")
