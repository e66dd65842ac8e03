"""Secrets of the environment of whoever measures are in nothing that a run writes, prints or starts: runs on this
machine and over ssh, with every file and every command line searched.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from lab import Lab

SECRETS = {
    "GITHUB_TOKEN": "ghp_plantedTokenOfATest0001",
    "HF_TOKEN": "hf_plantedTokenOfATest0002",
    "WANDB_API_KEY": "plantedKeyOfATest0003",
    "AWS_ACCESS_KEY_ID": "AKIAPLANTEDTEST00004",
    "AWS_SECRET_ACCESS_KEY": "plantedSecretOfATest0005",
    "AWS_SESSION_TOKEN": "plantedSessionOfATest0006",
    "http_proxy": "http://someone:plantedPassword0007@proxy.invalid:3128",
    "PIP_INDEX_URL": "https://someone:plantedPassword0008@packages.invalid/simple",
}
QUICK = ("--models", "mnist:8", "--warmup", "2", "--steps", "3", "--repeats", "1", "--devices", "2")


class CommandLines(threading.Thread):
    """Reads the command lines of all processes of this machine, again and again, until it is stopped."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seen: set[bytes] = set()
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.02):
            for entry in Path("/proc").glob("[0-9]*"):
                try:
                    self.seen.add((entry / "cmdline").read_bytes())
                except OSError:
                    continue  # it ended meanwhile

    def __enter__(self) -> CommandLines:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self.join()


def is_secret(content: bytes) -> bool:
    return any(value.encode() in content for value in (*SECRETS.values(), *map(password, SECRETS.values())))


def password(value: str) -> str:
    """Return the password in an address, or the value itself."""
    return value.partition("@")[0].rpartition(":")[2] if "@" in value else value


def files_with_secrets(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and is_secret(path.read_bytes())]


@pytest.fixture
def home(tmp_path: Path) -> dict[str, str]:
    """An environment with secrets, whose user has a cache and a data folder of their own."""
    folders = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    return {**os.environ, **SECRETS, **folders, "COLUMNS": "160"}


def check_run(tmp_path: Path, environment: dict[str, str], prefix: Sequence[str], more: Sequence[str]) -> None:
    command = [*prefix, sys.executable, "-m", "trainscale", "run", *QUICK, *more, "-o", "out"]
    with CommandLines() as lines:
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    assert any(b"start.py\0rank" in line for line in lines.seen)  # the search has seen the ranks
    assert [line for line in lines.seen if is_secret(line)] == []
    assert not is_secret(done.stdout + done.stderr)
    assert (tmp_path / "out" / "report.html").exists()
    assert files_with_secrets(tmp_path) == []


def test_the_search_finds_a_planted_secret(tmp_path: Path) -> None:
    (tmp_path / "file").write_text(f"x{SECRETS['http_proxy']}y")
    (tmp_path / "other").write_text("plantedPassword0008")
    assert len(files_with_secrets(tmp_path)) == 2


@pytest.mark.framework
def test_a_run_on_this_machine_leaks_no_secret(tmp_path: Path, home: dict[str, str]) -> None:
    check_run(tmp_path, home, (), ())


@pytest.mark.slow
@pytest.mark.hosts
@pytest.mark.framework
def test_a_run_over_ssh_leaks_no_secret(tmp_path: Path, home: dict[str, str], make_lab: Callable[..., Lab]) -> None:
    lab = make_lab(2)
    (tmp_path / "nodes").write_text("".join(f"{lab.address(name)} {name}\n" for name in lab.hosts))
    check_run(tmp_path, home, lab.controller, ("--hosts", "nodes", "-g", "1"))
    for name in lab.hosts:
        # This file has the secrets, too, and the project may lie below /tmp.
        here = lab.file(name, Path(__file__).parents[2])
        leaks = [path for path in files_with_secrets(lab.file(name, "/tmp")) if not path.is_relative_to(here)]
        assert leaks == []
