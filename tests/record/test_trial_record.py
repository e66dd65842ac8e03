"""A trial's record and its line in the journal."""

from __future__ import annotations

import json
from dataclasses import replace

from trainscale.record.run import RunInfo
from trainscale.record.trial import SCHEMA, Failure, MachineLoad, RankSample, ServerSample, TrialRecord
from trainscale.spec.config import Config, Trial

CONFIG = Config("torch", "mnist", 8, "ps", 28, 10, channels=1, servers=1)
GOOD = TrialRecord(
    trial=Trial(CONFIG, 2, 1),
    status="ok",
    started="2026-01-02T03:04:05+00:00",
    seconds=4.5,
    warmup=2,
    steps=3,
    ranks=tuple(
        RankSample(rank, "here", 24, 0.6, (0.1, 0.2, 0.3), first_loss=2.3, last_loss=None, weights_digest="abc")
        for rank in range(2)
    ),
    servers=(ServerSample(updates=5),),
    versions={"torch": "2.9"},
    parameters=100,
    machine=MachineLoad(other_cores=0.1),
    notes=("rank 1: 1 event line lost",),
)
FAILED = replace(
    GOOD, status="oom", ranks=(), servers=(), failure=Failure("oom", "no room", 1, ("one", "two")), parameters=None
)


def test_a_record_survives_its_line() -> None:
    for record in (GOOD, FAILED):
        assert TrialRecord.from_dict(json.loads(json.dumps(record.to_dict()))) == record


def test_a_record_is_ok_by_its_status_alone() -> None:
    assert GOOD.ok
    assert not FAILED.ok


def test_a_line_carries_the_schema_the_key_and_the_config() -> None:
    values = GOOD.to_dict()
    assert values["schema"] == SCHEMA
    assert values["key"] == GOOD.trial.key
    assert values["config"] == CONFIG.to_dict()
    assert (values["devices"], values["repeat"]) == (2, 1)
    assert "trial" not in values


def test_what_this_version_does_not_know_is_dropped() -> None:
    values = json.loads(json.dumps(GOOD.to_dict()))
    values["colour"] = "blue"
    values["ranks"][0]["colour"] = "blue"
    values["config"]["colour"] = "blue"
    assert TrialRecord.from_dict(values) == GOOD


def test_a_failure_may_hold_what_this_version_does_not_know_too() -> None:
    values = json.loads(json.dumps(FAILED.to_dict()))
    values["failure"]["colour"] = "blue"
    assert TrialRecord.from_dict(values) == FAILED


def test_a_run_survives_its_file() -> None:
    run = RunInfo({"steps": 3}, {"date": "today"})
    assert RunInfo.from_dict(json.loads(json.dumps(run.to_dict()))) == run
