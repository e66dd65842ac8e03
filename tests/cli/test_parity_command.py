"""``trainscale parity``: the proof as a table, and as an exit code."""

import sys
from pathlib import Path

import pytest
from command import trainscale


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.mark.framework
def test_two_frameworks_are_proven_and_the_second_time_is_remembered(tmp_path: Path) -> None:
    command = ("parity", "--frameworks", "torch,mxnet", "--models", "mnist", "--device", "cpu")
    first, second = (trainscale(tmp_path, *command, columns=80) for _ in range(2))
    assert first.returncode == 0, first.stderr
    lines = [line.split() for line in first.stdout.splitlines()]
    assert [line[-1] for line in lines if line[:1] in (["torch"], ["mxnet"])] == ["proven", "proven"]
    assert max(map(len, first.stdout.splitlines())) <= 80
    assert "…" not in first.stdout
    assert "mxnet nchw fp64" in first.stderr
    assert (second.returncode, second.stdout, second.stderr) == (0, first.stdout, "")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]


@pytest.mark.framework
def test_a_framework_that_is_missing_is_no_proof(tmp_path: Path) -> None:
    done = trainscale(
        tmp_path, "parity", "--frameworks", "torch,mxnet", "--models", "mnist", "--python", f"mxnet={sys.executable}"
    )
    assert done.returncode == 1
    assert "no module 'mxnet'" in done.stderr
