"""Wrong uses: each is one clear message, exit code 2, and nothing is written. The table is wrong_uses.txt."""

from __future__ import annotations

import json
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from compared_runs import write_published_runs, write_runs
from environments import fabricate
from factories import failed_record, make_config, make_run
from stored_runs import two_series, write_run

from trainscale import cli
from trainscale.cli import runscalabilitytest
from trainscale.record.journal import open_journal

TABLE = Path(__file__).with_suffix(".txt").with_name("wrong_uses.txt")


@dataclass
class WrongUse:
    argv: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


def read_table() -> list[WrongUse]:
    uses: list[WrongUse] = []
    use = WrongUse()
    for line in TABLE.read_text().splitlines():
        mark, text = line[:1], line[2:]
        if mark in "+$" and use.argv:
            use = WrongUse()
        if mark == "+":
            use.files[name := text] = ""
        elif mark == "$":
            use.argv = shlex.split(text)
            uses.append(use)
        elif text.startswith("| "):
            use.files[name] += f"{text[2:]}\n"
        elif mark == " ":
            use.messages.append(text)
    return uses


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs and files of every kind, and an environment mxnet of the user."""
    folder = tmp_path_factory.mktemp("world")
    write_runs(folder)
    write_published_runs(folder)
    write_run(folder / "run", two_series())
    write_run(folder / "failed", [failed_record(make_config(), devices) for devices in (1, 2, 4)])
    open_journal(folder / "begun", make_run()).close()
    shutil.copytree(folder / "same", folder / "newer")
    values = json.loads((folder / "newer" / "run.json").read_text())
    (folder / "newer" / "run.json").write_text(json.dumps({**values, "schema": 99}))
    (folder / "full").mkdir()
    for name in ("file", "full/notes.txt"):
        (folder / name).write_text("precious")
    (folder / "mxnet.log").write_text("INFO:root:Epoch[0] Train-accuracy=0.5\n")
    (folder / "nodes").write_text("node1\nnode2\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_DATA_HOME", str(folder / "home"))
        fabricate("mxnet", ("mxnet",), python="3.11.0")
    return folder


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("use", read_table(), ids=lambda use: shlex.join(use.argv)[:60])
def test_a_wrong_use_is_one_message_and_writes_nothing(
    use: WrongUse, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setenv("XDG_DATA_HOME", str(world / "home"))
    for name, text in use.files.items():
        (world / name).write_text(text)
    before = contents(world)
    program, *argv = use.argv
    try:
        code = cli.main(argv) if program == "trainscale" else runscalabilitytest.main(argv)
        assert contents(world) == before
    finally:
        for name in use.files:
            (world / name).unlink()
    printed = capsys.readouterr()
    assert code == 2, printed.err
    assert program != "trainscale" or printed.out == ""  # the other one says what it will run
    assert re.findall("^trainscale: |Traceback", printed.err, re.MULTILINE) == ["trainscale: "]
    for message in use.messages:
        assert message in printed.err
