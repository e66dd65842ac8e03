"""The journal: nothing that was written is lost, nothing is written where it does not belong."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from trainscale.errors import InputError
from trainscale.record.files import write_atomically
from trainscale.record.journal import (
    RUN,
    TRIALS,
    Journal,
    check_directory,
    is_being_measured,
    open_journal,
    read_run,
    read_trials,
)
from trainscale.record.run import RunInfo
from trainscale.record.trial import SCHEMA, Failure, RankSample, TrialRecord
from trainscale.spec.config import Config, Trial

CONFIG = Config("torch", "mnist", 8, "allreduce", 28, 10, channels=1)
SPEC = {"series": [{**CONFIG.to_dict(), "ladder": [1, 2]}], "warmup": 2, "steps": 3, "seed": 1, "repeats": 2}
RUN_INFO = RunInfo(SPEC, {"date": "2026-01-02"})


def record(repeat: int = 0, devices: int = 1, status: str = "ok", seconds: float = 4.5) -> TrialRecord:
    ranks = tuple(RankSample(rank, "here", 24, 0.6, (0.1, 0.2, 0.3)) for rank in range(devices))
    good = TrialRecord(Trial(CONFIG, devices, repeat), status, "2026", seconds, warmup=2, steps=3, ranks=ranks)
    return good if status == "ok" else replace(good, ranks=(), failure=Failure(status, "for a test", 0))


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "one"


@pytest.fixture
def journal(directory: Path) -> Iterator[Journal]:
    with open_journal(directory, RUN_INFO) as opened:
        yield opened


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def refusal(directory: Path, run: RunInfo = RUN_INFO) -> str:
    """The refusal to open, having made sure that it changed nothing."""
    before = contents(directory)
    with pytest.raises(InputError) as caught:
        open_journal(directory, run).close()
    assert contents(directory) == before
    return str(caught.value)


# ---- what is written is read


def test_a_new_run_is_begun_in_a_new_directory(journal: Journal, directory: Path) -> None:
    assert journal.records == []
    assert read_run(directory) == RUN_INFO
    assert sorted(contents(directory)) == [RUN, TRIALS]
    with pytest.raises(ValueError, match="not JSON compliant"):
        journal.append(record(seconds=float("nan")))
    assert (directory / TRIALS).read_bytes() == b""


def test_an_empty_directory_is_as_good_as_a_new_one_and_keeps_the_first_provenance(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no run was recorded here"):
        read_run(tmp_path)
    assert check_directory(tmp_path, SPEC) is False
    open_journal(tmp_path, RUN_INFO).close()
    assert check_directory(tmp_path, SPEC) is True
    with open_journal(tmp_path, RunInfo(SPEC, {"date": "2027-12-31"})) as again:
        assert again.run.provenance == {"date": "2026-01-02"}
    (tmp_path / TRIALS).unlink()
    assert read_trials(tmp_path) == []


def test_each_append_is_one_line_on_the_disk_at_once_and_records_come_back(directory: Path) -> None:
    records = [record(0), record(0, devices=2), record(1, status="crash")]
    with open_journal(directory, RUN_INFO) as journal:
        for count, appended in enumerate(records, 1):
            journal.append(appended)
            text = (directory / TRIALS).read_bytes()
            assert (text.count(b"\n"), text[-1:]) == (count, b"\n")
            assert json.loads(text.splitlines()[-1])["key"] == appended.trial.key
        assert journal.records == records
    with open_journal(directory, RUN_INFO) as again:
        assert again.records == records


def test_the_last_record_of_a_repeated_trial_counts(journal: Journal, directory: Path) -> None:
    journal.append(record(0, status="crash"))
    journal.append(record(1))
    journal.append(record(0))
    for records in (journal.records, read_trials(directory)):
        assert [(stored.trial.repeat, stored.status) for stored in records] == [(1, "ok"), (0, "ok")]


# ---- after a crash


@pytest.mark.parametrize("length", [1, 40, 70_000, 200_000])
def test_a_torn_last_line_is_cut_and_its_trial_forgotten(directory: Path, length: int) -> None:
    with open_journal(directory, RUN_INFO) as journal:
        journal.append(record(0))
        journal.append(record(1))
    whole = (directory / TRIALS).read_bytes()
    torn = json.dumps(record(2).to_dict()).encode().ljust(length)[:length]
    (directory / TRIALS).write_bytes(whole + torn)
    assert [stored.trial.repeat for stored in read_trials(directory)] == [0, 1]
    with open_journal(directory, RUN_INFO) as again:
        assert [stored.trial.repeat for stored in again.records] == [0, 1]
        assert (directory / TRIALS).read_bytes() == whole
        again.append(record(2))
    assert [stored.trial.repeat for stored in read_trials(directory)] == [0, 1, 2]


@pytest.mark.parametrize("name", [TRIALS, f".{RUN}.12345"])
def test_of_a_run_whose_first_line_or_run_json_was_half_written_nothing_remains(directory: Path, name: str) -> None:
    if name == TRIALS:
        open_journal(directory, RUN_INFO).close()
    directory.mkdir(parents=True, exist_ok=True)
    (directory / name).write_bytes(b'{"schema":1,"ke')
    with open_journal(directory, RUN_INFO) as again:
        assert again.records == []
    assert (directory / TRIALS).read_bytes() == b""


@pytest.mark.parametrize(
    "line",
    [
        b'{"schema":1,"ke',
        b"\x00\x00\x00",
        b"\xff\xfe",
        b"",
        b"{}",
        b"[]",
        b"null",
        b'{"config":7,"devices":1,"repeat":0}',
    ],
)
def test_a_damaged_line_in_the_middle_is_named_by_file_and_line(directory: Path, line: bytes) -> None:
    with open_journal(directory, RUN_INFO) as journal:
        journal.append(record(0))
        journal.append(record(1))
    first, second = (directory / TRIALS).read_bytes().splitlines()
    (directory / TRIALS).write_bytes(b"\n".join((first, line, second, b"")))
    for _ in range(2):  # a refused journal is let go of
        assert refusal(directory).startswith(f"{directory / TRIALS}:2: this line is damaged")


# ---- where a run does not belong


OTHER = replace(CONFIG, model="alexnet", image_size=224, batch=16).to_dict()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"steps": 100}, "steps (there 3, here 100)"),
        ({"budget": 60.0, "repeats": None}, "repeats (there 2, here null), budget (there null, here 60.0)"),
        (
            {"series": [{**CONFIG.to_dict(), "strategy": "sharded", "ladder": [1, 2]}]},
            "strategy (there allreduce, here sharded)",
        ),
        ({"series": [{**CONFIG.to_dict(), "ladder": [1, 2, 4]}]}, "ladder (there [1, 2], here [1, 2, 4])"),
        (
            {"series": [{**CONFIG.to_dict(), "ladder": [1, 2]}, {**OTHER, "ladder": [1, 2]}]},
            "model (there mnist, here mnist, alexnet), batch (there 8, here 8, 16),"
            " image_size (there 28, here 28, 224)",
        ),
    ],
    ids=["steps", "budget in place of repeats", "another strategy", "a longer ladder", "further series"],
)
def test_another_runs_directory_is_refused(directory: Path, changes: dict[str, object], words: str) -> None:
    open_journal(directory, RUN_INFO).close()
    start = f"output {directory}: this directory holds another run, which differs in {words}; name a new one"
    assert refusal(directory, RunInfo({**SPEC, **changes})).startswith(start)


@pytest.mark.parametrize("name", [RUN, TRIALS])
@pytest.mark.parametrize("kind", ["FIFO", "directory", "dangling link", "socket"])
def test_what_is_no_file_is_refused(directory: Path, name: str, kind: str) -> None:
    """And nobody waits for it."""
    open_journal(directory, RUN_INFO).close()
    path = directory / name
    path.unlink()
    with socket.socket(socket.AF_UNIX) as server:
        if kind == "FIFO":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        elif kind == "dangling link":
            path.symlink_to(directory / "nowhere" / "file")
        else:
            server.bind(os.path.relpath(path))
        assert is_being_measured(directory) is False
        with pytest.raises(InputError, match=r"run\.json|trials\.jsonl|holds other files"):
            open_journal(directory, RUN_INFO)


def test_what_is_no_directory_for_a_run_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("precious")
    assert refusal(tmp_path) == f"output {tmp_path}: this directory holds other files; name a new one"
    assert refusal(path) == f"output {path}: this is a file, not a directory"
    assert f"output {path / 'run'}" in refusal(path / "run")
    # /proc takes no new directories, not even root's.
    assert "output /proc/trainscale" in refusal(Path("/proc/trainscale"))


NEWER = json.dumps(replace(RUN_INFO, schema=SCHEMA + 1).to_dict())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (text, "cannot be read as a run")
            for text in ("", "{", "[]", "{}", "null", '{"schema": 1}', '{"spec": 1, "schema": "x"}')
        ),
        (NEWER, f"written by a newer trainscale (schema {SCHEMA + 1}, this one knows {SCHEMA})"),
    ],
)
def test_a_run_json_that_is_none_is_refused(directory: Path, text: str, message: str) -> None:
    directory.mkdir(parents=True)
    (directory / RUN).write_text(text)
    assert refusal(directory).startswith(f"{directory / RUN}: {message}")


# ---- two writers

_HOLDER = """
import sys
import threading
from pathlib import Path
from trainscale.record.journal import open_journal, read_run
directory = Path(sys.argv[1])
with open_journal(directory, read_run(directory)):
    print("open", flush=True)
    sys.stdin.read()
"""


@pytest.mark.processes
def test_a_second_writer_is_refused_while_the_first_holds_the_journal(directory: Path) -> None:
    with open_journal(directory, RUN_INFO) as journal:
        journal.append(record(0))
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, str(directory)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with holder:
        assert holder.stdin is not None
        assert holder.stdout.readline() == "open\n"
        assert refusal(directory) == f"output {directory}: another trainscale is measuring there now"
        assert [stored.trial.repeat for stored in read_trials(directory)] == [0]  # reading needs no lock
        holder.kill()
        holder.wait()
    with open_journal(directory, RUN_INFO) as again:  # a killed writer holds nothing
        assert [stored.trial.repeat for stored in again.records] == [0]


@pytest.mark.processes
def test_of_processes_that_begin_different_runs_at_once_one_gets_the_directory(directory: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from trainscale.record.journal import *;"
        "from trainscale.record.run import RunInfo; sys.stdin.read(1);"
        "steps = int(sys.argv[2])\n"
        "with open_journal(Path(sys.argv[1]), RunInfo({'steps': steps})) as journal:\n"
        "    print(steps == read_run(journal.directory).spec['steps'], flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(directory)]
    streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    racers = [subprocess.Popen([*command, str(steps)], text=True, **streams) for steps in range(4)]
    for racer in racers:
        racer.stdin.write("g")
        racer.stdin.flush()
    answers = [racer.communicate()[0] for racer in racers]
    assert answers.count("True\n") >= 1
    assert "False\n" not in answers


# ---- whole files


def test_nobody_can_prepare_a_link_for_a_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    victim = tmp_path / "precious"
    victim.write_text("precious")
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    for name in (f".report.md.{os.getpid()}", ".report.md.guessed"):
        (tmp_path / name).symlink_to(victim)
    with pytest.raises(FileExistsError):
        write_atomically(tmp_path / "report.md", "new")
    assert victim.read_text() == "precious"


def test_a_whole_file_is_replaced_or_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    write_atomically(path, "one\n")
    write_atomically(path, "two\n")
    assert contents(tmp_path) == {"a.txt": b"two\n"}

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, "new\n")
    assert contents(tmp_path) == {"a.txt": b"two\n"}


def test_a_journal_that_another_process_holds_can_be_waited_for(tmp_path: Path) -> None:
    holder = open_journal(tmp_path / "out", RUN_INFO)
    with pytest.raises(InputError, match="another trainscale is measuring there now"):
        open_journal(tmp_path / "out", RUN_INFO)
    threading.Timer(0.3, holder.close).start()
    with open_journal(tmp_path / "out", RUN_INFO, patience_seconds=60.0) as journal:
        assert journal.records == []
