"""The commands that only tell: help, version, models, frameworks, plan, check."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import trainscale as run_command
from published_counts import PARAMETERS

import trainscale
from trainscale import cli
from trainscale.spec.groups import GROUPS, collect_settings
from trainscale.worker.frameworks.catalog import FRAMEWORKS, STRATEGIES


def output(*argv: str, cwd: Path, columns: int = 200) -> str:
    done = run_command(cwd, *argv, columns=columns)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert list(cwd.iterdir()) == [], "a command that only tells wrote something"
    return done.stdout


# ---- help and version


@pytest.mark.parametrize("argv", [[], ["-h"], ["--help"], ["help"]])
def test_help_names_every_command_and_the_exit_codes(argv: list[str], tmp_path: Path) -> None:
    text = output(*argv, cwd=tmp_path)
    for command in cli.COMMANDS:
        assert re.search(rf"^  {command} ", text, re.MULTILINE), command
    assert "Exit codes: 0 done, 1 measured but something failed, 2 wrong input, 130 interrupted." in text


def test_run_help_names_every_setting_and_no_line_is_wider_than_the_terminal(tmp_path: Path) -> None:
    text = output("run", "--help", cwd=tmp_path, columns=80)
    for field in collect_settings().values():
        for flag in (field.key,) if field.is_rare else field.flags:
            assert re.search(rf"(^|[\s,]){re.escape(flag)}\b", text), flag
    for flag in ("--output", "--fresh", "--retry-failed", "--debug"):
        assert flag in text
    assert max(map(len, text.splitlines())) <= 80


def test_run_help_begins_with_what_most_users_set_and_ends_with_what_few_do(tmp_path: Path) -> None:
    text = output("run", "--help", cwd=tmp_path)
    order = ["--models", "--repeats", "--max-devices", "--hosts", "--epochs", "--queue", "--debug", "Rarely set"]
    assert sorted(order, key=lambda name: text.index(f"{name} " if name[0] == "-" else name)) == order


def test_run_help_describes_what_is_usually_set_with_its_default(tmp_path: Path) -> None:
    text = " ".join(output("run", "--help", cwd=tmp_path, columns=200).split())
    for setting in collect_settings().values():
        assert setting.is_rare or f"{' '.join(setting.help.split())}" in text, setting.key
    assert "learning rate of SGD (default: set by the network with --epochs, else 0.001)" in text
    for group in GROUPS:
        assert f"{group.title}: " in text


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_its_own_help(command: str, tmp_path: Path) -> None:
    assert output(command, "--help", cwd=tmp_path).startswith(f"usage: trainscale {command}")


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_the_version_is_told(flag: str, tmp_path: Path) -> None:
    assert output(flag, cwd=tmp_path) == f"trainscale {trainscale.__version__}\n"


# Libraries that compute, decode or draw.
HEAVY = {"altair", "boto3", "jinja2", "msgspec", "numpy", "pandas", "platformdirs", "scipy", "torch", "vl_convert"}


@pytest.mark.processes
@pytest.mark.parametrize("argv", [(), ("--help",), ("--version",), ("run", "--help"), ("report", "--help")])
def test_help_imports_no_heavy_library(argv: tuple[str, ...]) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "trainscale", *argv]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert "trainscale" in imported
    assert not imported & HEAVY
    assert "report" in argv or "rich" not in imported


# ---- models and frameworks


@pytest.mark.parametrize("columns", [80, 200])
def test_models_are_listed_with_their_exact_parameters_at_every_width(columns: int, tmp_path: Path) -> None:
    text = output("models", cwd=tmp_path, columns=columns)
    assert max(map(len, text.splitlines())) <= columns
    for name, parameters in PARAMETERS.items():
        assert re.search(rf"^{name} .* {parameters:,} ", text, re.MULTILINE), name


def test_models_can_be_listed_at_other_sizes(tmp_path: Path) -> None:
    text = output("models", "--image-size", "32", "--classes", "10", cwd=tmp_path)
    rows = {line.split()[0]: line for line in text.splitlines() if line.strip()}
    assert "11,181,642" in rows["resnet18"]  # 1000 → 10 classes: 990 · 513 fewer
    assert "too small" in rows["inceptionv3"] or "larger image" in rows["inceptionv3"]


def test_frameworks_are_listed_with_the_strategies_they_offer(tmp_path: Path) -> None:
    lines = output("frameworks", cwd=tmp_path).splitlines()
    assert lines[0].split() == ["framework", *STRATEGIES]
    assert lines[1].split() == ["torch", *["yes"] * len(STRATEGIES)]
    assert lines[len(FRAMEWORKS)].split() == ["mxnet", "yes", "–", "yes", "yes", "–", "yes"]
    for framework in FRAMEWORKS.values():
        assert any(line.startswith(f"{framework.name} ({framework.title})") for line in lines)
        for engine in framework.engines.values():
            assert any(engine.split()[-1] in line for line in lines)
    assert any("torchvision:NAME" in line for line in lines)


# ---- plan


def test_a_plan_until_an_interval_says_how_long_its_first_trials_take(tmp_path: Path) -> None:
    argv = ("plan", "-m", "alexnet:8", "--device", "cpu", "--devices", "1")
    whole, first = (output(*argv, *rule, cwd=tmp_path) for rule in (("--repeats", "4"), ("--until-interval", "1%")))
    assert "at most 10 + 100 steps a trial\nthe first 4 trials take very roughly " in first
    seconds = [int(re.search(r" ~(\d+) s ", text)[1]) for text in (whole, first)]
    assert seconds[1] < seconds[0] / 2  # windows of 20 steps


def test_the_same_experiment_has_the_same_directory_however_it_is_spelled(tmp_path: Path) -> None:
    def directory(*argv: str) -> str:
        text = output("plan", "--device", "cpu", "--devices", "1", *argv, cwd=tmp_path)
        return text.splitlines()[-1]

    assert directory("-m", "Alexnet:8") == directory("--models", "alex-net", "-b", "8", "--timeout", "1h")
    assert directory("-m", "alexnet:8") != directory("-m", "alexnet:16")


def test_a_plan_shows_strong_scaling_with_its_split_batch(tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    text = output(
        "plan", "-m", "mnist:32", "--device", "cpu", "--cores-per-device", "1", "-x", "2", "--scaling", "strong",
        cwd=tmp_path,
    )  # fmt: skip
    assert re.search(r"mnist +allreduce +1 +32 +32 ", text)
    assert re.search(r"mnist +allreduce +2 +16 +32 ", text)


# ---- check


@pytest.mark.framework
def test_check_tells_cores_ports_load_and_the_framework(tmp_path: Path) -> None:
    text = output("check", cwd=tmp_path)
    rows = {line[:18].strip(): line[18:] for line in text.splitlines()}
    assert re.search(r"\d+ usable cores?", rows["processor"])
    assert "GiB free" in rows["memory"]
    assert re.search(r"free on loopback \(lo\), for example \d+", rows["ports"])
    assert "runnable" in rows["load"]
    assert re.match(r"\d+\.\d+\S*, (CPU only|sees \d+ GPUs?), ", rows["torch"])
    assert sys.executable in text
