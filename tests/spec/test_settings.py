"""The declared settings, from which the command line, the experiment file and the messages are made."""

import sys
from collections import Counter
from typing import Any

import pytest

from trainscale.errors import InputError
from trainscale.spec.config import AUTO
from trainscale.spec.experiment import Experiment
from trainscale.spec.groups import collect_settings
from trainscale.spec.settings import parse_duration

SETTINGS = collect_settings()


def test_an_experiment_has_a_value_for_every_setting_and_each_its_own_flags_with_the_original_ones() -> None:
    assert list(Experiment.of().to_dict()) == list(SETTINGS)
    flags = Counter(flag for setting in SETTINGS.values() for flag in setting.flags)
    assert [flag for flag, count in flags.items() if count > 1] == []
    assert {"--models", "-m", "--model", "-x", "--max-devices", "-g", "--gpus-per-host", "-b"} <= flags.keys()
    assert all(setting.help for setting in SETTINGS.values())


@pytest.mark.parametrize("key", [key for key, setting in SETTINGS.items() if setting.default not in (None, ())])
def test_the_text_of_a_default_is_read_as_that_default(key: str) -> None:
    setting = SETTINGS[key]
    assert setting.value_type.read_text(setting.value_type.format(setting.default)) == setting.default


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("1h30m5s", 5405),
        ("0.5h", 1800),
        (" 5M ", 300),
        ("1.5", 1.5),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "0s", "-5", "5 minutes", "5d", "m", "30m1h", "nan", "inf"])
def test_a_wrong_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration; valid: 90s, 5m, 1h30m"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("models", "Inceptionv3:16, Alexnet:256", ("Inceptionv3:16", "Alexnet:256")),
        ("devices", "4,1,2,2", (1, 2, 4)),
        ("steps", "1_000", 1000),
        ("precision", "BF16", ("bf16",)),
        ("precision", "bf16,FP32,bf16", ("bf16", "fp32")),
        ("batch", "4,auto,8", (4, AUTO, 8)),
        ("compile", "on,off", (True, False)),
        ("search", "on", "lists"),
        ("search", "Default", "default"),
        ("scaling", "Strong", "strong"),
        ("budget", "2m", 120.0),
    ],
)
def test_a_flags_text_becomes_a_value(key: str, text: str, value: Any) -> None:
    assert SETTINGS[key].read_text(text, "--x") == value


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("batch", "0", "--batch: '0' is not valid; valid: a whole number, 1 or more, or \"auto\""),
        ("batch", "-3", "--batch: '-3' is not valid"),
        ("batch", "many", "--batch: 'many' is not valid"),
        ("steps", "1", "--batch: '1' is not valid; valid: a whole number, 2 or more"),
        ("steps", "1.5", "--batch: '1.5' is not valid; valid: a whole number, 2 or more"),
        ("devices", "1,0", "--batch: '0' is not valid; valid: a list of whole numbers, 1 or more"),
        ("devices", "", "--batch: the list is empty"),
        ("models", " , ", "--batch: the list is empty"),
        ("precision", "bf61", "did you mean 'bf16'"),
        ("precision", "fp32,bf61", "did you mean 'bf16'"),
        ("batch", "4,0", "--batch: '0' is not valid; valid: a whole number, 1 or more"),
        ("layout", ",", "--batch: the list is empty"),
        ("search", "all", "--batch: 'all' is not valid; valid: lists (the settings that are lists) or default"),
    ],
)
def test_a_wrong_text_of_a_flag_is_refused_with_the_flag(key: str, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        SETTINGS[key].read_text(text, "--batch")
    assert message in str(caught.value)
    assert str(caught.value).startswith("--batch: ")


@pytest.mark.parametrize(
    ("key", "toml", "value"),
    [
        ("models", ["alexnet", "mnist:8"], ("alexnet", "mnist:8")),
        ("models", "alexnet,mnist:8", ("alexnet", "mnist:8")),
        ("devices", [2, 1], (1, 2)),
        ("devices", 2, (2,)),
        ("compile", True, (True,)),
        ("compile", [False, True], (False, True)),
        ("augment", True, True),
        ("augment", False, False),
        ("batch", [4, "auto"], (4, AUTO)),
        ("batch", "auto", (AUTO,)),
        ("layout", "nchw", ("nchw",)),
        ("python", {"torch": sys.executable}, (("torch", sys.executable),)),
        ("search", True, "lists"),
        ("search", False, None),
        ("search", "default", "default"),
        ("budget", 90, 90.0),
        ("budget", 1.5, 1.5),
        ("budget", "5m", 300.0),
    ],
)
def test_a_files_value_becomes_the_same_value_as_a_flags_text(key: str, toml: Any, value: Any) -> None:
    read = SETTINGS[key].read_value(toml, "a.toml")
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    ("key", "toml", "message"),
    [
        ("steps", True, "steps: True is not valid; valid: a whole number, 2 or more"),
        ("steps", "100", "steps: '100' is not valid; valid: a whole number, 2 or more"),
        ("steps", 1.5, "steps: 1.5 is not valid"),
        ("steps", [1], "steps: [1] is not valid"),
        ("steps", {"a": 1}, "steps: {'a': 1} is not valid"),
        ("compile", 1, "compile: 1 is not valid; valid: true or false"),
        ("compile", "true", "compile: 'true' is not valid; valid: true or false"),
        ("models", [1], "models: 1 is not valid; valid: a list of names"),
        ("devices", [1, True], "devices: True is not valid; valid: a list of whole numbers"),
        ("budget", False, 'budget: False is not valid; valid: a duration such as "5m"'),
        ("steps", 1, "steps: 1 is not valid; valid: a whole number, 2 or more"),
        ("budget", -5, "budget: '-5' is not a duration"),
        ("models", [], "models: the list is empty"),
        ("scaling", "weka", "did you mean 'weak'"),
    ],
)
def test_a_wrong_value_in_a_file_is_refused_with_file_and_key(key: str, toml: Any, message: str) -> None:
    with pytest.raises(InputError) as caught:
        SETTINGS[key].read_value(toml, "a.toml")
    assert str(caught.value).startswith(f"a.toml: {key}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("given", "held"), [(["a", "b"], ("a", "b")), (("a", "b"), ("a", "b")), ("module load x", ("module load x",))]
)
def test_a_list_from_python_may_be_any_sequence_or_a_single_value(given: Any, held: tuple[str, ...]) -> None:
    assert Experiment.of(setup=given).cluster.setup == held
