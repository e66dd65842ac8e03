"""What commands print, and how they refuse wrong uses: by the tables uses.txt and wrong_uses.txt.

A wrong use is one clear message, exit code 2, and nothing is written.
"""

import json
import os
import re
import shlex
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from compared_runs import write_further_runs, write_published_runs, write_runs
from environments import fabricate
from factories import curve, failed_record, make_config, make_run
from small_sets import write_cifar10, write_folder, write_mnist
from stored_runs import two_series, write_run
from watched_runs import CONFIG, begin, records

from trainscale import cli
from trainscale.cli import runscalabilitytest
from trainscale.record.journal import open_journal


@dataclass
class Use:
    argv: list[str] = field(default_factory=list)
    code: int = 0
    texts: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)


def read_table(name: str) -> list[Use]:
    uses: list[Use] = []
    use = Use()
    for line in Path(__file__).with_name(name).read_text().splitlines():
        mark, text = line[:1], re.sub(r"(.)×(\d{4})", lambda match: match[1] * int(match[2]), line[2:])
        if mark in "+$" and use.argv:
            use = Use()
        if mark == "+":
            use.files[file := text] = ""
        elif mark == "$":
            use.argv = shlex.split(text)
            uses.append(use)
        elif mark == "=":
            use.code = int(text)
        elif text.startswith("| ") and not use.argv:
            use.files[file] += f"{text[2:]}\n"
        elif mark == "&":
            use.errors.append(text)
        elif mark == "!":
            use.absent.append(text)
        elif mark == " ":
            use.texts.append(" ".join(text.split()))
    return uses


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs and files of every kind, and an environment mxnet of the user."""
    folder = tmp_path_factory.mktemp("world")
    write_runs(folder)
    write_further_runs(folder)
    for name, trials in {"watched": records(), "stopped": records()[:3]}.items():
        begin(folder / name, *trials).close()
    begin(folder / "watched-failed", *records()[:3], failed_record(CONFIG, 1, 1)).close()
    write_published_runs(folder)
    write_mnist(folder / "images")
    write_mnist(folder / "home" / "trainscale" / "data" / "mnist", 30, 7)
    write_folder(folder / "photographs", sizes=[(40, 30), (64, 64)])
    for name in ("cifar", "damaged", "a set"):
        write_cifar10(folder / name, 10, 5)
    (folder / "damaged" / "test_batch.bin").write_bytes(b"x")
    (folder / "a set" / "data_batch_4.bin").unlink()
    write_run(folder / "run", two_series())
    write_run(folder / "single", curve(make_config(), {1: 100.0}))
    write_run(folder / "independent", curve(make_config(strategy="independent"), {2: 100.0}))
    write_run(folder / "failed", [failed_record(make_config(), devices) for devices in (1, 2, 4)])
    open_journal(folder / "begun", make_run()).close()
    shutil.copytree(folder / "same", folder / "newer")
    values = json.loads((folder / "newer" / "run.json").read_text())
    (folder / "newer" / "run.json").write_text(json.dumps({**values, "schema": 99}))
    (folder / "full").mkdir()
    os.mkfifo(folder / "fifo")
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


@pytest.mark.parametrize("use", read_table("uses.txt"), ids=lambda use: shlex.join(use.argv)[11:70])
def test_a_command_says(
    use: Use, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(world)
    monkeypatch.setenv("COLUMNS", "150")
    monkeypatch.setenv("XDG_DATA_HOME", str(world / "home"))
    before = contents(world)
    assert cli.main(use.argv[1:]) == use.code
    assert contents(world) == before
    printed = capsys.readouterr()
    assert bool(printed.err) == bool(use.errors)
    assert [text for text in use.errors if text not in printed.err] == []
    output = " ".join(printed.out.split())
    assert [text for text in use.texts if text not in output] == []
    assert [text for text in use.absent if text in output] == []


@pytest.mark.parametrize("use", read_table("wrong_uses.txt"), ids=lambda use: shlex.join(use.argv)[:70])
def test_a_wrong_use_is_one_message_and_writes_nothing(
    use: Use, world: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
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
    assert len(printed.err) < 3000
    message = " ".join(printed.err.split())
    assert [text for text in use.texts if text not in message] == []
