"""Lines of a journal are decoded quickly, with the same result as by the standard library."""

from __future__ import annotations

import gc
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "analyse"))

from full_run import full_records

from trainscale.errors import InputError
from trainscale.record.decoding import decode_object
from trainscale.record.journal import open_journal, read_trials
from trainscale.record.run import RunInfo
from trainscale.record.trial import Failure, TrialRecord, decode_record

RECORDS = full_records()


def encoded(record: TrialRecord, **changes: Any) -> str:
    return json.dumps({**record.to_dict(), **changes})


def test_every_field_is_the_same_either_way() -> None:
    failed = replace(RECORDS[0], status="crash", failure=Failure("crash", "rank 0: \u00fc", 0, ("a", "b")))
    for record in (*RECORDS, failed):
        line = encoded(record)
        assert decode_record(line, "") == TrialRecord.from_dict(json.loads(line))


def test_fields_that_an_older_line_does_not_have_get_their_defaults() -> None:
    needed = ("schema", "config", "devices", "repeat", "status", "started", "seconds")
    values = {name: value for name, value in RECORDS[0].to_dict().items() if name in needed}
    assert decode_record(json.dumps(values), "").to_dict() == TrialRecord.from_dict(values).to_dict()


def test_records_of_one_config_share_it() -> None:
    first, second = (decode_record(encoded(RECORDS[0]), "") for _ in range(2))
    assert first.trial.config is second.trial.config


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\rb", "\ud800", str(10**30)])
def test_what_only_the_standard_decoder_treats_as_it_should_is_left_to_it(text: str) -> None:
    line = encoded(RECORDS[0], notes=[text])
    assert decode_record(line, "").notes == tuple(decode_object(line)["notes"])


@pytest.mark.parametrize(
    "changes",
    [
        {"devices": 0},
        {"devices": "one"},
        {"schema": 99},
        {"seconds": None},
        {"ranks": [1]},
        {"config": 1},
        {"config": {**RECORDS[0].trial.config.to_dict(), "batch": 0}},
        {"config": {"framework": "torch"}},
    ],
    ids=[
        "no devices",
        "text for a number",
        "newer schema",
        "nothing for a number",
        "wrong list",
        "number for a config",
        "no batch",
        "half a config",
    ],
)
def test_what_is_damaged_is_named_with_its_line(changes: dict[str, Any]) -> None:
    line = encoded(RECORDS[0], **changes)
    with pytest.raises(InputError, match=r"trials\.jsonl:7"):
        decode_record(line, "trials.jsonl:7")


def test_a_trial_that_is_appended_again_replaces_the_first(tmp_path: Path) -> None:
    with open_journal(tmp_path / "run", RunInfo({"a": 1})) as journal:
        for record in (*RECORDS[:3], replace(RECORDS[0], seconds=99.0)):
            journal.append(record)
        assert [record.seconds for record in journal.records] == [RECORDS[1].seconds, RECORDS[2].seconds, 99.0]
        assert [record.trial.key for record in journal.records] == [r.trial.key for r in read_trials(tmp_path / "run")]


def test_reading_leaves_the_garbage_collector_as_it_was(tmp_path: Path) -> None:
    for was_enabled in (False, True):
        (gc.enable if was_enabled else gc.disable)()
        with pytest.raises(InputError):
            read_trials_of(tmp_path, "damaged\n")
        assert gc.isenabled() is was_enabled


def read_trials_of(folder: Path, text: str) -> list[TrialRecord]:
    (folder / "trials.jsonl").write_text(text)
    return read_trials(folder)
