"""Flags that every command has or may lack, and settings that are asked of the machine or of a framework."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command import trainscale

from trainscale import cli
from trainscale.cli.parser import Parser, add_experiment, read_experiment


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has GPUs")
def test_cuda_without_a_gpu_is_refused_with_the_reason(refused: Callable[..., str]) -> None:
    assert "device 'cuda': this machine has no GPU (" in refused("run", "--device", "cuda")


@pytest.mark.framework
def test_a_network_that_does_not_exist_is_refused_before_anything_is_written(refused: Callable[..., str]) -> None:
    message = refused("run", "--framework", "Torch", "--model", "no_such_package.nets:build:4")
    assert "model 'no_such_package.nets:build' cannot be built: " in message
    assert "No module named 'no_such_package'" in message


@pytest.mark.parametrize("command", sorted({*cli.COMMANDS} - {"run"}))
def test_every_command_refuses_a_flag_it_does_not_have(command: str, refused: Callable[..., str]) -> None:
    names = ("report", "best", "explain", "export", "notebook", "predict", "study", "watch")
    readers = {name: ["somewhere"] for name in names}
    argv = {**readers, "compare": ["one", "other"], "completion": ["bash"], "launch": ["-n", "2"]}.get(command, [])
    assert "unknown flag '--debgu'; did you mean '--debug'" in refused(command, *argv, "--debgu")


def test_debug_shows_the_traceback_and_keeps_the_exit_code(tmp_path: Path) -> None:
    done = trainscale(tmp_path, "run", "--batch", "0", "--debug")
    assert "Traceback" in done.stderr
    assert "--batch: '0' is not valid" in done.stderr
    assert done.returncode == 2


def test_a_debug_flag_after_a_double_dash_belongs_to_the_other_program() -> None:
    for argv, is_wanted in ((["--debug", "--", "cmd", "--debug"], True), (["--", "cmd", "--debug"], False)):
        parser = Parser("cluster ssh", "Log in.")
        parser.add_argument("command", nargs="*")
        cli.Debug.is_wanted = False
        assert parser.read(argv).command == ["cmd", "--debug"]
        assert cli.Debug.is_wanted is is_wanted


# ---- flags that may stand alone, before an experiment file too


def values(*argv: str) -> dict[str, Any]:
    parser = Parser("run", "")
    add_experiment(parser)
    options = parser.read(list(argv))
    return {"file": options.file, **read_experiment(options).to_dict()} if options.file is None else vars(options)


@pytest.mark.parametrize(
    ("argv", "compile_values"),
    [
        ([], None),
        (["--compile"], (True,)),
        (["--no-compile"], (False,)),
        (["--compile", "on,off"], (True, False)),
        (["--compile=off,on"], (False, True)),
        (["--compile", "--no-compile"], (True, False)),
        (["--compile", "--steps", "5"], (True,)),
    ],
)
def test_compile_is_a_switch_or_a_list(argv: list[str], compile_values: tuple[bool, ...] | None) -> None:
    assert values(*argv)["compile"] == compile_values


@pytest.mark.parametrize(
    ("argv", "search"),
    [([], None), (["--search"], "lists"), (["--search", "default"], "default"), (["--search", "-b", "4,8"], "lists")],
)
def test_search_may_stand_alone(argv: list[str], search: str | None) -> None:
    assert values(*argv)["search"] == search


@pytest.mark.parametrize("flag", ["--search", "--compile"])
def test_what_follows_a_bare_flag_may_be_the_experiment_file(flag: str) -> None:
    assert values(flag, "my.toml")["file"] == Path("my.toml")
