"""Measuring from Python: arguments mean what the keys of an experiment file mean, and a real run."""

import sys
from pathlib import Path

import pytest

import trainscale as ts
from trainscale.cli.parser import Parser, add_experiment, read_experiment
from trainscale.cli.run import _format_flags
from trainscale.runs import RunInterrupted
from trainscale.spec.experiment import make_experiment


def experiment_of(flags: list[str]) -> object:
    parser = Parser("run", "")
    add_experiment(parser)
    return read_experiment(parser.read(flags))


@pytest.mark.parametrize(
    ("settings", "toml"),
    [
        ({"models": ["resnet50:8"], "devices": [1, 2]}, 'models = ["resnet50:8"]\ndevices = [1, 2]'),
        ({"models": "alexnet", "batch": (8, "auto")}, 'models = "alexnet"\nbatch = [8, "auto"]'),
        ({"compile": True, "parity": False}, "compile = true\nparity = false"),
        ({"compile": [True, False], "search": True}, "compile = [true, false]\nsearch = true"),
        ({"budget": "5m", "steps": 7}, 'budget = "5m"\nsteps = 7'),
        ({"until_interval": 0.01, "explain": True}, "until_interval = 0.01\nexplain = true"),
        ({"python": {"torch": sys.executable}}, f'python = {{ torch = "{sys.executable}" }}'),
        ({"setup": ["module load a,b", "x=1"]}, 'setup = ["module load a,b", "x=1"]'),
        ({"setup": ["a", "b"], "sbatch": "--x"}, 'setup = ["a", "b"]\nsbatch = "--x"'),
        ({"data": "imagefolder:/path/to/it", "momentum": 0.8}, 'data = "imagefolder:/path/to/it"\nmomentum = 0.8'),
    ],
)
def test_settings_mean_what_they_mean_in_an_experiment_file(
    settings: dict[str, object], toml: str, tmp_path: Path
) -> None:
    (tmp_path / "experiment.toml").write_text(toml)
    from_file = make_experiment({}, tmp_path / "experiment.toml")
    assert experiment_of(_format_flags(settings)) == from_file


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"modles": ["x"]}, r"run\(\): unknown setting 'modles'; did you mean 'models'"),
        ({"steps": "many"}, r"run\(\): steps: 'many' is not valid; valid: a whole number, 2 or more"),
        ({"steps": 0}, r"run\(\): steps: 0 is not valid"),
        ({"steps": True}, "steps: True is not valid"),
        ({"devices": [1, "two"]}, "devices: 'two' is not valid; valid: a list of whole numbers"),
        ({"budget": "5m", "repeats": 3}, "budget and repeats exclude each other"),
        ({"models": ["no-such-net:8"]}, "unknown model 'no-such-net'"),
    ],
)
def test_a_wrong_setting_is_an_input_error_before_anything_starts(
    settings: dict[str, object], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ts.InputError, match=message):
        ts.run(**settings)  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def interrupt(*_: object, **__: object) -> None:
    raise RunInterrupted


def test_an_interrupted_run_raises_keyboard_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainscale.cli.run.measure", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ts.run(models="mnist")


def test_a_run_that_was_submitted_names_what_to_load(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainscale.cli.submit.submit_run", lambda *_: 0)
    monkeypatch.setattr("trainscale.cli.run.should_submit", lambda _: True)
    with pytest.raises(ts.TrainscaleError, match="was submitted to Slurm; load its directory"):
        ts.run(models="mnist", launcher="slurm")


@pytest.mark.framework
@pytest.mark.usefixtures("forked_ranks")
def test_a_run_is_measured_and_the_same_call_again_measures_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {"models": ["mnist:8"], "devices": [1, 2], "warmup": 2, "steps": 5, "repeats": 1}
    run = ts.run(**settings, quiet=True)  # type: ignore[arg-type]
    assert capfd.readouterr().out == ""
    assert [(point.devices, point.status) for point in run.points] == [(1, "ok"), (2, "ok")]
    assert run.provenance["command"] == "trainscale run --models=mnist:8 --devices=1,2 --warmup=2 --steps=5 --repeats=1"
    journal = (tmp_path / run.directory / "trials.jsonl").read_bytes()
    assert ts.run(**settings).directory == run.directory  # type: ignore[arg-type]
    assert "all 2 trials are in the journal already" in capfd.readouterr().out
    assert (tmp_path / run.directory / "trials.jsonl").read_bytes() == journal
