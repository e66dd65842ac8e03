"""Files that are no files, names that no file can have, and damaged journals: one message, and no command hangs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from stored_runs import two_series, write_run

from trainscale import cli

Outcome = tuple[int, str, str]
LONG = "a" * 5000
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


@pytest.mark.parametrize(
    "argv",
    [
        ["plan", "fifo"],
        ["plan", "--hosts", "fifo", "--launcher", "ssh"],
        ["parse-log", "fifo"],
        ["compare", "fifo", "fifo"],
        ["plan", "/dev/zero"],
        ["parse-log", "/dev/zero"],
        ["plan", "--hosts", "/dev/zero", "--launcher", "ssh"],
    ],
    ids=" ".join,
)
def test_a_fifo_or_a_device_is_refused_and_not_waited_for(
    argv: list[str], run: Callable[..., Outcome], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    code, _, message = run(*argv)
    assert code == 2
    name = "/dev/zero" if "/dev/zero" in argv else "fifo"
    assert f"{name}: " in message
    assert f"this is a {'device' if name == '/dev/zero' else 'FIFO'}; valid: a file" in message


@pytest.mark.parametrize("file", ["run.json", "trials.jsonl", "parity.json"])
def test_a_fifo_in_the_directory_of_a_run_is_refused(file: str, run: Callable[..., Outcome], tmp_path: Path) -> None:
    write_run(tmp_path / "out", two_series())
    (tmp_path / "out" / file).unlink(missing_ok=True)
    os.mkfifo(tmp_path / "out" / file)
    code, _, message = run("explain", "out") if file != "parity.json" else run("export", "out", "--to", "csv")
    assert code == 2
    assert f"out/{file}: " in message
    assert "this is a FIFO; valid: a file" in message


@pytest.mark.parametrize(
    "argv",
    [
        *(arguments(command, LONG, LONG) for command in READERS),
        ["plan", LONG],
        ["run", "-m", "mnist", "-o", LONG],
        ["plan", "--hosts", LONG, "--launcher", "ssh"],
        ["plan", "--data", f"imagefolder:{LONG}"],
        ["plan", "--python", f"torch={LONG}"],
        ["plan", "--python", f"torch=/{LONG}"],
        ["parse-log", LONG],
        ["watch", LONG],
        ["published", "--like", LONG],
        ["data", "check", f"imagefolder:{LONG}"],
    ],
    ids=lambda argv: " ".join(part if part != LONG else "LONG" for part in argv)[:40],
)
def test_a_name_that_is_too_long_is_one_message(argv: list[str], run: Callable[..., Outcome]) -> None:
    code, out, message = run(*argv)
    assert code in (1, 2)
    assert "aaaaaa" in message + out
    assert len(message) < 3000


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


@pytest.mark.parametrize("line", [r'interface = "a\u0000b"', r'[cluster]' + '\n' + r'remote_dir = "/a\u0000b"',
                                  r'data = "imagefolder:\u0000"', r'python = {torch = "/a\u0000"}'])  # fmt: skip
def test_a_nul_character_in_an_experiment_file_is_named_with_its_file(
    line: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text(f"steps = 20\n{line}\n")
    code, _, message = run("plan", "bad.toml")
    assert code == 2
    assert "bad.toml: " in message
    assert "has a NUL character" in message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\nsteps = " + 5000 * "9", "bad.toml: not TOML: Exceeds the limit"),
        ("steps = 0x" + 5000 * "f", "bad.toml: steps: a number that is too long to show is not valid"),
        (
            "steps = [0x" + 5000 * "f" + ", 'x']",
            "bad.toml: steps: a number that is too long to show is not valid",
        ),
        ("x = " + 3000 * "[", "bad.toml: not usable: its lists or tables are nested too deeply"),
        ("devices = [1, 10000000000000]", "bad.toml: devices: 10000000000000 is not valid"),
        ("timeout = 1e300", "bad.toml: timeout: '1e+300' is"),
        ("timeout = '" + 5000 * "9" + "s'", "… (5001 characters)' is too long"),
        ("strategies = ['ps:" + 5000 * "9" + "']", "too many servers; valid: 1 … 65536"),
    ],
    ids=lambda text: text[:20],
)
def test_large_numbers_in_experiment_files_are_refused(
    text: str, message: str, run: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text(text)
    code, _, printed = run("plan", "bad.toml")
    assert code == 2
    assert message in printed
    assert len(printed) < 3000


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"node1 slots={5000 * '9'}", "hosts:2: this line has 5012 characters"),
        (f"node1 slots={3000 * '9'}", "hosts:2: slots '"),
        ("node1 python=/a\0b", "hosts:2: 'node1 python=/a\\x00b': it has a NUL character"),
        ("node1 port=99999999999", "hosts:2: port '99999999999'; valid: 1 … 65535"),
    ],
    ids=["slots in a long line", "slots", "NUL", "port"],
)
def test_hosts_files_name_the_line(line: str, message: str, run: Callable[..., Outcome], tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text(f"node0\n{line}\n")
    code, _, printed = run("plan", "--hosts", "hosts", "--launcher", "ssh")
    assert code == 2
    assert message in printed


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
