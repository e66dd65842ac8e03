"""examples/mnist.py in every form: a few steps on a small data set, and all of MNIST where it is available."""

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
REAL = pytest.mark.skipif(not MNIST.is_dir(), reason="there is no MNIST at ../shared/data/mnist")

STEP = r"Step (\d+): loss = (\d+\.\d\d|nan) -- train accuracy = ([01]\.\d\d)"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_mnist(tmp_path_factory.mktemp("mnist"))


def alone(folder: Path, *flags: str, seconds: float = 240, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run it in one process."""
    return subprocess.run(
        [python_for("tensorflow"), "examples/mnist.py", "--data_dir", str(folder), *flags],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=seconds,
    )


def distributed(folder: Path, *flags: str, seconds: float = 240) -> subprocess.CompletedProcess[str]:
    """Run it with two workers and a server."""
    program = [python_for("tensorflow"), "examples/mnist.py", "--data_dir", str(folder), *flags]
    return Command(ROOT, "launch", "-n", "2", "-s", "1", *program).finish(seconds)


def steps(text: str, prefix: str = "") -> list[int]:
    """Return the numbers of the printed steps, from the worker whose lines have this prefix."""
    return [int(number) for number, _, _ in re.findall(rf"^{re.escape(prefix)}{STEP}$", text, re.MULTILINE)]


def final_accuracy(text: str, prefix: str = "") -> float:
    """Return the test accuracy, which the chief prints once."""
    (line,) = re.findall(r"^.*Test accuracy.*$", text, re.MULTILINE)
    match = re.fullmatch(rf"{re.escape(prefix)}Test accuracy = ([01]\.\d{{4}})", line)
    assert match, line
    return float(match[1])


WORKERS = ["[worker 0 localhost] ", "[worker 1 localhost] "]


# ---- a few steps


def test_one_process_learns_channels_first(small: Path) -> None:
    done = alone(small, "--data_format", "NCHW", "--train_steps", "30")
    assert done.returncode == 0, done.stderr
    assert "3,274,634 parameters, NCHW, 1 worker(s)\n" in done.stdout
    assert steps(done.stdout) == [10, 20, 30]
    assert final_accuracy(done.stdout) > 0.95


def test_synchronous_workers_take_every_step_together(small: Path) -> None:
    done = distributed(small, "--sync-replicas", "--train-steps", "20", "--display-every", "5")
    assert done.returncode == 0, done.stderr
    assert "3,274,634 parameters, NHWC, 2 worker(s)\n" in done.stdout
    assert [steps(done.stdout, worker) for worker in WORKERS] == [[5, 10, 15, 20]] * 2
    assert final_accuracy(done.stdout, WORKERS[0]) > 0.95


@pytest.mark.slow
def test_asynchronous_workers_share_the_updates(small: Path) -> None:
    done = distributed(small, "--train_steps", "40", "--display_every", "1")
    assert done.returncode == 0, done.stderr
    printed = [steps(done.stdout, worker) for worker in WORKERS]
    assert all(numbers == sorted(numbers) for numbers in printed)
    # Each update comes from one worker. The other worker may update between an update and its counting, and a worker
    # stops after the last update that it counts.
    assert 40 <= sum(map(len, printed)) <= 41
    assert max(number for numbers in printed for number in numbers) in (40, 41)
    assert final_accuracy(done.stdout, WORKERS[0]) > 0.9


@pytest.mark.slow
def test_a_missing_file_is_named_with_the_command_that_downloads_it(tmp_path: Path) -> None:
    done = alone(tmp_path)
    assert done.returncode == 1
    message = done.stderr.splitlines()[-1]
    assert message.startswith(f"{tmp_path}/train-images-idx3-ubyte.gz is missing; `trainscale data get mnist`")


@pytest.mark.slow
def test_channels_first_without_kernels_is_an_error_message(small: Path) -> None:
    done = alone(small, "--data_format", "NCHW", TF_ENABLE_ONEDNN_OPTS="0", CUDA_VISIBLE_DEVICES="-1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("--data_format NCHW: this TensorFlow has no kernels for it here")
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_several_workers_without_a_server_are_an_error_message(small: Path) -> None:
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
