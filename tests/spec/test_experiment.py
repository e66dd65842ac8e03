"""An experiment from flags and a TOML file."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainscale.errors import InputError
from trainscale.spec.experiment import Experiment, make, read_file


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str | bytes) -> Path:
        path = tmp_path / "experiment.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_file(path)
    return str(caught.value)


def test_nothing_asked_for_is_the_default_experiment() -> None:
    assert make({}) == Experiment()


def test_a_file_gives_settings_and_keys_may_have_hyphens(write) -> None:
    path = write('models = ["mnist:8"]\nmax-devices = 2\nstall_timeout = "10s"\n')
    assert make({}, path) == Experiment(models=("mnist:8",), max_devices=2, stall_timeout=10.0)


def test_flags_win_over_the_file_and_the_file_over_the_defaults(write) -> None:
    path = write("steps = 20\nwarmup = 5\n")
    made = make({"steps": 30}, path)
    assert (made.steps, made.warmup, made.repeats) == (30, 5, 5)


def test_the_file_that_make_run_uses_is_read() -> None:
    example = Path(__file__).parents[2] / "examples" / "this_machine.toml"
    made = make({}, example)
    assert made.models == ("alexnet", "inceptionv3")
    assert made.budget is not None


def test_an_unknown_key_is_named_with_file_line_and_the_nearest(write) -> None:
    path = write("# a comment\nsteps = 20\n\nmodles = ['mnist']\n")
    message = refusal(path)
    assert message.startswith(f"{path}:4: unknown key 'modles'; did you mean 'models'")
    assert "valid: models, frameworks" in message


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("steps = 3\n[care]\ntimeout = 5\n", 2),
        ("steps = 3\ncare.timeout = 5\n", 2),
        ('steps = 3\n  "care"  = 5\n', 2),
        ("steps = 3\n[[care]]\na = 1\n", 2),
        ("# care = 1 is not a key\n\ncare = 5\n", 3),
    ],
)
def test_the_line_of_an_unknown_key_is_found_in_every_spelling(write, text: str, line: int) -> None:
    path = write(text)
    assert refusal(path).startswith(f"{path}:{line}: unknown key 'care'")


def test_a_wrong_type_is_named_with_file_line_and_key(write) -> None:
    path = write("steps = 20\nwarmup = true\n")
    assert refusal(path) == f"{path}:2: warmup must be a whole number, not true or false (True)"


def test_a_file_that_is_not_toml_is_named_with_its_line(write) -> None:
    path = write("steps = 20\nwarmup = \n")
    message = refusal(path)
    assert message.startswith(f"{path}: not TOML: ")
    assert "line 2" in message


def test_a_file_that_is_not_text_is_refused(write) -> None:
    path = write(b"steps = \xff\xfe\n")
    assert refusal(path) == f"{path}: this experiment file is not UTF-8 text"


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "none.toml"
    assert refusal(path) == f"{path}: cannot read this experiment file: No such file or directory"


def test_a_directory_is_no_experiment_file(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"{tmp_path}: cannot read this experiment file: Is a directory"


def test_budget_and_repeats_exclude_each_other() -> None:
    with pytest.raises(InputError, match="budget and repeats exclude each other"):
        make({"budget": 60.0, "repeats": 3})


def test_a_flag_wins_over_what_it_excludes_in_the_file(write) -> None:
    by_budget = make({"budget": 60.0}, write("repeats = 3\ndevices = [1, 2]\n"))
    assert (by_budget.budget, by_budget.repeats, by_budget.devices) == (60.0, Experiment().repeats, (1, 2))
    by_repeats = make({"repeats": 3, "max_devices": 4}, write('budget = "5m"\ndevices = [1, 2]\n'))
    assert (by_repeats.budget, by_repeats.repeats, by_repeats.devices) == (None, 3, None)


def test_devices_and_max_devices_exclude_each_other() -> None:
    with pytest.raises(InputError, match="devices and max devices exclude each other"):
        make({"devices": (1, 2), "max_devices": 2})
