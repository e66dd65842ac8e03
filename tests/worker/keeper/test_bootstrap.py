"""The first thing on another host: copies the worker if it is not there, whole or not at all, and becomes a keeper."""

import ast
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jobs import decode

from trainscale.launch.worker_archive import RUN_FIRST_LINE, WORKER, build_archive, make_bootstrap_line

DIGEST = build_archive().digest


class Arrival:
    """A Python as a launcher starts it on a host."""

    def __init__(self, line: bytes) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", RUN_FIRST_LINE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
        )
        self.write(line)

    def write(self, data: bytes) -> None:
        assert self.popen.stdin is not None
        view = memoryview(data)
        while view:
            view = view[self.popen.stdin.write(view) :]

    def event(self) -> dict[str, Any]:
        assert self.popen.stdout is not None
        event = decode(self.popen.stdout.readline().decode())
        assert event is not None
        return event

    def end(self) -> None:
        for stream in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
            assert stream is not None
            stream.close()
        self.popen.wait(30)


Arrive = Callable[..., Arrival]


@pytest.fixture
def arrive() -> Iterator[Arrive]:
    arrivals: list[Arrival] = []

    def start(folder: Path | str, line: bytes | None = None) -> Arrival:
        arrivals.append(Arrival(line or make_bootstrap_line(str(folder), "keeper")))
        return arrivals[-1]

    yield start
    for arrival in arrivals:
        arrival.end()


def settle(arrival: Arrival) -> tuple[bool, dict[str, Any]]:
    """Whether the worker had to be copied, and what was said then."""
    has = arrival.event()["has"]
    if not has:
        arrival.write(build_archive().data)
    return not has, arrival.event()


def base(folder: Path) -> Path:
    return folder / f"trainscale-{os.getuid()}"


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file below a folder that Python did not add, by inode and content."""
    return {
        path.relative_to(folder).as_posix(): (path.stat().st_ino, path.read_bytes())
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and not path.name.startswith(".")
    }


@pytest.mark.processes
def test_it_is_copied_once_and_becomes_a_keeper(arrive: Arrive, tmp_path: Path) -> None:
    first = arrive(tmp_path)
    copied, output = settle(first)
    assert copied
    assert output["start"] == str(base(tmp_path) / DIGEST / "trainscale/worker/start.py")
    assert output["version"] == sys.version.split()[0]
    first.write(b'{"ports": 2}\n')
    assert len(first.event()["ports"]) == 2
    first.end()
    assert base(tmp_path).stat().st_mode & 0o777 == 0o700
    copy = base(tmp_path) / DIGEST
    before = state(copy)
    copied, _ = settle(arrive(tmp_path))
    assert not copied
    assert state(copy) == before
    contents = [
        {name: content for name, (_, content) in files.items()}
        for files in (state(WORKER), state(copy / "trainscale/worker"))
    ]
    assert contents[0] == contents[1]
    assert set(before) == {f"trainscale/worker/{name}" for name in contents[0]}


@pytest.mark.processes
@pytest.mark.parametrize("damage", ["removed", "changed", "added"])
def test_a_copy_that_is_not_whole_any_more_is_replaced(damage: str, arrive: Arrive, tmp_path: Path) -> None:
    """As when a host tidies its common folder. What Python adds does not count."""
    settle(arrive(tmp_path))
    older = base(tmp_path) / "0123456789abcdef"  # what another version left stays
    older.mkdir()
    before = {name: content for name, (_, content) in state(tmp_path).items()}
    victim = base(tmp_path) / DIGEST / "trainscale/worker/training/loop.py"
    cache = victim.parents[1] / "__pycache__"
    cache.mkdir(exist_ok=True)
    (cache / "loop.cpython-39.pyc").write_bytes(b"compiled")
    assert settle(arrive(tmp_path))[0] is False
    if damage == "removed":
        victim.unlink()
    elif damage == "changed":
        victim.write_text("import os")
    else:
        victim.with_name("json.py").write_text("import os")
    copied, _ = settle(arrive(tmp_path))
    assert copied
    assert {name: content for name, (_, content) in state(tmp_path).items()} == before
    assert {path.name for path in base(tmp_path).iterdir()} == {DIGEST, older.name}


@pytest.mark.processes
def test_several_at_once_on_one_file_system_do_not_harm_each_other(arrive: Arrive, tmp_path: Path) -> None:
    several = [arrive(tmp_path) for _ in range(4)]
    assert [arrival.event()["has"] for arrival in several] == [False] * 4
    for arrival in several:
        arrival.write(build_archive().data)
    for arrival in several:
        assert "start" in arrival.event()
        arrival.write(b'{"ports": 1}\n')
        assert len(arrival.event()["ports"]) == 1
    assert [path.name for path in base(tmp_path).iterdir()] == [DIGEST]


@pytest.mark.processes
def test_what_another_keeper_removes_meanwhile_does_not_matter(arrive: Arrive, tmp_path: Path) -> None:
    """A temporary folder that is listed may be gone when it is looked at, and so may a damaged copy's file."""
    program = ast.literal_eval(make_bootstrap_line(str(tmp_path), "keeper").decode())
    gone = "import os\nlistdir, walk = os.listdir, os.walk\nos.listdir = lambda path: [*listdir(path), '.removed']\n"
    damaged = (
        "os.walk = lambda top: iter([*walk(top), (top, [], ['removed'])] if not os.path.isdir(top) else walk(top))\n"
    )
    copied, output = settle(arrive(tmp_path, repr(gone + damaged + program).encode() + b"\n"))
    assert copied
    assert "start" in output


@pytest.mark.processes
def test_copies_that_nobody_used_for_a_week_make_room(arrive: Arrive, tmp_path: Path) -> None:
    base(tmp_path).mkdir(mode=0o700)
    for name, days in (("old", 8), (".half", 8), ("recent", 6)):
        (base(tmp_path) / name).mkdir()
        (base(tmp_path) / name / "start.py").touch()
        used = time.time() - days * 86400
        os.utime(base(tmp_path) / name, (used, used))
    settle(arrive(tmp_path))
    assert {path.name for path in base(tmp_path).iterdir()} == {DIGEST, "recent"}
    os.utime(base(tmp_path) / DIGEST, (1, 1))
    settle(arrive(tmp_path))  # a copy in use is kept young
    assert time.time() - (base(tmp_path) / DIGEST).stat().st_mtime < 3600


@pytest.mark.processes
def test_a_connection_that_ends_while_copying_leaves_nothing(arrive: Arrive, tmp_path: Path) -> None:
    arrival = arrive(tmp_path)
    assert arrival.event()["has"] is False
    arrival.write(build_archive().data[:1000])
    assert arrival.popen.stdin is not None
    arrival.popen.stdin.close()
    assert arrival.event()["error"] == "the connection ended while the worker was being copied"
    assert arrival.popen.wait(30) == 1
    assert list(base(tmp_path).iterdir()) == []


@pytest.mark.processes
def test_damage_on_the_way_is_noticed(arrive: Arrive, tmp_path: Path) -> None:
    arrival = arrive(tmp_path, make_bootstrap_line(str(tmp_path), "keeper").replace(DIGEST.encode(), b"0" * 16))
    assert arrival.event()["has"] is False
    arrival.write(build_archive().data)
    assert "but not as it was sent" in arrival.event()["error"]


def refused(arrive: Arrive, folder: Path | str, line: bytes | None = None) -> str:
    arrival = arrive(folder, line)
    error = arrival.event()["error"]
    assert arrival.popen.wait(30) == 1
    return str(error)


@pytest.mark.processes
def test_a_folder_that_others_may_write_to_and_a_link_are_refused(arrive: Arrive, tmp_path: Path) -> None:
    base(tmp_path).mkdir()
    base(tmp_path).chmod(0o770)
    message = refused(arrive, tmp_path)
    assert message == f"{base(tmp_path)} is not this user's alone; remove it, or name another remote directory"
    base(tmp_path).rmdir()
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    base(tmp_path).symlink_to(tmp_path / "elsewhere")
    assert "is not this user's alone" in refused(arrive, tmp_path)
    base(tmp_path).unlink()
    base(tmp_path).symlink_to(tmp_path / "nowhere")
    assert str(base(tmp_path)) in refused(arrive, tmp_path)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.processes
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a folder to another user")
def test_a_folder_of_another_user_is_refused(arrive: Arrive, tmp_path: Path) -> None:
    base(tmp_path).mkdir(mode=0o700)
    os.chown(base(tmp_path), 4321, -1)
    assert "is not this user's alone" in refused(arrive, tmp_path)


@pytest.mark.processes
def test_a_folder_that_cannot_be_made_is_named(arrive: Arrive, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert f"'{tmp_path}/file/" in refused(arrive, tmp_path / "file" / "below")


@pytest.mark.processes
def test_the_home_folder_is_that_of_the_host(arrive: Arrive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    _, output = settle(arrive("~/a folder"))
    assert output["start"].startswith(f"{tmp_path}/a folder/trainscale-")


@pytest.mark.processes
def test_an_old_python_is_named_with_what_is_needed(arrive: Arrive, tmp_path: Path) -> None:
    older = "import sys\nsys.version_info = (3, 8, 18)\nsys.version = '3.8.18 (default)'\n"
    program = ast.literal_eval(make_bootstrap_line(str(tmp_path), "keeper").decode())
    message = refused(arrive, tmp_path, repr(older + program).encode() + b"\n")
    assert message == f"{sys.executable} is Python 3.8.18, too old; valid: 3.9 or newer"
    assert list(tmp_path.iterdir()) == []


def test_it_parses_under_every_python_3() -> None:
    tree = ast.parse((WORKER / "keeper/bootstrap.py").read_text(), feature_version=(3, 4))
    younger = (ast.JoinedStr, ast.AnnAssign, ast.NamedExpr, ast.AsyncFunctionDef)
    assert not [node for node in ast.walk(tree) if isinstance(node, younger)]
