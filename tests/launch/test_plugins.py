"""A third party's package: the one in examples/ is installed with pip and does what the docs show; one that is broken
in every way is listed with its errors, and stops nothing.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import Command, trainscale
from packages import EXAMPLE, install, use
from processes import program, until
from small_sets import write_cifar10

pytestmark = pytest.mark.processes

DOCS = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
OWN_PACKAGE = DOCS.partition("## From your own package")[2].partition("\n## ")[0]
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^\$ (.+)$", OWN_PACKAGE, re.MULTILINE)]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(EXAMPLE, tmp_path_factory.mktemp("example"))


@pytest.fixture
def with_example(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, example)


# ---- the example


def test_its_model_and_its_framework_are_listed_with_counts_and_strategies(with_example: None, tmp_path: Path) -> None:
    done = trainscale(tmp_path, "models")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^tiny +3×32² +10 +634 ", done.stdout, re.MULTILINE)
    assert "cannot be used" not in done.stdout
    done = trainscale(tmp_path, "frameworks")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^numpy +yes +– +– +– +– +yes", done.stdout, re.MULTILINE)
    assert "trainscale_example.frameworks:NUMPY" in done.stdout
    assert "cannot be used" not in done.stdout


def test_listing_it_imports_no_framework(with_example: None, tmp_path: Path) -> None:
    script = "import sys, trainscale.cli as cli; cli.main(['frameworks']); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter with PyTorch in which the example is not installed: a framework's environment is like this."""
    path = tmp_path / "bare-python"
    path.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {shlex.quote(sys.executable)} "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.framework
def test_the_command_in_the_docs_compares_its_framework_with_pytorch_on_its_model_by_its_launcher(
    with_example: None, bare_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # so that parity is computed, not remembered
    (argv,) = (argv for argv in COMMANDS if argv[0] == "run")
    assert {"numpy,torch", "tiny:8", "nice"} <= set(argv)
    command = Command(tmp_path, *argv, "-o", "out", "--python", f"torch={bare_python}")
    wanted = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    seen: set[int | None] = set()

    def a_nice_rank_or_the_end() -> bool:
        seen.update(niceness(pid) for pid in command.ranks())
        return wanted in seen or command.popen.poll() is not None

    until(a_nice_rank_or_the_end, "a rank of low priority", 240)
    done = command.finish()
    assert done.returncode == 0, done.stderr
    assert "parity: all frameworks train the same tiny" in done.stdout
    series = json.loads((tmp_path / "out" / "results.json").read_text())["series"]
    configs = [line["config"] for line in series]
    assert [(config["framework"], config["model"]) for config in configs] == [("numpy", "tiny"), ("torch", "tiny")]
    assert all(line["points"][0]["status"] == "ok" for line in series)
    verdicts = json.loads((tmp_path / "out" / "parity.json").read_text())["verdicts"]
    assert [(verdict["framework"], verdict["state"]) for verdict in verdicts] == [
        ("numpy", "proven"),
        ("torch", "proven"),
    ]
    assert all(verdict["checks"] for verdict in verdicts)
    assert wanted in seen
    assert command.left() == []


SHOW = "import os; print('niceness', os.getpriority(os.PRIO_PROCESS, 0))"


def show_niceness(folder: Path, *arguments: str) -> int:
    done = trainscale(folder, "launch", "-n", "1", "--launcher", "nice", *arguments, sys.executable, "-c", SHOW)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"niceness (-?\d+)", done.stdout)[0])


def test_the_setting_of_its_launcher_has_a_group_in_the_help(with_example: None, tmp_path: Path) -> None:
    for command in ("run", "plan", "check", "launch"):
        text = trainscale(tmp_path, command, "--help").stdout
        group = text.partition("\nnice:\n")[2].partition("\n\n")[0]
        assert "--niceness" in group
        assert "(default: 10)" in " ".join(group.split())


def test_the_setting_of_its_launcher_reaches_the_launcher(with_example: None, tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert show_niceness(tmp_path) == min(19, own + 10)
    assert show_niceness(tmp_path, "--niceness", "7") == min(19, own + 7)
    done = trainscale(tmp_path, "launch", "-n", "1", "--launcher", "nice", "--niceness", "much", "true")
    assert done.returncode == 2
    assert "--niceness: 'much' is not valid" in done.stderr


EXPERIMENT = """models = ["tiny:4"]
frameworks = ["numpy"]
strategies = ["local"]
launcher = "nice"
devices = [1]
steps = 2
warmup = 2
repeats = 1
"""


def test_the_setting_of_its_launcher_may_stand_in_an_experiment_file(
    with_example: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiment.toml").write_text(f"{EXPERIMENT}[nice]\nniceness = 7\n")
    program(tmp_path, "nice", f'printf "%s\\n" "$*" >> "{tmp_path}/arguments"\nexec {shutil.which("nice")} "$@"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done = trainscale(tmp_path, "run", "experiment.toml", "-o", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    commands = (tmp_path / "arguments").read_text().splitlines()
    assert any(command.endswith(" keeper") for command in commands)
    assert all(command.startswith("-n 7 ") for command in commands)


READ = """
import sys
from pathlib import Path
from trainscale.launch import plugins
from trainscale.launch.launchers.target import list_launcher_groups
from trainscale.spec.experiment import read_experiment_file
plugins.load_plugins()
for name in sys.argv[1:]:
    print(read_experiment_file(Path(name), list_launcher_groups()))
"""


def test_the_setting_of_its_launcher_may_stand_in_a_table_or_beside_the_others(
    with_example: None, tmp_path: Path
) -> None:
    for name, text in {"table": "[nice]\nniceness = 7\n", "flat": "niceness = 7\n", "other": "niceness = 8\n"}.items():
        (tmp_path / f"{name}.toml").write_text(EXPERIMENT + text)
    argv = [sys.executable, "-c", READ, "table.toml", "flat.toml", "other.toml"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path)
    in_table, flat, other = done.stdout.splitlines()
    assert in_table == flat != other
    assert "niceness" in flat


def niceness(pid: int) -> int | None:
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except ProcessLookupError:
        return None


@pytest.mark.framework
def test_its_framework_trains_on_two_devices_that_exchange_nothing(with_example: None, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    done = trainscale(
        tmp_path, "run", "--frameworks", "numpy", "-m", "tiny:4", "--strategies", "independent",
        "--devices", "2", "--device", "cpu", "--cores-per-device", "1", "--warmup", "2", "--steps", "3",
        "--repeats", "1", "-o", "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    trials = [line for line in lines if "ranks" in line]
    assert [len(trial["ranks"]) for trial in trials] == [2]


@pytest.mark.framework
def test_its_framework_learns_from_real_images(with_example: None, tmp_path: Path) -> None:
    images = write_cifar10(tmp_path / "images")
    done = trainscale(
        tmp_path, "run", "--frameworks", "numpy", "-m", "tiny:20", "--data", f"cifar10:{images}", "--epochs", "6",
        "--learning-rate", "0.05", "--devices", "1", "--device", "cpu", "--strategies", "local", "-o", "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [json.loads(line) for line in (tmp_path / "out" / "trials.jsonl").read_text().splitlines()]
    (trial,) = (line for line in lines if "ranks" in line)
    assert [epoch["valid_samples"] for epoch in trial["epochs"]] == [103] * 6
    assert trial["epochs"][5]["train_loss"] < trial["epochs"][0]["train_loss"]
    assert trial["epochs"][5]["valid_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--strategies", "allreduce"], "numpy has no strategy 'allreduce'; it has local, independent"),
        (["--layout", "nhwc"], "numpy has no layout 'nhwc' on cpu; it has nchw"),
        (["-m", "tinny"], "did you mean 'tiny'"),
        (["--devices", "1", "--launcher", "nic"], "unknown launcher 'nic'; did you mean 'nice'?"),
    ],
)
def test_what_it_does_not_offer_is_refused_like_any_other(
    argv: list[str], message: str, with_example: None, tmp_path: Path
) -> None:
    model = [] if "-m" in argv else ["-m", "tiny"]
    done = trainscale(tmp_path, "run", "--frameworks", "numpy", *model, "--device", "cpu", *argv)
    assert done.returncode == 2
    assert message in done.stderr


# ---- what the docs show of it


def test_the_docs_show_the_entry_points_and_the_code_as_they_are_and_the_commands_that_are_tested_here() -> None:
    assert [argv[0] for argv in COMMANDS] == ["install", "models", "frameworks", "run"]
    (shown,) = re.findall(r"^```ini\n(.*?)^```", OWN_PACKAGE, re.MULTILINE | re.DOTALL)
    assert "trainscale.launchers" in shown
    assert shown.strip() in (EXAMPLE / "pyproject.toml").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", OWN_PACKAGE, re.MULTILINE | re.DOTALL)
    code = "\n".join(path.read_text() for path in EXAMPLE.rglob("*.py"))
    assert len(blocks) >= 3
    for block in blocks:
        for part in block.strip().split("\n\n\n"):
            assert part in code
