"""The reader of standard output goes away: a run goes on and writes its outputs, a command that only prints ends."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from stored_runs import two_series, write_run

RUN = ("run", "--models", "mnist:8", "--steps", "3", "--warmup", "2", "--repeats", "1", "--devices", "1", "-o", "out")


def until_first_line(folder: Path, *arguments: str, both: bool = False) -> tuple[int, str, str]:
    """Run a command whose reader goes away after the first line. Return exit code, that line and what is on stderr."""
    command = subprocess.Popen(
        [sys.executable, "-m", "trainscale", *arguments],
        cwd=folder, env={**os.environ, "COLUMNS": "120"}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if both else subprocess.PIPE, text=True,
    )  # fmt: skip
    with command:
        assert command.stdout is not None
        first = command.stdout.readline()
        command.stdout.close()
        errors = command.stderr.read() if command.stderr else ""
        return command.wait(240), first, errors


@pytest.mark.framework
@pytest.mark.parametrize("flags", [pytest.param((), marks=pytest.mark.slow), ("--json",)], ids=["text", "json"])
def test_a_run_goes_on_writes_its_outputs_and_ends_with_its_usual_code(tmp_path: Path, flags: tuple[str, ...]) -> None:
    code, first, errors = until_first_line(tmp_path, *RUN, *flags, both=bool(flags))
    assert (code, errors) == (0, ""), errors
    assert first
    records = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    assert [record["status"] for record in records] == ["ok"]
    assert (tmp_path / "out" / "report.html").exists()
    assert (tmp_path / "out" / "results.csv").exists()


@pytest.mark.processes
@pytest.mark.parametrize("arguments", [("models",), ("published",), ("--help",)], ids=" ".join)
def test_a_command_that_only_prints_ends_quietly(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, first, errors = until_first_line(tmp_path, *arguments)
    assert (code, errors) == (0, "")
    assert first


@pytest.mark.processes
def test_a_report_is_complete_though_nobody_reads_its_tables(tmp_path: Path) -> None:
    write_run(tmp_path / "run", two_series())
    code, first, errors = until_first_line(tmp_path, "report", "run")
    assert (code, errors) == (0, "")
    assert first
    assert (tmp_path / "run" / "comparison_graph.svg").exists()
