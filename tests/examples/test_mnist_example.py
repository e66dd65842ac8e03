"""examples/mnist.py, each way a person may start it: a few steps on a small set; and all of MNIST, where it is."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from command import Command
from environments import python_for
from small_sets import write_mnist

pytestmark = pytest.mark.framework

ROOT = Path(__file__).parents[2]
MNIST = ROOT.parent / "shared/data/mnist"
REAL = pytest.mark.skipif(not MNIST.is_dir(), reason="MNIST itself is not at ../shared/data/mnist")

STEP = r"Step (\d+): loss = (\d+\.\d\d|nan) -- train accuracy = ([01]\.\d\d)"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mnist(tmp_path_factory.mktemp("mnist"))


def alone(folder: Path, *flags: str, seconds: float = 240, **variables: str) -> subprocess.CompletedProcess[str]:
    """One process."""
    return subprocess.run(
        [python_for("tensorflow"), "examples/mnist.py", "--data_dir", str(folder), *flags],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def distributed(folder: Path, *flags: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    """Two workers and a server."""
    program = [python_for("tensorflow"), "examples/mnist.py", "--data_dir", str(folder), *flags]
    return Command(ROOT, "launch", "-n", "2", "-s", "1", *program).finish(seconds)


def steps(text: str, head: str = "") -> list[int]:
    """The numbers of the steps that were told, by the worker of that head."""
    return [int(number) for number, _, _ in re.findall(rf"^{re.escape(head)}{STEP}$", text, re.MULTILINE)]


def final_accuracy(text: str, head: str = "") -> float:
    """The share of test images labelled right, which is told once, by the chief."""
    (line,) = re.findall(r"^.*Test accuracy.*$", text, re.MULTILINE)
    found = re.fullmatch(rf"{re.escape(head)}Test accuracy = ([01]\.\d{{4}})", line)
    assert found, line
    return float(found[1])


WORKERS = ["[worker 0 localhost] ", "[worker 1 localhost] "]


# ---- a few steps


def test_one_process_learns_channels_first(small: Path) -> None:
    done = alone(small, "--data_format", "NCHW", "--train_steps", "30")
    assert done.returncode == 0, done.stderr
    assert "3,274,634 parameters, NCHW, 1 worker(s)\n" in done.stdout
    assert steps(done.stdout) == [10, 20, 30]
    assert final_accuracy(done.stdout) > 0.95


def test_workers_in_step_take_every_step_together(small: Path) -> None:
    done = distributed(small, "--sync-replicas", "--train-steps", "20", "--display-every", "5")
    assert done.returncode == 0, done.stderr
    assert "3,274,634 parameters, NHWC, 2 worker(s)\n" in done.stdout
    assert [steps(done.stdout, worker) for worker in WORKERS] == [[5, 10, 15, 20]] * 2
    assert final_accuracy(done.stdout, WORKERS[0]) > 0.95


@pytest.mark.slow
def test_workers_out_of_step_share_the_updates(small: Path) -> None:
    done = distributed(small, "--train_steps", "40", "--display_every", "1")
    assert done.returncode == 0, done.stderr
    told = [steps(done.stdout, worker) for worker in WORKERS]
    assert all(one == sorted(one) for one in told)
    # Each update is one worker's. Another's may have come between an update and its counting, and the last that a
    # worker counts ends its training.
    assert 40 <= sum(map(len, told)) <= 41
    assert max(number for one in told for number in one) in (40, 41)
    assert final_accuracy(done.stdout, WORKERS[0]) > 0.9


@pytest.mark.slow
def test_missing_files_are_named_with_what_gets_them(tmp_path: Path) -> None:
    done = alone(tmp_path)
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.startswith(f"{tmp_path}/train-images-idx3-ubyte.gz is missing; `trainscale data get mnist`")


@pytest.mark.slow
def test_channels_first_without_kernels_is_told(small: Path) -> None:
    done = alone(small, "--data_format", "NCHW", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("--data_format NCHW: this TensorFlow has no kernels for it here")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_several_workers_without_a_server_are_told_what_they_need(small: Path) -> None:
    config = '{"cluster": {"worker": ["localhost:1", "localhost:2"]}, "task": {"type": "worker", "index": 0}}'
    done = alone(small, TF_CONFIG=config)
    assert done.returncode == 1
    assert "several workers need a parameter server: trainscale launch -n 2 -s 1" in done.stderr


# ---- all of MNIST, with the defaults


@REAL
@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_one_process_reaches_98_percent(layout: str) -> None:
    done = alone(MNIST, "--data_format", layout, seconds=1200)
    assert done.returncode == 0, done.stderr
    assert final_accuracy(done.stdout) >= 0.98


@REAL
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flags", [["--sync_replicas"], []], ids=["synchronous", "asynchronous"])
def test_two_workers_reach_98_percent(flags: list[str]) -> None:
    done = distributed(MNIST, *flags, seconds=1800)
    assert done.returncode == 0, done.stderr
    assert final_accuracy(done.stdout, WORKERS[0]) >= 0.98
