"""What the GPUs' driver says of a trial's own processes, told by a real keeper. The driver's library is a stand-in that
this file compiles: what it says is a file.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from jobs import decode

from trainscale.launch.launchers.base import START
from trainscale.worker.inspection import gpus as nvml
from trainscale.worker.inspection.gpus import Nvml, NvmlError
from trainscale.worker.job import Task, TasksRequest, encode_request

pytestmark = pytest.mark.processes

SOURCE = Path(__file__).parents[2] / "support" / "simulated_nvml.c"
GIB = 1024**3
LIST = "nvmlDeviceGetComputeRunningProcesses"

# A rank that a test writes: it says what it holds, and leaves when the driver was asked twice after that.
RANK = """
import os, subprocess, sys, time

def holds(*lines):
    with open(os.environ["NVML_STAND_IN"], "a") as file:
        file.write("".join(f"{line}\\n" for line in lines))

def asked():
    try:
        return os.path.getsize(os.environ["NVML_STAND_IN_ASKED"])
    except OSError:
        return 0

def wait(times=2):
    until = asked() + times * int(os.environ.get("GPUS", "1"))
    end = time.monotonic() + 20
    while asked() < until and time.monotonic() < end:
        time.sleep(0.02)

me = os.getpid()
"""


@dataclass
class Driver:
    """A library in a folder of its own, and the file with what the GPUs hold."""

    folder: Path

    def __post_init__(self) -> None:
        Path(self.library).touch()  # before ``compile`` no library can be loaded, also where the machine has one

    def compile(self, gpus: int = 1, init: int = 0, answer: int = 0, function: str = LIST) -> Driver:
        defines = {"LIST": function, "GPUS": gpus, "INIT": init, "ANSWER": answer}
        flags = [f"-D{name}={value}" for name, value in defines.items()]
        library = self.folder / "libnvidia-ml.so.1"
        if shutil.which("cc") is None:
            pytest.skip("there is no C compiler here (tests/needs.sh installs it on Debian)")
        subprocess.run(["cc", "-shared", "-fPIC", *flags, "-o", library, SOURCE], check=True)
        return self

    @property
    def library(self) -> str:
        return str(self.folder / "libnvidia-ml.so.1")

    @property
    def environment(self) -> dict[str, str]:
        files = {"": "held", "_ASKED": "asked", "_STATE": "state"}
        paths = {f"NVML_STAND_IN{name}": str(self.folder / file) for name, file in files.items()}
        return {"LD_LIBRARY_PATH": str(self.folder), **paths}

    def holds(self, *lines: str) -> None:
        (self.folder / "held").write_text("".join(f"{line}\n" for line in lines))

    def set_state(self, *values: int) -> None:
        """Set the state of all GPUs, as simulated_nvml.c describes it, in one step."""
        (self.folder / "new").write_text(" ".join(map(str, values)))
        (self.folder / "new").rename(self.folder / "state")

    def keeps(self, *scripts: str, device: str = "cuda", gpus: int = 1) -> list[dict[str, Any]]:
        """Events of a keeper whose ranks are these scripts."""
        gpu: dict[str, Any] = {"uses_gpu": True, "gpu": 0} if device == "cuda" else {}
        commands = [[sys.executable, "-c", RANK + script] for script in scripts]
        tasks = [
            Task("localhost", rank, command, environment={"GPUS": str(gpus)}, **gpu)
            for rank, command in enumerate(commands)
        ]
        command, pipe = [sys.executable, str(START), "keeper"], subprocess.PIPE
        environment = {**os.environ, **self.environment}
        with subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment) as keeper:
            assert keeper.stdin is not None
            assert keeper.stdout is not None
            keeper.stdin.write(encode_request(TasksRequest(tasks, 60)))
            keeper.stdin.flush()
            events = [event for line in keeper.stdout if (event := decode(line.decode()))]
        assert keeper.returncode == 0
        return events


def nvml_of(events: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    """What was said of each rank, and always before its exit."""
    kinds = [(event["kind"], event["rank"]) for event in events if event["kind"] in ("gpu", "exit")]
    for rank in {rank for _, rank in kinds}:
        assert kinds.index(("gpu", rank)) < kinds.index(("exit", rank))
    return {event["rank"]: event for event in events if event["kind"] == "gpu"}


@pytest.fixture
def driver(tmp_path: Path) -> Driver:
    return Driver(tmp_path)


@pytest.fixture
def library(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> Driver:
    """For calls from this process."""
    for name, value in driver.environment.items():
        monkeypatch.setenv(name, value)
    return driver


def test_each_rank_has_its_largest_figure_and_that_of_its_children_is_part_of_it(driver: Driver) -> None:
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])"
    first = f"child = {child}\nholds(f'0 {{me}} {3 * GIB}', f'0 {{child.pid}} {GIB}')\nwait()\nchild.kill()"
    second = f"holds(f'0 {{me}} {2 * GIB}')\nwait()"
    peaks = nvml_of(driver.compile().keeps(first, second))
    assert {rank: event["peak_bytes"] for rank, event in peaks.items()} == {0: 4 * GIB, 1: 2 * GIB}


def test_what_a_stranger_holds_counts_for_nobody(driver: Driver) -> None:
    driver.compile().holds(f"0 {os.getpid()} {60 * GIB}", f"0 1 {10 * GIB}")
    peaks = nvml_of(driver.keeps(f"holds(f'0 {{me}} {GIB}')\nwait()", "wait()"))
    assert peaks[0]["peak_bytes"] == GIB
    assert peaks[1]["peak_bytes"] is None
    assert peaks[1]["note"] == "NVML names no process of this rank; it names 3 others"


def test_a_child_that_outlives_its_parent_is_still_of_the_rank(driver: Driver) -> None:
    orphan = (
        'inner = \'import subprocess, sys; print(subprocess.Popen([sys.executable, "-c",'
        ' "import time; time.sleep(60)"]).pid)\'\n'
        "pid = int(subprocess.run([sys.executable, '-c', inner], stdout=subprocess.PIPE).stdout)\n"
        f"holds(f'0 {{pid}} {GIB}')\nwait()\nos.kill(pid, 9)"
    )
    # The orphan keeps the pipe of the one that started it: that is given none.
    orphan = orphan.replace("]).pid", "], stdout=subprocess.DEVNULL).pid")
    assert nvml_of(driver.compile().keeps(orphan))[0]["peak_bytes"] == GIB


def test_a_rank_that_holds_memory_of_two_gpus_has_the_sum(driver: Driver) -> None:
    script = f"holds(f'0 {{me}} {GIB}', f'1 {{me}} {2 * GIB}')\nwait()"
    assert nvml_of(driver.compile(gpus=2).keeps(script, gpus=2))[0]["peak_bytes"] == 3 * GIB


def test_on_cpu_devices_the_driver_is_not_asked(driver: Driver) -> None:
    events = driver.compile().keeps("pass", device="cpu")
    assert [event["kind"] for event in events] == ["exit", "end"]
    assert not (driver.folder / "asked").exists()


def test_a_library_that_is_missing_and_a_driver_that_refuses_are_named(driver: Driver) -> None:
    note = nvml_of(driver.keeps("import time; time.sleep(0.5)"))[0]["note"]
    assert "cannot be loaded" in note
    assert "libnvidia-ml.so.1" in note
    note = nvml_of(driver.compile(init=9).keeps("import time; time.sleep(0.5)"))[0]["note"]
    assert note == "nvmlInit_v2: Driver Not Loaded (error 9)"


def test_a_driver_that_does_not_count_by_process_gives_a_note_and_no_number(driver: Driver) -> None:
    event = nvml_of(driver.compile().keeps("holds(f'0 {me} 18446744073709551615')\nwait()"))[0]
    assert event["note"] == nvml.NO_COUNT
    assert event["peak_bytes"] is None


@pytest.mark.parametrize(
    "held", [{}, {101: 1000, 102: 2000, 103: None}, {1000 + number: number for number in range(200)}]
)
def test_all_processes_are_read(library: Driver, held: dict[int, int | None]) -> None:
    library.compile().holds(*(f"0 {pid} {2**64 - 1 if size is None else size}" for pid, size in held.items()))
    assert Nvml(library.library).sum_process_bytes() == held


@pytest.mark.parametrize(
    ("options", "message"),
    [({"function": "other"}, f"has no {LIST}$"), ({"answer": 3}, rf"{LIST}: Unknown Error \(error 3\)")],
)
def test_a_missing_function_and_an_error_of_every_gpu_are_errors(
    library: Driver, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(NvmlError, match=message):
        Nvml(library.compile(**options).library).sum_process_bytes()
