"""Bad input: each is one clear message, exit 2, nothing written. The real command, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import trainscale

from trainscale import cli
from trainscale.cli.parser import Parser


def contents(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes() if path.is_file() else b"" for path in directory.rglob("*")
    }


def refusal(*argv: str, cwd: Path) -> str:
    """What the command says on standard error, having made sure that it was all it did."""
    before = contents(cwd)
    done = trainscale(cwd, *argv)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert contents(cwd) == before
    assert done.stderr.startswith("trainscale: ")
    assert done.stderr.count("trainscale: ") == 1  # one message
    return done.stderr.removeprefix("trainscale: ")


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has GPUs")
def test_cuda_without_a_gpu_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert "device 'cuda': this machine has no GPU (" in refusal("run", "--device", "cuda", cwd=tmp_path)


# ---- asked of the framework itself: an interpreter starts and imports it


@pytest.mark.framework
def test_a_network_that_does_not_exist_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    message = refusal("run", "--model", "no_such_package.nets:build:4", cwd=tmp_path)
    assert "model 'no_such_package.nets:build' cannot be built: " in message
    assert "no_such_package" in message


@pytest.mark.framework
def test_the_case_of_a_frameworks_name_does_not_matter(tmp_path: Path) -> None:
    message = refusal("run", "--framework", "Torch", "--model", "no_such_package.nets:build:4", cwd=tmp_path)
    assert "model 'no_such_package.nets:build' cannot be built: " in message


# ---- other commands


def test_an_unknown_command_names_the_nearest_and_where_all_are(tmp_path: Path) -> None:
    message = refusal("rnu", cwd=tmp_path)
    assert message.startswith("unknown command 'rnu'; did you mean 'run'")
    assert message.endswith("\n  see: trainscale --help\n")


@pytest.mark.parametrize("command", sorted({*cli.COMMANDS} - {"run"}))
def test_every_command_refuses_a_flag_it_does_not_have(command: str, tmp_path: Path) -> None:
    names = ("report", "best", "explain", "export", "notebook", "predict", "study", "watch")
    readers = {name: ["somewhere"] for name in names}
    argv = {**readers, "compare": ["one", "other"], "completion": ["bash"], "launch": ["-n", "2"]}.get(command, [])
    assert "unknown flag '--debgu'; did you mean '--debug'" in refusal(command, *argv, "--debgu", cwd=tmp_path)


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
