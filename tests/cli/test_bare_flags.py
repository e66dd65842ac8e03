"""Flags that may stand alone, before an experiment file too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainscale.cli.parser import Parser, add_experiment, read_experiment
from trainscale.errors import InputError


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


def test_a_wrong_value_after_an_equals_sign_is_refused() -> None:
    with pytest.raises(InputError, match=r"--search: 'all' is not valid; valid: lists .* or default"):
        values("--search=all")
