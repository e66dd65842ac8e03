"""What a machine is found to have: recorded nvidia-smi output, container quotas, and this very machine."""

import os
import platform
from pathlib import Path

import pytest

from trainscale.worker.inspection import host as machine
from trainscale.worker.inspection import usage
from trainscale.worker.inspection.host import Gpu, list_usable_cores, read_machine

MIB = 1024**2


# ---- a pretended nvidia-smi on the path


@pytest.fixture
def nvidia_smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Puts a program of that name on the path."""

    def install(script: str) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return install


@pytest.mark.processes
@pytest.mark.parametrize(
    ("text", "gpus"),
    [
        (
            "0, Tesla K80, 11441, 470.57.02\n1, Tesla K80, 11441, 470.57.02\n",
            (Gpu(0, "Tesla K80", 11441 * MIB, "470.57.02"), Gpu(1, "Tesla K80", 11441 * MIB, "470.57.02")),
        ),
        ("0, NVIDIA H200, 143771, 570.124.06\n", (Gpu(0, "NVIDIA H200", 143771 * MIB, "570.124.06"),)),
        # It shares the host's memory.
        ("0, NVIDIA GB10, [N/A], 580.95.05\n", (Gpu(0, "NVIDIA GB10", 0, "580.95.05"),)),
        ("0, NVIDIA GB10, [Not Supported], 580.95.05\n", (Gpu(0, "NVIDIA GB10", 0, "580.95.05"),)),
        ("", ()),
        ("No devices were found\n", ()),  # some drivers say this with exit code 0
    ],
)
def test_gpus_are_read_from_what_nvidia_smi_prints(text: str, gpus: tuple[Gpu, ...], nvidia_smi) -> None:
    nvidia_smi(f"cat <<'END'\n{text}END")
    facts = read_machine()
    assert facts.gpus == gpus
    assert facts.gpu_note == ("" if gpus else f"nvidia-smi names none: {text.strip()}")


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variable", "names"),
    [
        (None, ["gpu0", "gpu1", "gpu2", "gpu3"]),
        ("2,0", ["gpu2", "gpu0"]),
        (" 1 , 3 ", ["gpu1", "gpu3"]),
        *((name, []) for name in ("", "-1", "7")),
        ("0,-1,1", ["gpu0"]),  # CUDA sees only those before the first wrong one
    ],
)
def test_cuda_visible_devices_chooses_and_renumbers(
    variable: str | None, names: list[str], nvidia_smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi('for index in 0 1 2 3; do echo "$index, gpu$index, 0, 1"; done')
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    chosen = read_machine().gpus
    assert [gpu.name for gpu in chosen] == names
    assert [gpu.index for gpu in chosen] == list(range(len(names)))


TWO_GPUS = r"""
[ "$1" = --query-gpu=index,name,memory.total,driver_version,uuid ] || exit 2
for index in 0 1; do echo "$index, NVIDIA L4, 23034, 570.1, GPU-0000000$index-aaaa-bbbb-cccc-dddddddddddd"; done
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("variable", "numbers", "note"),
    [
        (None, [0, 1], ""),
        ("GPU-00000001-aaaa-bbbb-cccc-dddddddddddd", [1], ""),
        ("", [], "CUDA_VISIBLE_DEVICES= hides 2"),
    ],
)
def test_the_machines_gpus_are_those_of_nvidia_smi_that_the_variable_shows(
    variable: str | None, numbers: list[int], note: str, nvidia_smi, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvidia_smi(TWO_GPUS)
    if variable is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", variable)
    facts = read_machine()
    assert facts.gpus == tuple(
        Gpu(index, "NVIDIA L4", 23034 * MIB, "570.1", f"GPU-0000000{number}-aaaa-bbbb-cccc-dddddddddddd")
        for index, number in enumerate(numbers)
    )
    assert facts.gpu_note == note


@pytest.mark.processes
@pytest.mark.parametrize("message", ["NVIDIA-SMI has failed because of the driver.", ""])
def test_a_failing_nvidia_smi_is_the_reason_for_no_gpus(nvidia_smi, message: str) -> None:
    nvidia_smi(f"echo '{message}'; exit 9")
    facts = read_machine()
    assert (facts.gpus, facts.gpu_note) == ((), f"nvidia-smi failed: {message or 'exit code 9'}")


def test_a_machine_without_nvidia_smi_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    facts = read_machine()
    assert (facts.gpus, facts.gpu_note) == ((), "no nvidia-smi on this machine")


# ---- cores


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch):
    """Gives pretended contents to files of the system; all others of /sys and /proc are missing."""

    def pretend(contents: dict[str, str]) -> None:
        def read_line(path: str, start: str = "") -> str:
            lines = contents.get(path, "").splitlines()
            return next((line.removeprefix(start).strip() for line in lines if line.startswith(start)), "")

        for module in (machine, usage):
            monkeypatch.setattr(module, "read_line", read_line)
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3, 8, 9})

    return pretend


V1 = "/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "/sys/fs/cgroup/cpu/cpu.cfs_period_us"


@pytest.mark.parametrize(
    ("contents", "cores"),
    [
        ({}, (0, 1, 2, 3, 8, 9)),
        ({"/sys/fs/cgroup/cpu.max": "max 100000\n"}, (0, 1, 2, 3, 8, 9)),
        ({"/sys/fs/cgroup/cpu.max": "250000 100000\n"}, (0, 1)),
        ({"/sys/fs/cgroup/cpu.max": "50000 100000\n"}, (0,)),
        ({"/sys/fs/cgroup/cpu.max": "6400000 100000\n"}, (0, 1, 2, 3, 8, 9)),
        ({V1[0]: "300000\n", V1[1]: "100000\n"}, (0, 1, 2)),
        ({V1[0]: "-1\n", V1[1]: "100000\n"}, (0, 1, 2, 3, 8, 9)),
    ],
    ids=["none", "v2 max", "v2 2.5", "v2 0.5", "v2 64", "v1 3", "v1 unlimited"],
)
def test_usable_cores_are_the_schedulers_less_a_containers_quota(files, contents, cores) -> None:
    files(contents)
    assert list_usable_cores() == cores


@pytest.mark.parametrize(
    ("siblings", "threads"), [("0", 1), ("0-1", 2), ("0,64", 2), ("0-3", 4), ("0,32,64,96", 4), ("0-1,8-9", 4)]
)
def test_threads_that_share_a_core_are_counted(files, siblings: str, threads: int) -> None:
    files({"/sys/devices/system/cpu/cpu0/topology/thread_siblings_list": siblings + "\n"})
    assert read_machine().threads_per_core == threads


def test_pressure_and_memory_are_read_and_a_machine_that_tells_nothing_is_still_a_machine(files) -> None:
    files({})
    facts = read_machine()
    assert (facts.pressure, facts.memory_bytes, facts.threads_per_core) == (None, 0, 1)
    assert facts.cpu == platform.machine()
    files(
        {
            "/proc/pressure/cpu": "some avg10=12.34 avg60=1.00 avg300=0.50 total=123\nfull avg10=0.00 total=0\n",
            "/proc/meminfo": "MemTotal:       1000 kB\nMemFree:  1 kB\nMemAvailable:    400 kB\nHugePages_Total:  0\n",
            "/proc/cpuinfo": "processor\t: 0\nmodel name\t: A Fine Processor\n",
        }
    )
    facts = read_machine()
    assert (facts.pressure, facts.cpu) == (12.34, "A Fine Processor")
    assert (facts.memory_bytes, facts.memory_available_bytes) == (1000 * 1024, 400 * 1024)


def test_this_machine_has_the_cores_that_this_process_may_use() -> None:
    facts = read_machine()
    assert set(facts.cores) <= os.sched_getaffinity(0)
    assert len(facts.cores) >= 1
    assert facts.name == platform.node()
    assert facts.load >= 0
    assert facts.pressure is None or 0 <= facts.pressure <= 100
