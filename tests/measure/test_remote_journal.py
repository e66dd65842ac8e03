"""The copy of a journal of another host: the script there is run by a real shell, here without ssh."""

import os
import signal
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from watched_runs import begin, records

from trainscale.errors import InputError, TrainscaleError
from trainscale.measure import watching
from trainscale.measure.watching import copy_journal
from trainscale.record.journal import read_run, read_trials
from trainscale.spec.devices import Host
from trainscale.spec.groups import SshSettings

pytestmark = pytest.mark.processes


@pytest.fixture(autouse=True)
def pid_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Replace ssh by a shell that writes its PID. It gets «--», the host and the line for the login shell there."""
    path = tmp_path / "pid"
    script = f'echo $$ >{path}; eval "$3"'
    monkeypatch.setattr(watching, "make_ssh_command", lambda *_: ["/bin/sh", "-c", script, "sh"])
    return path


def remote(directory: Path | str) -> AbstractContextManager[tuple[Path, Callable[[], bool]]]:
    return copy_journal(Host("far"), str(directory), SshSettings())


def test_the_copy_follows_the_journal_and_its_lock(tmp_path: Path) -> None:
    directory, all_records = tmp_path / "a run; 'quoted'", records()
    journal = begin(directory, *all_records[:2])
    with remote(directory) as (copied, is_measured):
        assert read_run(copied) == read_run(directory)
        assert read_trials(copied) == all_records[:2]
        assert is_measured()
        journal.append(all_records[2])
        (directory / "parity.json").write_text('{"schema": 1, "verdicts": [],\n  "ä": 1}\n')
        while len(read_trials(copied)) < 3:
            assert is_measured()
        journal.close()
        while is_measured():
            pass
        assert (copied / "trials.jsonl").read_bytes() == (directory / "trials.jsonl").read_bytes()
        assert (copied / "parity.json").read_bytes() == (directory / "parity.json").read_bytes()
    assert not copied.exists()


def test_an_incomplete_line_that_is_cut_off_is_not_copied(tmp_path: Path) -> None:
    directory, all_records = tmp_path / "run", records()
    begin(directory, *all_records[:2]).close()
    trials = directory / "trials.jsonl"
    complete = trials.read_bytes()
    trials.write_bytes(complete + b'{"half of a')
    with remote(directory) as (copied, is_measured):
        assert len(read_trials(copied)) == 2
        begin(directory, all_records[2]).close()  # opening the journal cuts the line off
        while len(read_trials(copied)) < 3:
            is_measured()
        assert (copied / "trials.jsonl").read_bytes() == trials.read_bytes()


def test_a_journal_that_begins_anew_is_copied_anew(tmp_path: Path) -> None:
    directory, all_records = tmp_path / "run", records()
    begin(directory, *all_records[:3]).close()
    with remote(directory) as (copied, is_measured):
        (directory / "trials.jsonl").write_bytes(b"")
        while read_trials(copied):
            is_measured()
        begin(directory, all_records[3]).close()
        while not read_trials(copied):
            is_measured()
        assert read_trials(copied) == all_records[3:]


def test_the_script_ends_with_the_connection(tmp_path: Path, pid_file: Path) -> None:
    directory = tmp_path / "run"
    begin(directory).close()
    with remote(directory):
        shell = int(pid_file.read_text())
        os.kill(shell, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(shell, 0)


def test_a_path_must_have_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InputError, match=r"far:.*nowhere: no run was recorded there"), remote(tmp_path / "nowhere"):
        pass
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="no run was recorded there"), remote(tmp_path / "empty"):
        pass
    monkeypatch.setenv("HOME", str(tmp_path))
    begin(tmp_path / "runs" / "mine", *records()[:1]).close()
    with remote("~/runs/mine") as (copied, _):
        assert len(read_trials(copied)) == 1


def test_a_connection_that_fails_or_is_lost_is_explained(
    tmp_path: Path, pid_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(tmp_path / "run").close()
    with remote(tmp_path / "run") as (_, is_measured):
        os.kill(int(pid_file.read_text()), signal.SIGKILL)
        with pytest.raises(TrainscaleError, match="far: the connection ended without a message"):  # noqa: PT012
            while True:  # it reads what was still on its way
                is_measured()
    message = "ssh: Could not resolve hostname far: Name or service not known"
    monkeypatch.setattr(watching, "make_ssh_command", lambda *_: ["/bin/sh", "-c", f"echo '{message}' >&2; exit 255"])
    with pytest.raises(TrainscaleError, match="far: unknown name"), remote("run"):
        pass


def test_a_host_that_is_silent_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watching, "_SILENT_SECONDS", 0.1)
    monkeypatch.setattr(watching, "make_ssh_command", lambda *_: ["/bin/sh", "-c", "exec sleep 60"])
    with pytest.raises(TrainscaleError, match=r"far: no message for 0 s; the run there is not affected"), remote("run"):
        pass


def test_only_new_lines_of_the_journal_are_sent(tmp_path: Path) -> None:
    directory, all_records = tmp_path / "run", records()
    journal = begin(directory, *all_records[:2])
    with remote(directory) as (copied, is_measured):
        copy = copied / "trials.jsonl"
        copy.write_bytes(b"")
        journal.append(all_records[2])
        while not copy.stat().st_size:
            is_measured()
        assert read_trials(copied) == all_records[2:3]
    journal.close()
