"""``trainscale data get|list|check`` as a person meets it: real processes, and a web server on this machine."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from command import Command, trainscale
from processes import until
from small_sets import real
from web import Site, serving

from trainscale.worker.data.facts import MNIST
from trainscale.worker.data.published_files import EDITIONS

FIRST = EDITIONS[MNIST][0].files[0]


@pytest.fixture(autouse=True)
def _home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def site() -> Iterator[Site]:
    """Has the first file of MNIST by name and size, but not its content."""
    with serving(site := Site({FIRST.name: bytes(FIRST.size)})):
        yield site


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def test_the_real_mnist_comes_and_is_not_got_twice(tmp_path: Path) -> None:
    with serving(site := Site({path.name: path.read_bytes() for path in real("mnist").iterdir()})) as address:
        first = trainscale(tmp_path, "data", "get", "mnist", "--from", address)
        assert first.returncode == 0, first.stderr
        assert "60,000 + 10,000 images of 10 classes, 28×28 pixels, the published checksums are right" in first.stdout
        assert "trainscale run --data mnist …" in first.stdout
        assert tree(tmp_path) == sorted(f"home/trainscale/data/mnist/{f.name}" for f in EDITIONS[MNIST][0].files)
        site.requests.clear()
        second = trainscale(tmp_path, "data", "get", "mnist")
        assert second.returncode == 0
        assert second.stdout.startswith("mnist: already there; 60,000 + 10,000 images")
        assert site.requests == []


@pytest.mark.processes
def test_an_interrupt_leaves_no_part_of_a_file(site: Site, tmp_path: Path) -> None:
    site.holds = threading.Event()
    command = Command(tmp_path, "data", "get", "mnist", "here", "--from", site.address)
    until(lambda: any(path.stat().st_size > 0 for path in tmp_path.rglob("*.part")), "the first bytes")
    os.kill(command.pid, signal.SIGINT)
    done = command.finish()
    assert done.returncode == 130
    assert "mnist: stopped; complete files stay, and the same command gets the others" in done.stdout
    assert done.stderr.strip() == "trainscale: interrupted"
    assert tree(tmp_path) == []
    site.holds.set()


def test_a_corrupted_file_gets_no_name(site: Site, tmp_path: Path) -> None:
    done = trainscale(tmp_path, "data", "get", "mnist", "here", "--from", site.address)
    assert done.returncode == 1
    assert "it sends another file than the published one: MD5" in done.stderr
    assert FIRST.md5 in done.stderr
    assert "Traceback" not in done.stderr
    assert tree(tmp_path) == []


def test_a_place_without_the_file_and_a_place_without_a_server_are_told(tmp_path: Path) -> None:
    with serving(Site()) as address:
        done = trainscale(tmp_path, "data", "get", "cifar10", "--from", f"{address}/sets/")
        assert done.returncode == 1
        assert f"{address}/sets/cifar-10-binary.tar.gz: 404 Not Found" in done.stderr
    done = trainscale(tmp_path, "data", "get", "cifar10", "--from", address)
    assert done.returncode == 1
    assert "cifar-10-binary.tar.gz: Connection refused" in done.stderr
    assert tree(tmp_path) == []


@pytest.mark.processes
def test_a_disk_that_is_full_is_told(site: Site, tmp_path: Path) -> None:
    limited = f"ulimit -f 1000; exec {sys.executable} -m trainscale data get mnist here --from {site.address}"
    done = subprocess.run(["bash", "-c", limited], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "here cannot be written: File too large" in done.stderr
    assert "Traceback" not in done.stderr
    assert tree(tmp_path) == []
