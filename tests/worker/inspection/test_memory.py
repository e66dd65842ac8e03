"""Limits of memory, loaders' memory, and whose process is whose. With real processes."""

import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainscale.worker.inspection import gpus as nvml
from trainscale.worker.inspection import usage
from trainscale.worker.inspection.gpus import NvmlError

GIB = 1024**3


def confined(code: str, share: float, data_limit: int | None = None) -> subprocess.CompletedProcess[str]:
    """Runs code in a process that has confined itself; ``limit`` is what it was told."""

    def limit() -> None:
        if data_limit is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (data_limit, data_limit))

    script = f"from trainscale.worker.inspection import usage\nlimit = usage.limit_memory({share})\n{code}"
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, preexec_fn=limit)


@pytest.mark.processes
def test_an_allocation_beyond_the_share_fails_as_want_of_memory() -> None:
    share = 0.3 * GIB / usage.count_available_bytes()
    done = confined("small = bytearray(limit // 4)\nprint('small')\nbig = bytearray(2 * limit)", share)
    assert done.stdout == "small\n"
    assert done.stderr.splitlines()[-1] == "MemoryError"


@pytest.mark.processes
def test_a_limit_that_is_there_already_is_not_widened() -> None:
    done = confined("print(limit)", 0.9, data_limit=GIB // 2)
    assert int(done.stdout) == GIB // 2


def test_what_is_available_is_what_a_container_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "memory"):  # versions 2 and 1, whichever is here
        folder.mkdir(exist_ok=True)
        for limit, used in (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes")):
            (folder / limit).write_text("1000000\n")
            (folder / used).write_text("400000\n")
        (folder / "memory.stat").write_text("anon 1\ninactive_file 100000\ntotal_inactive_file 100000\n")
    monkeypatch.setattr(usage, "_CGROUPS", str(tmp_path))
    assert usage.count_available_bytes() == 700000
    for path in (tmp_path / "memory.max", tmp_path / "memory/memory.limit_in_bytes"):
        for folder in (tmp_path, tmp_path / "memory"):
            (folder / path.name).write_text("max\n")
    assert usage.count_available_bytes() > 10 * 1024**2


@pytest.fixture
def child() -> Iterator[subprocess.Popen[bytes]]:
    """A process that holds 64 MiB and says so."""
    code = "held = bytearray(b'x') * (64 << 20); print(flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process


@pytest.mark.processes
def test_children_count_with_the_most_they_ever_held(child: subprocess.Popen[bytes]) -> None:
    peak_bytes = usage.sum_children_peak_bytes()
    assert peak_bytes is not None
    assert peak_bytes > 64 * 1024**2


@pytest.mark.processes
def test_a_process_below_a_rank_is_the_ranks_own_and_a_parent_of_it_is_not(child: subprocess.Popen[bytes]) -> None:
    assert nvml.find_rank(child.pid, {os.getpid(): 3}) == 3
    assert nvml.find_rank(os.getpid(), {child.pid: 3}) is None
    assert nvml.find_rank(999_999_999, {child.pid: 3}) is None


class Named:
    """In place of NVML: the same processes every time, and a sign when they were asked for twice."""

    def __init__(self, *pids: int) -> None:
        self.found = dict.fromkeys(pids, GIB)
        self.asked = threading.Semaphore(0)

    def sum_process_bytes(self) -> dict[int, int]:
        self.asked.release()
        return self.found


def watched(monkeypatch: pytest.MonkeyPatch, named: Named, inner: bool) -> nvml.GpuMonitor:
    monkeypatch.setattr(nvml, "Nvml", lambda: named)
    monkeypatch.setattr(nvml, "is_in_container", lambda: inner)
    gpus = nvml.GpuMonitor()
    gpus.watch(0, os.getpid())
    for _ in range(3):
        named.asked.acquire(timeout=2)
    gpus.stop()
    gpus._thread.join()
    return gpus


@pytest.mark.parametrize(
    ("others", "inner", "peak"),
    [
        ((999_999_999,), True, (None, nvml.ELSEWHERE)),  # although the other number is by chance that of a rank
        ((), True, (GIB, "")),  # a container that numbers processes as the driver does
        ((999_999_999,), False, (GIB, "")),  # outside containers, a hidden process is a stranger
    ],
)
def test_in_a_container_numbers_of_processes_that_are_not_here_tell_nothing(
    others: tuple[int, ...], inner: bool, peak: tuple[int | None, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert watched(monkeypatch, Named(os.getpid(), *others), inner).find_peak(0) == peak


def test_several_ranks_are_told_the_same_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise NvmlError("no driver")

    monkeypatch.setattr(nvml, "Nvml", refuse)
    gpus = nvml.GpuMonitor()
    gpus.watch(0, os.getpid())
    gpus._thread.join()
    gpus.watch(1, os.getpid())
    assert gpus.find_peak(0) == gpus.find_peak(1) == (None, "no driver")
