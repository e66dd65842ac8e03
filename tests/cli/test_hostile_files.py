"""Files that are no files, NUL characters, and damaged journals: one message, and no command hangs."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_runs import two_series, write_run
from watched_runs import begin, records

from trainscale import cli

Outcome = tuple[int, str, str]
READERS = ["report", "explain", "best", "study", "export", "notebook", "compare", "predict"]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    monkeypatch.chdir(tmp_path)

    def call(*argv: str) -> Outcome:
        code = cli.main(list(argv))
        printed = capsys.readouterr()
        assert "Traceback" not in printed.err
        assert "--debug shows where" not in printed.err, printed.err
        return code, printed.out, printed.err

    return call


def arguments(command: str, directory: str, other: str) -> list[str]:
    further = {"export": ["--to", "csv"], "compare": [other]}
    return [command, directory, *further.get(command, [])]


@pytest.mark.parametrize("command", ["export --to csv", "watch"])
@pytest.mark.parametrize("file", ["run.json", "trials.jsonl", "parity.json"])
def test_a_fifo_in_the_directory_of_a_run_is_refused(
    file: str, command: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    begin(tmp_path / "out", *records()).close()
    (tmp_path / "out" / file).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "out" / file)
    code, _, message = run(*command.split(), "out")
    assert code == 2
    assert f"out/{file}: " in message
    assert "this is a FIFO; valid: a file" in message


def test_absurd_numbers_in_run_json_cost_neither_time_nor_memory(run: Callable[..., Outcome], tmp_path: Path) -> None:
    begin(tmp_path / "out").close()
    path = tmp_path / "out" / "run.json"
    document = json.loads(path.read_text())
    document["spec"]["repeats"] = 10**9
    path.write_text(json.dumps(document))
    code, out, message = run("watch", "out")
    assert (code, out) == (2, "")
    assert (
        "out/run.json: cannot be read as a run: repeats: Expected a number from 1 to 10000, got 1000000000" in message
    )


@pytest.mark.parametrize(
    "argv",
    [
        ["plan", "--data", "imagefolder:a\0b"],
        ["launch", "-n", "1", "--remote-dir=a\0b", "x"],
        ["plan", "a\0b.toml"],
        ["report", "a\0b"],
        ["run", "-o", "a\0b"],
    ],
    ids=lambda argv: argv[0],
)
def test_a_nul_character_in_an_argument_is_refused(argv: list[str], run: Callable[..., Outcome]) -> None:
    code, _, message = run(*argv)
    assert code == 2
    assert "has a NUL character" in message


def test_a_nul_character_in_a_hosts_file_is_named_with_its_line(run: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("node0\nnode1 python=/a\0b\n")
    code, _, printed = run("plan", "--hosts", "hosts", "--launcher", "ssh")
    assert code == 2
    assert "hosts:2: 'node1 python=/a\\x00b': it has a NUL character" in printed


# ---- journals


@pytest.mark.parametrize("command", READERS[1:])  # not report, which draws for seconds
def test_a_damaged_line_is_named_and_the_others_are_used(
    command: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = write_run(tmp_path / "out", two_series()) / "trials.jsonl"
    lines = path.read_text().splitlines()
    broken = json.loads(lines[1])
    broken["ranks"][0]["samples"] = "many"
    path.write_text("\n".join([lines[0], json.dumps(broken), *lines[2:], ""]))
    write_run(tmp_path / "other", two_series())
    code, _, message = run(*arguments(command, "out", "other"))
    assert code in (0, 1), message
    assert "trainscale: left out: out/trials.jsonl:2: this line is damaged: ranks[0].samples: Expected" in message


@pytest.mark.parametrize("command", READERS)
def test_a_journal_of_which_nothing_can_be_read_is_refused(
    command: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = write_run(tmp_path / "out", two_series()) / "trials.jsonl"
    path.write_text("damaged\n" * 20)
    code, out, message = run(*arguments(command, "out", "out"))
    assert (code, out) == (2, "")
    assert message.startswith("trainscale: out/trials.jsonl:1: this line is damaged: ")
    assert message.count("trainscale: ") == 1


def test_many_damaged_lines_are_counted(run: Callable[..., Outcome], tmp_path: Path) -> None:
    path = write_run(tmp_path / "out", two_series()) / "trials.jsonl"
    path.write_text("damaged\n" * 20 + path.read_text())
    code, _, message = run("export", "out", "--to", "csv")
    assert code == 0
    assert message.count("this line is damaged") == 5
    assert "out/trials.jsonl: 15 further lines are damaged" in message
