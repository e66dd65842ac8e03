"""The user's folders: the controller's and the worker's rules agree."""

import os
import sys
from pathlib import Path

import pytest

from trainscale.folders import find_cache_folder, find_data_folder
from trainscale.worker.inspection import host as host_facts


@pytest.mark.parametrize("value", ["/somewhere", "", " ", "relative/path", "./here", "~/data"])
def test_a_relative_folder_counts_as_unset_for_the_controller_and_for_the_worker(
    value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_DATA_HOME", value)
    expected = Path(value if value == "/somewhere" else "/home/me/.local/share")
    assert find_data_folder() == expected / "trainscale"
    monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert find_cache_folder() == Path(value if value == "/somewhere" else "/home/me/.cache") / "trainscale"


@pytest.mark.processes
def test_a_worker_looks_for_environments_where_the_controller_creates_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment below a relative path belongs to nobody: it depends on the folder in which a process starts."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "me"))
    monkeypatch.setenv("XDG_DATA_HOME", "relative")
    for data in (tmp_path / "relative", tmp_path / "me/.local/share"):
        python = data / "trainscale/envs/mine/bin/python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\necho \'{{"moonframe": "{data.name}"}}\'\n')
        python.chmod(0o755)
    location = host_facts.find_interpreter(["moonframe"], [os.devnull, sys.executable], ("moonframe",))
    assert location is not None
    assert location.versions == {"moonframe": "share"}
