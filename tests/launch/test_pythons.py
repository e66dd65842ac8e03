"""Which interpreter runs which framework."""

import sys
from pathlib import Path

import pytest
from environments import fabricate

from trainscale.launch import hosts
from trainscale.launch.hosts import Interpreter, choose_pythons, find_interpreter
from trainscale.worker.frameworks.catalog import FRAMEWORKS


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.setattr(hosts, "is_installed", lambda module: module == "torch")
    return tmp_path


def test_the_one_a_person_names_wins_then_this_python_if_it_has_all_modules(data: Path) -> None:
    fabricate("torch", ("torch",), python="3.11.0")
    assert find_interpreter("torch", {"torch": "/mine/python"}) == Interpreter("/mine/python", "given by --python")
    assert find_interpreter("torch", {"mxnet": "/mine/python"}) == Interpreter(sys.executable, "this Python")
    assert find_interpreter("mxnet", {}) == Interpreter(sys.executable, "this Python")  # where nothing has them


def test_an_environment_of_the_frameworks_own_name_comes_before_a_shared_one(data: Path) -> None:
    shared = fabricate("main", ("torch", "keras", "jax"), python="3.11.0")
    assert find_interpreter("jax", {}) == Interpreter(str(shared / "bin/python"), "environment main", "main")
    own = fabricate("jax", ("jax",), python="3.11.0")
    assert find_interpreter("jax", {}) == Interpreter(str(own / "bin/python"), "environment jax", "jax")
    # All modules must be in the same one: torch is here, keras is not.
    assert find_interpreter("keras-torch", {}).source == "environment main"


@pytest.mark.parametrize(
    ("modules", "facts"),
    [(("keras",), {"python": "3.11.0"}), (("jax",), {"complete": False})],
    ids=["lacks it", "incomplete"],
)
def test_an_environment_that_lacks_the_framework_or_is_incomplete_is_not_used(
    modules: tuple[str, ...], facts: dict[str, object], data: Path
) -> None:
    fabricate("jax", modules, **facts)
    assert find_interpreter("jax", {}) == Interpreter(sys.executable, "this Python")


def test_every_framework_gets_an_interpreter(data: Path) -> None:
    mxnet = fabricate("mxnet", ("mxnet",), python="3.11.0")
    chosen = choose_pythons(FRAMEWORKS, {"jax": "/mine/python"})
    assert list(chosen) == list(FRAMEWORKS)
    assert chosen["jax"] == "/mine/python"
    assert chosen["mxnet"] == str(mxnet / "bin/python")


def test_a_folder_without_code_is_no_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "only_a_folder").mkdir()
    (tmp_path / "a_module.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    assert not hosts.is_installed("only_a_folder")
    assert hosts.is_installed("a_module")
    assert not hosts.is_installed("not_there_at_all")
