"""The worker's archive: the same for the same files, whatever else lies about; and the line that a host runs first."""

import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from trainscale.launch import worker_archive as module
from trainscale.launch.worker_archive import RUN_FIRST_LINE, WORKER, WorkerArchive


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The worker's folder in another place, to be changed."""
    place = tmp_path / "worker"
    shutil.copytree(WORKER, place)
    monkeypatch.setattr(module, "WORKER", place)
    return place


make: Callable[[], WorkerArchive] = module.build_archive.__wrapped__


def test_it_holds_the_whole_worker_and_nothing_else() -> None:
    with tarfile.open(fileobj=io.BytesIO(make().data)) as tar:
        names = tar.getnames()
    assert "trainscale/worker/start.py" in names
    assert "trainscale/worker/frameworks/torch/adapter.py" in names
    assert names == sorted(set(names), key=lambda name: name.split("/"))
    assert all(name.startswith("trainscale/worker/") for name in names)
    assert not [name for name in names if "__pycache__" in name or name.endswith(".pyc")]


def test_it_is_the_same_for_the_same_files(copy: Path) -> None:
    before = make()
    for path in copy.rglob("*"):
        os.utime(path, (1, 1))
        path.chmod(0o700)
    (copy / "__pycache__").mkdir(exist_ok=True)
    (copy / "__pycache__" / "loop.cpython-311.pyc.140234").write_bytes(b"half written")
    (copy / ".loop.py.swp").write_bytes(b"an editor's")
    assert make() == before


CHANGES = {
    "content": lambda folder: (folder / "start.py").write_text("another"),
    "name": lambda folder: (folder / "start.py").rename(folder / "begin.py"),
    "more": lambda folder: (folder / "models" / "another.py").touch(),
    "less": lambda folder: (folder / "start.py").unlink(),
}


@pytest.mark.parametrize("change", CHANGES)
def test_its_digest_tells_when_anything_changed(change: str, copy: Path) -> None:
    before = make()
    CHANGES[change](copy)
    assert make().digest != before.digest


@pytest.mark.processes
def test_the_first_line_is_run_and_what_follows_it_is_left_to_read() -> None:
    program = "import os, sys; print(os.read(0, 100)); print(sys.argv)"
    done = subprocess.run(
        [sys.executable, "-c", RUN_FIRST_LINE], input=repr(program).encode() + b"\nthe rest\n", capture_output=True
    )
    assert done.stdout.splitlines() == [b"b'the rest\\n'", b"['-c']"]
    # A Python whose controller is gone ends at once.
    done = subprocess.run([sys.executable, "-c", RUN_FIRST_LINE], input=b"", capture_output=True, timeout=30)
    assert done.returncode == 0
    assert done.stdout + done.stderr == b""
    # Nothing in it would be changed by a login shell.
    assert not set(RUN_FIRST_LINE) & set("'!`$\n")
