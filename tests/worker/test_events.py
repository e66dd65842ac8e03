"""Lines from a process to the controller."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from trainscale.launch.connection import UnknownEvent, decode_line
from trainscale.record.decoding import convert
from trainscale.worker import events
from trainscale.worker.events import (
    EVENTS,
    LIMIT,
    MARK,
    CallStack,
    Emitter,
    Event,
    FrameworkFacts,
    GpuFacts,
    Heartbeat,
    HeartbeatSender,
    Hello,
    LogLine,
    RankError,
    Ready,
    encode,
)
from trainscale.worker.sample import GpuState, RankSample, Report, SeenByRank


def read(line: bytes) -> dict[str, Any]:
    """Return the values of an event line."""
    return dict(json.loads(line[len(MARK) :]))


def decoded(line: bytes) -> Event:
    received = decode_line(line.decode())
    assert received is not None
    return received.event


@pytest.fixture
def pipe() -> Iterator[tuple[int, IO[bytes]]]:
    """Where to write, and what to read from."""
    out, into = os.pipe()
    with os.fdopen(out, "rb") as lines:
        yield into, lines
    os.close(into)


# ---- lines


def test_an_event_survives_its_line() -> None:
    event = Hello('quotes " and \n newlines, ü and 漢', 3, "worker", {"torch": "2.9"})
    line = encode(event, 3, 7)
    assert line.startswith(MARK.encode())
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    received = decode_line(line.decode().rstrip("\n"), "node1")
    assert received is not None
    assert (received.event, received.host, received.rank, received.sequence) == (event, "node1", 3, 7)
    holds_another = GpuFacts(7, state=GpuState(2, limited_by={"power cap": 0.5}))
    assert decoded(encode(holds_another)) == holds_another


@pytest.mark.parametrize("letter", ["x", "ü", "漢", "😀", '"', "\n", "\x00"])
@pytest.mark.parametrize("length", [LIMIT - 100, LIMIT, 100_000])
def test_a_line_never_exceeds_what_a_pipe_writes_in_one_piece(letter: str, length: int) -> None:
    line = encode(RankError("crash", letter * length + " the end"), 0, 1)
    assert len(line) <= LIMIT
    assert line.count(b"\n") == 1
    assert read(line)["message"].endswith(" the end")
    assert (read(line)["kind"], read(line)["seq"]) == ("error", 1)


def test_the_longest_text_loses_its_beginning_and_shows_it() -> None:
    message = "".join(f"line {number}\n" for number in range(2000))
    event = decoded(encode(FrameworkFacts(False, "short", message)))
    assert isinstance(event, FrameworkFacts)
    kept = event.install_command
    assert (event.reason, kept[0]) == ("short", "…")
    assert message.endswith(kept.lstrip("…"))
    assert len(kept) > 1000
    room = LIMIT - len(encode(LogLine("")))
    assert read(encode(LogLine("x" * room)))["text"] == "x" * room  # which fits, and is not touched


@pytest.mark.parametrize(
    "line",
    [
        *("", "hello", "@trainscale", "@trainscale {", "@trainscale []", "@trainscale null"),
        '@trainscale {"rank": 1}',
        ' @trainscale {"kind": "hello"}',
        'loss 1.0 @trainscale {"kind": "hello"}',
    ],
)
def test_what_is_no_event_is_ignored(line: str) -> None:
    assert decode_line(line) is None


def test_kinds_and_fields_of_a_newer_worker_are_ignored() -> None:
    for kind, more, event in (
        ("heartbeat", ', "phase": "measure", "step": 3, "mood": "good"', Heartbeat("measure", 3)),
        ("season", "", UnknownEvent("season")),
    ):
        later = decode_line(f'@trainscale {{"kind": "{kind}", "rank": 2{more}}}')
        assert later is not None
        assert (later.rank, later.event) == (2, event)


@pytest.mark.parametrize("values", ['"phase": "measure"', '"phase": 7, "step": 3', '"phase": "measure", "step": "x"'])
def test_an_event_with_missing_or_wrong_fields_is_named_and_not_believed(values: str) -> None:
    received = decode_line(f'@trainscale {{"kind": "heartbeat", "rank": 1, {values}}}')
    assert received is not None
    assert isinstance(received.event, UnknownEvent)
    assert received.event.event_kind == "heartbeat"
    assert received.event.problem


def test_every_kind_of_event_is_named_and_described() -> None:
    assert {event.kind: event for event in EVENTS.values()} == EVENTS
    for event in EVENTS.values():
        assert event.sender
        assert (event.__doc__ or "").endswith((".", ".\n    "))


# ---- emitter


def test_an_emitter_numbers_the_events_that_it_sends(pipe) -> None:
    into, lines = pipe
    emit = Emitter(5, into)
    emit(Heartbeat("join", 0))
    with pytest.raises(ValueError, match="cannot be sent"):
        emit(CallStack(["call"] * 5000))
    emit(Ready(10))
    assert read(lines.readline()) == {"kind": "heartbeat", "rank": 5, "seq": 0, **vars(Heartbeat("join", 0))}
    assert read(lines.readline()) == {"kind": "ready", "rank": 5, "seq": 1, "parameters": 10, "unit": "images"}


def test_a_report_goes_in_pieces_that_fit_a_line(pipe) -> None:
    into, lines = pipe
    steps = tuple(round(1234.5678901 + number, 7) for number in range(450))
    flags = '"\\' * 3000  # the characters of which JSON makes most, twice
    report = Report(RankSample(0, "here", 8, 1.5, steps), window_began=3.25, seen=SeenByRank(0, 9, (), flags))
    Emitter(0, into).send_report(report)
    events, chunks = [], []
    while not events or not events[-1]["is_last"]:
        chunks.append(lines.readline())
        events.append(read(chunks[-1]))
    assert all(len(chunk) <= LIMIT for chunk in chunks)
    assert [event["start"] for event in events] == [sum(len(e["text"]) for e in events[:n]) for n in range(len(events))]
    assert (events[-1]["window_began"], events[-1]["window_seconds"]) == (3.25, 1.5)
    assert convert(json.loads("".join(event["text"] for event in events)), Report) == report


def test_threads_share_an_emitter_without_mixing_lines_or_numbers(pipe) -> None:
    into, lines = pipe
    emit = Emitter(0, into)
    each, threads = 100, 4
    together = threading.Barrier(threads)

    def speak(name: int) -> None:
        together.wait()
        for number in range(each):
            emit(Heartbeat(str(name), number))

    speakers = [threading.Thread(target=speak, args=(name,)) for name in range(threads)]
    for speaker in speakers:
        speaker.start()
    events = [read(lines.readline()) for _ in range(each * threads)]
    for speaker in speakers:
        speaker.join()
    assert [event["seq"] for event in events] == list(range(each * threads))
    for name in range(threads):
        assert [event["step"] for event in events if event["phase"] == str(name)] == list(range(each))


@pytest.fixture
def heartbeats(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[HeartbeatSender, IO[bytes]]]:
    """Frequent heartbeats end when nobody listens. The descriptor must stay theirs until then."""
    monkeypatch.setattr(events, "_HEARTBEAT_SECONDS", 0.002)
    out, into = os.pipe()
    with os.fdopen(out, "rb") as lines:
        yield HeartbeatSender(Emitter(2, into)), lines
    for thread in threading.enumerate():
        if thread.name == "heartbeat":
            thread.join(timeout=30)
            assert not thread.is_alive()
    os.close(into)


def test_a_heartbeat_says_how_far_a_rank_is_until_nobody_listens(heartbeats) -> None:
    heartbeat, lines = heartbeats
    assert (read(lines.readline())["phase"], heartbeat.step) == ("start", 0)
    heartbeat.phase, heartbeat.step = "measure", 7
    while (event := read(lines.readline())).get("step") != 7:
        pass
    assert (event["kind"], event["rank"], event["phase"]) == ("heartbeat", 2, "measure")


def test_a_rank_that_stays_in_a_step_says_in_which_calls_it_is(heartbeats) -> None:
    _, lines = heartbeats
    while (event := read(lines.readline()))["kind"] != "stack":
        assert event["cpu_seconds"] > 0
    # The fixture made the sender, in the thread that waits here.
    file, function = Path(__file__).name, "test_a_rank_that_stays_in_a_step_says_in_which_calls_it_is"[-30:]
    assert any(call.startswith(f"{file}:") and call.endswith(f" {function}") for call in event["calls"])


def test_a_deep_stack_of_long_names_fits_into_a_line() -> None:
    deep: dict[str, Any] = {}
    name = "ä" * 50
    source = f"def {name}(n, act):\n    return act() if n == 0 else {name}(n - 1, act)"
    exec(compile(source, '"\\' * 40, "exec"), deep)
    calls = deep[name](200, lambda: events.list_calls(threading.get_ident()))
    assert calls[-1].endswith(" list_calls")
    line = encode(CallStack(calls), rank=4095, sequence=10**9)
    assert len(line) <= LIMIT
    assert len(calls) > 40


# ---- standard output

_PRINTS = """
import os
from trainscale.worker.events import Emitter, claim_stdout
from trainscale.worker.events import Heartbeat
print("before")
emit = Emitter(0, claim_stdout())
print("from python", flush=True)
os.system("echo from a child")
os.write(1, b"from a library\\n")
emit(Heartbeat("join", 0))
"""


@pytest.mark.processes
def test_standard_output_is_for_events_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _PRINTS], capture_output=True, text=True, check=True)
    before, event = done.stdout.splitlines()
    assert before == "before"
    assert json.loads(event[len(MARK) :]) == {"kind": "heartbeat", "rank": 0, "seq": 0, **vars(Heartbeat("join", 0))}
    assert done.stderr.splitlines() == ["from python", "from a child", "from a library"]
