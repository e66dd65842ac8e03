"""Lines from a process to the controller."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

import pytest

from trainscale.worker import events
from trainscale.worker.events import LIMIT, MARK, Emitter, Heartbeat, decode, encode


def read(line: bytes) -> dict[str, Any]:
    event = decode(line.decode())
    assert event is not None
    return event


@pytest.fixture
def pipe() -> Iterator[tuple[int, IO[bytes]]]:
    """Where to write, and what to read from."""
    out, into = os.pipe()
    with os.fdopen(out, "rb") as lines:
        yield into, lines
    os.close(into)


# ---- lines


def test_an_event_survives_its_line() -> None:
    event = {"kind": "hello", "rank": 3, "text": 'quotes " and \n newlines, ü and 漢', "values": [1, 2.5, None]}
    line = encode(event)
    assert line.startswith(MARK.encode())
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert read(line) == event


@pytest.mark.parametrize("letter", ["x", "ü", "漢", "😀", '"', "\n", "\x00"])
@pytest.mark.parametrize("length", [LIMIT - 100, LIMIT, 100_000])
def test_a_line_never_exceeds_what_a_pipe_writes_in_one_piece(letter: str, length: int) -> None:
    event = {"kind": "error", "rank": 0, "seq": 1, "message": letter * length + " the end"}
    line = encode(event)
    assert len(line) <= LIMIT
    assert line.count(b"\n") == 1
    assert read(line)["message"].endswith(" the end")
    assert (read(line)["kind"], read(line)["seq"]) == ("error", 1)


def test_a_text_that_is_too_long_loses_its_beginning_and_shows_it() -> None:
    message = "".join(f"line {number}\n" for number in range(2000))
    kept = read(encode({"kind": "exit", "tail": message}))["tail"]
    assert kept.startswith("…")
    assert message.endswith(kept.lstrip("…"))
    assert len(kept) > 1000


def test_the_longest_text_is_the_one_that_is_cut() -> None:
    event = read(encode({"kind": "error", "message": "short", "traceback": "x" * 9000}))
    assert event["message"] == "short"


def test_an_event_that_fits_is_not_touched() -> None:
    room = LIMIT - len(encode({"kind": "log", "text": ""}))
    assert len(encode({"kind": "log", "text": "x" * room})) == LIMIT
    assert read(encode({"kind": "log", "text": "x" * room}))["text"] == "x" * room


def test_an_event_too_large_for_a_line_without_a_text_to_cut_is_an_error() -> None:
    with pytest.raises(ValueError, match="cannot be sent"):
        encode({"kind": "steps", "seconds": [0.123456] * 5000})


@pytest.mark.parametrize(
    "line",
    [
        "",
        "hello",
        "@trainscale",
        "@trainscale {",
        "@trainscale []",
        "@trainscale null",
        '@trainscale {"rank": 1}',
        ' @trainscale {"kind": "hello"}',
        'loss 1.0 @trainscale {"kind": "hello"}',
    ],
)
def test_what_is_no_event_is_ignored(line: str) -> None:
    assert decode(line) is None


# ---- emitter


def test_an_emitter_numbers_its_events(pipe) -> None:
    into, lines = pipe
    emit = Emitter(5, into)
    emit("hello", host="here")
    emit("ready", parameters=10)
    assert read(lines.readline()) == {"kind": "hello", "rank": 5, "seq": 0, "host": "here"}
    assert read(lines.readline()) == {"kind": "ready", "rank": 5, "seq": 1, "parameters": 10}


def test_step_times_go_in_chunks_that_fit_a_line(pipe) -> None:
    into, lines = pipe
    seconds = [1234.5678901 + number for number in range(450)]
    Emitter(0, into).steps(seconds)
    chunks = [lines.readline() for _ in range(3)]
    assert all(len(chunk) <= LIMIT for chunk in chunks)
    found = [read(chunk) for chunk in chunks]
    assert [event["first"] for event in found] == [0, 200, 400]
    together = [value for event in found for value in event["seconds"]]
    assert together == pytest.approx(seconds, abs=1e-7)


def test_threads_share_an_emitter_without_mixing_lines_or_numbers(pipe) -> None:
    into, lines = pipe
    emit = Emitter(0, into)
    each, threads = 100, 4
    together = threading.Barrier(threads)

    def speak(name: int) -> None:
        together.wait()
        for number in range(each):
            emit("heartbeat", thread=name, number=number)

    speakers = [threading.Thread(target=speak, args=(name,)) for name in range(threads)]
    for speaker in speakers:
        speaker.start()
    found = [read(lines.readline()) for _ in range(each * threads)]
    for speaker in speakers:
        speaker.join()
    assert [event["seq"] for event in found] == list(range(each * threads))
    for name in range(threads):
        assert [event["number"] for event in found if event["thread"] == name] == list(range(each))


def test_a_failed_send_uses_no_number(pipe) -> None:
    into, lines = pipe
    emit = Emitter(0, into)
    with pytest.raises(ValueError, match="cannot be sent"):
        emit("steps", seconds=[0.123456] * 5000)
    emit("ready")
    assert read(lines.readline())["seq"] == 0


def test_a_heartbeat_says_how_far_a_rank_is_until_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_HEARTBEAT_SECONDS", 0.001)
    out, into = os.pipe()
    with os.fdopen(out, "rb") as lines:
        heartbeat = Heartbeat(Emitter(2, into))
        assert (read(lines.readline())["phase"], heartbeat.step) == ("start", 0)
        heartbeat.phase, heartbeat.step = "measure", 7
        while (event := read(lines.readline()))["step"] != 7:
            pass
        assert (event["kind"], event["rank"], event["phase"]) == ("heartbeat", 2, "measure")
    for thread in threading.enumerate():
        if thread.name == "heartbeat":
            thread.join(timeout=30)
            assert not thread.is_alive()
    os.close(into)


# ---- standard output

_PRINTS = """
import os
from trainscale.worker.events import Emitter, claim_stdout
print("before")
emit = Emitter(0, claim_stdout())
print("from python", flush=True)
os.system("echo from a child")
os.write(1, b"from a library\\n")
emit("ready")
"""


def test_standard_output_is_for_events_alone() -> None:
    done = subprocess.run([sys.executable, "-c", _PRINTS], capture_output=True, text=True, check=True)
    before, event = done.stdout.splitlines()
    assert before == "before"
    assert json.loads(event[len(MARK) :]) == {"kind": "ready", "rank": 0, "seq": 0}
    assert done.stderr.splitlines() == ["from python", "from a child", "from a library"]
