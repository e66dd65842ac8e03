"""A trial's record and its line in the journal."""

import copy
import gc
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from full_run import full_records

from trainscale.errors import InputError
from trainscale.record.decoding import DecodingError, decode_object
from trainscale.record.journal import read_trials
from trainscale.record.run import RunInfo
from trainscale.record.trial import (
    SCHEMA,
    Epoch,
    Failure,
    MachineLoad,
    RankSample,
    ServerResult,
    TrialRecord,
    decode_record,
)
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
    servers=(ServerResult(updates=5),),
    versions={"torch": "2.9"},
    allocator={"MALLOC_TOP_PAD_": "67108864"},
    parameters=100,
    machine=MachineLoad(other_cores=0.1),
    notes=("rank 1: 1 event line lost",),
)
FAILED = replace(
    GOOD, status="oom", ranks=(), servers=(), failure=Failure("oom", "no room", 1, ("one", "two")), parameters=None
)


def test_a_record_survives_its_line_without_what_this_version_does_not_know() -> None:
    failed = replace(GOOD, status="crash", failure=Failure("crash", "rank 0: \u00fc", 0, ("a", "b")))
    for record in (GOOD, FAILED, failed, *full_records()):
        line = json.dumps(record.to_dict())
        assert decode_record(line, "") == TrialRecord.from_dict(json.loads(line))
    assert decode_record(json.dumps(GOOD.to_dict()), "") == GOOD
    assert (GOOD.ok, FAILED.ok) == (True, False)
    values = GOOD.to_dict()
    assert values["schema"] == SCHEMA
    assert values["key"] == GOOD.trial.key
    assert values["config"] == CONFIG.to_dict()
    assert (values["devices"], values["repeat"]) == (2, 1)
    assert "trial" not in values
    values = json.loads(json.dumps(GOOD.to_dict()))
    values["colour"] = "blue"
    values["ranks"][0]["colour"] = "blue"
    values["config"]["colour"] = "blue"
    assert TrialRecord.from_dict(values) == GOOD
    failed = json.loads(json.dumps(FAILED.to_dict()))
    failed["failure"]["colour"] = "blue"
    assert TrialRecord.from_dict(failed) == FAILED
    run = RunInfo({"steps": 3}, {"date": "2026-01-02"})
    assert RunInfo.from_dict({**run.to_dict(), "colour": "blue"}) == run


# ---- damaged values

EVERYTHING = replace(
    GOOD,
    epochs=(Epoch(1, 2.0, 100, 0.5, 0.9, 0.6, 0.8, 103),),
    failure=Failure("crash", "rank 0 ended", 0, ("last line",)),
    servers=(ServerResult(5, 400, 0.5, 2),),
    machine=MachineLoad(0.1, 0.01, 2**30),
)


def set_value(document: Any, path: Sequence[str | int], value: object) -> None:
    for key in path[:-1]:
        document = document[key]
    document[path[-1]] = value


def fields_of(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Every field of a decoded line, at all depths. The key is written for people and not read."""
    items: Iterable[tuple[str | int, Any]] = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    for name, item in items:
        if (*path, name) != ("key",):
            yield (*path, name)
            yield from fields_of(item, (*path, name))


LINE = json.loads(json.dumps(EVERYTHING.to_dict()))
FIELDS = list(fields_of(LINE))


@pytest.mark.parametrize("path", FIELDS, ids=lambda path: ".".join(map(str, path)))
def test_a_value_of_the_wrong_type_is_named_by_file_line_and_field(path: tuple[str | int, ...]) -> None:
    """No value is of every type: an object, a list, a text and a truth value cannot all be right."""
    refusals = []
    for wrong in ({"a": []}, [{"a": 1}], [[]], "text", True):
        line = copy.deepcopy(LINE)
        set_value(line, path, wrong)
        try:
            decode_record(json.dumps(line), "trials.jsonl:7")
        except InputError as error:
            refusals.append(str(error))
    assert len(refusals) >= 3
    for message in refusals:
        assert message.startswith("trials.jsonl:7: this line is damaged: ")
        field = path[0] if path[0] in ("versions", "allocator") else [key for key in path if isinstance(key, str)][-1]
        assert str(field) in message


def without(name: str) -> str:
    return json.dumps({key: value for key, value in LINE.items() if key != name})


def changed(path: tuple[str, ...], value: object) -> str:
    line = copy.deepcopy(LINE)
    set_value(line, path, value)
    return json.dumps(line)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((without(name), f".*{name}") for name in ("config", "devices", "repeat", "status", "schema")),
        *((text, "") for text in ("[" * 100_000, '{"a":' * 100_000, '{"schema": NaN}', '{"schema": 1e999}', "\\")),
        *(
            (changed(path, wrong), path[-1])
            for path in (("devices",), ("config", "batch"), ("config", "classes"))
            for wrong in (0, -1, "\ud800", 10**15)
        ),
        (changed(("config", "scaling"), "sideways"), "config.scaling: Expected weak or strong, got 'sideways'"),
        (
            json.dumps({**LINE, "config": {**LINE["config"], "scaling": "strong", "batch": 8}, "devices": 16}),
            "devices: Expected at most the global batch of 8, got 16",
        ),
        (changed(("devices",), 10**15), "devices: Expected a number from 1 to"),
        (changed(("config", "batch"), 10**15), "config.batch: Expected a number from 1 to"),
    ],
    ids=lambda value: value[:30],
)
def test_a_line_that_cannot_be_is_damaged(text: str, message: str) -> None:
    with pytest.raises(InputError, match=rf"trials\.jsonl:7: this line is damaged: .*{message}"):
        decode_record(text, "trials.jsonl:7")


@pytest.mark.parametrize(
    ("provenance", "message"),
    [
        ({"command": "trainscale run 'a"}, "provenance.command: No closing quotation"),
        ({"date": "yesterday"}, "provenance.date: Expected a date, got 'yesterday'"),
        *(
            ({name: wrong}, name)
            for name, wrong in (
                *(("date", 7), ("machine", []), ("hosts", "node1"), ("data", 3)),
                *(("frameworks", {"torch": 2}), ("hosts", {"a": 1})),
            )
        ),
    ],
)
def test_provenance_that_cannot_be_is_named(provenance: dict[str, object], message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        RunInfo.from_dict({"spec": {}, "provenance": provenance})


@pytest.mark.parametrize("text", ["\udcff", "\x1b[31m", "\r", "\x7f", "\x9b"])
def test_control_characters_in_texts_are_left_out(text: str) -> None:
    failed = replace(
        FAILED, failure=Failure("crash", f"no such\nfile: {text}ä😀", tail=(f"{text}last",)), notes=(text,)
    )
    record = decode_record(json.dumps(failed.to_dict()), "")
    assert (record.failure.message, record.failure.tail, record.notes) == ("no such\nfile: ä😀", ("last",), ("",))


# ---- the quick decoder gives the same as the standard library


def test_an_older_line_has_defaults_and_records_of_one_config_share_it() -> None:
    needed = ("schema", "config", "devices", "repeat", "status", "started", "seconds")
    values = {name: value for name, value in GOOD.to_dict().items() if name in needed}
    assert decode_record(json.dumps(values), "").to_dict() == TrialRecord.from_dict(values).to_dict()
    first, second = (decode_record(json.dumps(GOOD.to_dict()), "") for _ in range(2))
    assert first.trial.config is second.trial.config


@pytest.mark.parametrize("text", ["\x1b[31mred", "a\rb", "\ud800", str(10**30)])
def test_what_only_the_standard_decoder_treats_as_it_should_is_left_to_it(text: str) -> None:
    line = json.dumps({**GOOD.to_dict(), "notes": [text]})
    assert decode_record(line, "").notes == tuple(decode_object(line)["notes"])


def test_reading_leaves_the_garbage_collector_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "trials.jsonl").write_text("damaged\n")
    for was_enabled in (False, True):
        (gc.enable if was_enabled else gc.disable)()
        with pytest.raises(InputError):
            read_trials(tmp_path)
        assert gc.isenabled() is was_enabled
