"""Bad input: each is one clear message, exit 2, nothing written. The real command, in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from command import trainscale

from trainscale import cli
from trainscale.cli.parser import Parser
from trainscale.record.journal import open_journal
from trainscale.record.run import RunInfo


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


# ---- the list, through `run`


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--model", "alexnte"], "unknown model 'alexnte'; did you mean 'alexnet'"),
        (["--models", "mnist:"], "models: 'mnist:' ends with a colon; valid: NAME, NAME:BATCH or NAME:auto"),
        (["--framework", "torhc"], "unknown framework 'torhc'; did you mean 'torch'?"),
        (["--strategy", "alreduce"], "unknown strategy 'alreduce'; did you mean 'allreduce'"),
        (["--stepz", "5"], "unknown flag '--stepz'; did you mean '--steps'"),
        (["--max-device=4"], "unknown flag '--max-device'; did you mean '--max-devices'"),
        (["--models=--"], "--models: '--' is not a value"),
        (["--devices=--"], "--devices: '--' is not a value"),
        (["--"], "unexpected argument '--'"),
        (["--strategies", "ps:1" + 30 * "0"], f"strategy 'ps:1{30 * '0'}': too many servers; valid: 1 … 65536"),
        (["--steps", 5000 * "9"], "… (5002 characters) is not valid; valid: a whole number, 2 or more"),
        (["-b", "0"], "--batch: '0' is not valid; valid: a whole number, 1 or more"),
        (["-b", "-1"], "--batch: '-1' is not valid; valid: a whole number, 1 or more"),
        (["--models", "alexnet:0"], "models: 'alexnet:0': batch 0 is too small; valid: 1 or more"),
        (["-x", "100000"], "max devices 100000: this machine has "),
        (["-x", "100001"], "valid: 1 … "),
        (["--devices", "1,100000"], "devices 100000: this machine has "),
        (["-g", "100000"], "devices per host 100000: this machine has "),
        (["--cores-per-device", "100000"], "cores per device 100000: this machine has "),
        (["--strategy", "allreduce:2"], "strategy 'allreduce:2': only ps and ps-async take a number of servers"),
        (["--servers", "2"], "servers 2: no strategy here has servers; valid with ps, ps-async"),
        (["--device", "cpu", "--precision", "tf32"], "precision 'tf32' needs an NVIDIA GPU"),
        (["--precision", "fp16", "--strategy", "ps"], "strategy 'ps' has no precision 'fp16'"),
        (["--scaling", "strong", "-m", "mnist:7", "--devices", "1,2", "--device", "cpu"], "strong scaling: a global"),
        (["--image-size", "10", "-m", "inceptionv3"], "needs at least 75"),
        (["--budget", "soon"], "--budget: 'soon' is not a duration; valid: 90s, 5m, 1h30m"),
        (["--budget", "5m", "--repeats", "3"], "budget and repeats exclude each other"),
        (["--devices", "1", "-x", "1"], "devices and max devices exclude each other"),
        (["--models", "mnist,mnist"], "requested twice"),
        (["--precision", "fp8"], "--precision: unknown value 'fp8'; did you mean"),
        (["--steps", "5", "--steps", "6"], "--steps: given 2 times, with 5 and 6; valid: once"),
        (["-x"], "-x/--max-devices: expected one argument"),
        (["a.toml", "b.toml"], "unexpected argument 'b.toml'"),
        (["missing.toml"], "missing.toml: cannot read this experiment file: No such file or directory"),
        (["--models", ""], "--models: the list is empty"),
        (["--models", "mnist:--1"], "mnist:--1"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_bad_input_to_run_is_one_message_and_nothing_else(argv: list[str], message: str, tmp_path: Path) -> None:
    assert message in refusal("run", *argv, cwd=tmp_path)


@pytest.mark.skipif(any(Path("/dev").glob("nvidia[0-9]*")), reason="this machine has GPUs")
def test_cuda_without_a_gpu_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert "device 'cuda': this machine has no GPU (" in refusal("run", "--device", "cuda", cwd=tmp_path)


# ---- experiment files


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("steps = 20\nmodles = ['mnist']\n", "bad.toml: unknown key 'modles'; did you mean 'models'"),
        ("\n\nsteps = 'many'\n", "bad.toml: steps: 'many' is not valid; valid: a whole number, 2 or more"),
        ("compile = 1\n", "bad.toml: compile: 1 is not valid; valid: true or false"),
        ("batch = 0\n", "bad.toml: batch: '0' is not valid; valid: a whole number, 1 or more"),
        ("steps = \n", "bad.toml: not TOML: "),
        ("models = ['alexnte']\n", "unknown model 'alexnte'; did you mean 'alexnet'"),
    ],
)
@pytest.mark.parametrize("command", ["run", "plan"])
def test_a_wrong_experiment_file_is_named_with_line_and_key(
    command: str, text: str, message: str, tmp_path: Path
) -> None:
    (tmp_path / "bad.toml").write_text(text)
    assert message in refusal(command, "bad.toml", cwd=tmp_path)


# ---- output directories


def test_an_output_directory_of_another_run_is_refused_with_the_difference(tmp_path: Path) -> None:
    open_journal(tmp_path / "out", RunInfo({"warmup": 10, "steps": 7, "seed": 1337, "repeats": 5})).close()
    message = refusal("run", "-m", "mnist", "-o", "out", cwd=tmp_path)
    assert "output out: this directory holds another run, which differs in" in message
    assert "steps (there 7, here 100)" in message


def test_an_output_directory_of_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.tex").write_text("precious")
    message = refusal("run", "-m", "mnist", "-o", "out", cwd=tmp_path)
    assert "output out: this directory holds other files; name a new one" in message


@pytest.mark.parametrize("argv", [[], ["--fresh"]], ids=["", "fresh"])
def test_an_output_that_is_a_file_is_refused(argv: list[str], tmp_path: Path) -> None:
    (tmp_path / "out").write_text("precious")
    assert "output out: this is a file, not a directory" in refusal("run", "-o", "out", *argv, cwd=tmp_path)


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


def test_plan_refuses_what_run_refuses(tmp_path: Path) -> None:
    assert "max devices 100000" in refusal("plan", "-x", "100000", cwd=tmp_path)


@pytest.mark.parametrize("kind", ["missing", "empty", "file"])
def test_a_report_of_a_directory_without_a_run_is_refused(kind: str, tmp_path: Path) -> None:
    if kind == "empty":
        (tmp_path / "there").mkdir()
    elif kind == "file":
        (tmp_path / "there").write_text("precious")
    message = refusal("report", "there", cwd=tmp_path)
    assert message.startswith("there")
    if kind != "file":
        assert message.startswith("there: no run was recorded here (there is no run.json)")


@pytest.mark.parametrize("argv", [["--image-size", "0"], ["--classes", "1"], ["--classes", "ten"]])
def test_models_refuses_wrong_sizes(argv: list[str], tmp_path: Path) -> None:
    assert f"{argv[0]}: " in refusal("models", *argv, cwd=tmp_path)


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
