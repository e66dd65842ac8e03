"""Shells complete commands, flags and values: tried in the real shells."""

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from parsers import collect_parsers
from terminal import open_terminal

from trainscale import cli
from trainscale.cli.completion import NAMES, SHELLS, Completer, find_completer
from trainscale.spec.groups import collect_settings
from trainscale.worker import models
from trainscale.worker.frameworks.catalog import FRAMEWORKS, STRATEGIES

# The shell calls trainscale for every completion.
PATH = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
ENVIRONMENT = {**os.environ, "PATH": PATH, "COMP_WORDBREAKS": " \t\n\"'@><=;|&(:"}

# What is typed, and what the shell makes of it: one word is left, so it is completed, with a space behind it.
COMPLETED = {
    "trainscale rep": "trainscale report ",
    "trainscale env cre": "trainscale env create ",
    "trainscale run --until-i": "trainscale run --until-interval ",
    "trainscale run --frameworks tens": "trainscale run --frameworks tensorflow ",
    "trainscale run --frameworks=tens": "trainscale run --frameworks=tensorflow ",
    "trainscale plan -m alexnet,vgg16,resnet15": "trainscale plan -m alexnet,vgg16,resnet152 ",
    "trainscale run --models=alexnet,resnet15": "trainscale run --models=alexnet,resnet152 ",
    "trainscale run --fresh --scaling str": "trainscale run --fresh --scaling strong ",
    "trainscale best some --by effi": "trainscale best some --by efficiency ",
    "trainscale completion fi": "trainscale completion fish ",
    "trainscale env create mxn": "trainscale env create mxnet ",
}


@pytest.fixture(scope="module")
def scripts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("completion")
    for shell in SHELLS:
        with redirect_stdout(io.StringIO()) as script:
            assert cli.main(["completion", shell]) == 0
        (folder / shell).write_text(script.getvalue())
    return {shell: folder / shell for shell in SHELLS}


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """A folder with two runs and something else."""
    for name in ("runs/alexnet-1a2b3c", "runs/my run"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "run.json").write_text("{}")
    (tmp_path / "other").mkdir()
    (tmp_path / "study.toml").touch()
    return tmp_path


# ---- what is offered


def find_offer(command: str, flag: str) -> Completer:
    (action,) = (action for action in collect_parsers()[command].actions if flag in action.option_strings)
    assert action.nargs != 0
    return find_completer(command, action)


def test_every_flag_has_a_help_text() -> None:
    parsers = collect_parsers()
    assert {name.split()[0] for name in parsers} == set(cli.COMMANDS)
    assert [(name, a.option_strings) for name, parser in parsers.items() for a in parser.actions if not a.help] == []


@pytest.mark.parametrize("name", NAMES)
def test_every_list_of_names_is_where_completion_looks_for_it(name: str) -> None:
    command, _, dest = name.rpartition(" ")
    assert list(find_completer(command, argparse.Action([], dest))(prefix=""))


@pytest.mark.parametrize("command", ["run", "plan"])
def test_the_values_of_settings_are_those_of_the_code(command: str) -> None:
    for flag, names in (("--models", models.list_names()), ("--frameworks", FRAMEWORKS), ("--strategies", STRATEGIES)):
        assert list(find_offer(command, flag)(prefix="")) == list(names)
        assert list(find_offer(command, flag)(prefix="a,")) == [f"a,{name}" for name in names]
    for setting in collect_settings().values():
        for word in setting.value_type.choices:
            assert word in find_offer(command, setting.flag)(prefix="")
            setting.read_text(word, setting.flag)  # every choice is valid


@pytest.mark.parametrize(
    "command", ["report", "explain", "best", "compare", "export", "notebook", "predict", "study", "watch"]
)
def test_commands_that_read_runs_offer_runs(command: str, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(runs)
    for action in collect_parsers()[command].actions:
        if not action.option_strings:
            assert list(find_completer(command, action)(prefix="")) == ["runs/alexnet-1a2b3c", "runs/my run"]


# ---- bash

CALL = """
source "$1"; shift
COMP_LINE=$1; shift
COMP_POINT=${#COMP_LINE} COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_python_argcomplete trainscale
printf '%s\\n' "${COMPREPLY[@]}"
"""


def offered_by_bash(script: Path, line: str, folder: Path) -> list[str]:
    """What bash would show for a line. Its words are split as readline does, also at = and :."""
    words = [part for word in line.split(" ") for part in re.split(r"([=:])", word) if part or not word]
    argv = ["bash", "--norc", "-c", CALL, "bash", str(script), line, *words]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    return [line.strip() for line in done.stdout.splitlines() if line]


@pytest.mark.processes
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("trainscale ", list(cli.COMMANDS)),
        ("trainscale env ", ["create", "list", "remove"]),
        ("trainscale run --frameworks keras-", ["keras-jax", "keras-tensorflow", "keras-torch"]),
        ("trainscale run --frameworks=keras-", ["keras-jax", "keras-tensorflow", "keras-torch"]),
        ("trainscale run --strategies local,ps", ["local,ps", "local,ps-async"]),
        ("trainscale run --scaling ", ["weak", "strong"]),
        ("trainscale run --no-w", ["--no-witness"]),
        ("trainscale run --steps ", []),
        ("trainscale report ", ["runs/alexnet-1a2b3c", "runs/my\\ run"]),
        ("trainscale report --until-accuracy 0.9 runs/al", ["runs/alexnet-1a2b3c"]),
        ("trainscale report oth", ["other/"]),
        ("trainscale run stu", ["study.toml"]),
        ("trainscale run -o ru", ["runs/"]),
        ("trainscale data get ci", ["cifar10"]),
        ("trainscale compare a b --by ", ["efficiency", "speed"]),
        ("trainscale report a --format png,", ["png,png", "png,pdf", "png,svg"]),
        ("trainscale unknown ", []),
    ],
)
def test_bash_offers(line: str, offered: list[str], scripts: dict[str, Path], runs: Path) -> None:
    assert offered_by_bash(scripts["bash"], line, runs) == offered


PROMPT = "ready> "
START = {
    "bash": (["bash", "--norc", "-i"], 'PS1=\'{prompt}\'; bind -x \'"\\C-g": printf "<%s>" "$READLINE_LINE"\''),
    "zsh": (
        ["zsh", "-f", "-i"],
        "PROMPT='{prompt}'; autoload -U compinit && compinit -u -D;"
        " show() {{ print -rn -- \"<$BUFFER>\" }}; zle -N show; bindkey '^G' show",
    ),
}


@pytest.mark.processes
@pytest.mark.parametrize("shell", START)
def test_a_line_is_completed_as_it_is_typed(shell: str, scripts: dict[str, Path], runs: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here (tests/needs.sh installs it on Debian)")
    argv, start = START[shell]
    environment = {"PATH": PATH, "TERM": "dumb", "HOME": str(runs), "LC_ALL": "C.UTF-8"}
    with open_terminal(argv, runs, environment) as terminal:
        terminal.type(f"{start.format(prompt=PROMPT)}\n")
        terminal.wait_for(rf"(?m)^\W*{PROMPT}")
        terminal.type(f"source '{scripts[shell]}' && echo read''y\n")
        terminal.wait_for("ready\r?\n")
        for typed, expected in {
            **COMPLETED,
            "trainscale report runs/al": "trainscale report runs/alexnet-1a2b3c",
        }.items():
            terminal.type(f"{typed}\t\x07")  # Ctrl-G shows the line
            assert terminal.wait_for(r"<([^<>]*)>")[1].rstrip("/ ") == expected.rstrip(), typed
            terminal.type("\x15")  # Ctrl-U removes it


# ---- fish


@pytest.mark.processes
@pytest.mark.skipif(shutil.which("fish") is None, reason="there is no fish here (tests/needs.sh installs it on Debian)")
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        *((typed, completed.split()[-1].split("=")[-1]) for typed, completed in COMPLETED.items()),
        ("trainscale report runs/al", "runs/alexnet-1a2b3c"),
    ],
)
def test_fish_offers(line: str, expected: str, scripts: dict[str, Path], runs: Path) -> None:
    argv = ["fish", "--no-config", "-c", 'source $argv[1]; complete -C "$argv[2]"', str(scripts["fish"]), line]
    done = subprocess.run(argv, cwd=runs, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert done.stderr == ""
    offered = [text.partition("\t")[0] for text in done.stdout.splitlines()]
    assert [text.partition("=")[2] if text.startswith("--") and "=" in text else text for text in offered] == [expected]
