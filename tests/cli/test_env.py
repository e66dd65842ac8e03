"""``trainscale env`` as a person meets it, ``--python``, and ``check`` on whole and broken interpreters."""

import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command import trainscale
from environments import define, fabricate, only_local_packages, write_stuck_package, write_wheel

from trainscale import cli
from trainscale.cluster import environments
from trainscale.cluster.environments import DEFINITIONS, Definition
from trainscale.spec.experiment import read_experiment_file
from trainscale.worker.frameworks.catalog import FRAMEWORKS


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    only_local_packages(monkeypatch, tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


@pytest.fixture
def tiny(data: Path, monkeypatch: pytest.MonkeyPatch) -> Definition:
    """An environment of one small package, beside those that trainscale defines."""
    definition = define(data / "files", write_wheel(data, "numpy"))
    monkeypatch.setitem(DEFINITIONS, "tiny", definition)
    return definition


def run(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> str:
    assert cli.main(list(argv)) == code
    captured = capsys.readouterr()
    assert (captured.err == "") == (code == 0), captured.err
    return captured.out if code == 0 else captured.err


# ---- create


@pytest.mark.installs
def test_creating_twice_is_quick(tiny: Definition, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(capsys, "env", "create", "tiny")
    assert re.fullmatch(r"tiny: ready, numpy 1\.0, Python 3\.[\d.]+, \d+ MB, in \d+ s\n", first)
    again = run(capsys, "env", "create", "tiny", "tiny", "--cpu")
    assert re.fullmatch(r"tiny: already there, numpy 1\.0, Python 3\.[\d.]+\n", again)


@pytest.mark.installs
@pytest.mark.slow
def test_one_that_fails_does_not_stop_the_next(
    tiny: Definition, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(DEFINITIONS, "bad", define(data / "bad files", "no-such-package==1", name="bad"))
    assert cli.main(["env", "create", "bad", "tiny"]) == 1
    captured = capsys.readouterr()
    assert "environment bad could not be created: uv ended with exit code 1" in captured.err
    assert captured.err.count("trainscale: ") == 1
    assert "tiny: ready" in captured.out
    listed = re.sub(r"\s+", " ", run(capsys, "env", "list"))
    assert re.search(r"bad incomplete \d+ MB torch incomplete, run env create bad again", listed)


@pytest.mark.installs
def test_ctrl_c_ends_uv_and_leaves_a_folder_that_says_it_is_incomplete(data: Path) -> None:
    """In a process of its own. The package under way waits in its build until the interruption has ended it."""
    line, pipe = write_stuck_package(data)
    define(data / "files", line)
    script = (
        "import sys, pathlib; from trainscale import cli; from trainscale.cluster.environments import *;"
        f"DEFINITIONS['tiny'] = Definition('tiny', ('torch',), files=pathlib.Path({str(data / 'files')!r}));"
        "sys.exit(cli.main(['env', 'create', 'tiny']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    building = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)  # does not wait for a writer that may never come
    try:
        assert select.select([building], [], [], 120)[0], "the package was never built"
        assert os.read(building, 100) == b"building"
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert os.read(building, 100) == b"", "the build outlived the interruption"
    finally:
        os.close(building)
        process.kill()
        process.communicate()
    assert process.returncode == 130, err
    assert "tiny: stopped; the same command continues" in out
    assert err.endswith("trainscale: interrupted\n")
    environment = environments.read_environment("tiny")
    assert (environment.state, environment.is_usable) == (environments.INCOMPLETE, False)


# ---- list and remove


def test_the_list_names_states_versions_sizes_and_place_within_80_columns(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    versions = {"torch": "2.13.0", "jax": "0.10.2", "keras": "3.15.1", "numpy": "2.4.6", "six": "1.0"}
    fabricate("main", ("torch", "keras", "jax"), packages=versions, python="3.11.2", bytes=3_040_000_000)
    fabricate("jax", ("jax",), digest="older", packages={"jax": "0.9"})
    fabricate("mxnet", complete=False)
    fabricate("keras-jax", ("keras", "jax"))
    text = run(capsys, "env", "list")
    assert max(map(len, text.splitlines()[:-1])) <= 80
    rows = {line.split()[0]: line for line in text.splitlines()[1:-1] if not line.startswith(" ")}
    assert list(rows) == ["main", "jax", "keras-jax", "mxnet", "torch", "tensorflow", "keras-tensorflow", "keras-torch"]
    assert re.match(r"main +ready +3\.0 GB +torch, jax, keras-jax, keras", rows["main"])
    assert "outdated" in rows["jax"]
    assert "outdated, run env create jax to update it" in re.sub(r"\s+", " ", text)
    assert "incomplete" in rows["mxnet"]
    assert "your own" in rows["keras-jax"]
    assert "not there" in rows["torch"]
    joined = re.sub(r"\s+", " ", text)
    assert "torch 2.13.0, jax 0.10.2, keras 3.15.1" in joined
    assert "six" not in joined
    assert text.splitlines()[-1] == f"each is a folder in {data / 'data/trainscale/envs'}"


def test_removing_says_what_went_and_how_large_it_was(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = fabricate("mxnet", ("mxnet",), python="3.11.0")
    (folder / "large").write_bytes(b"x" * 5_000_000)
    assert run(capsys, "env", "remove", "mxnet") == f"removed mxnet: 5 MB, {folder}\n"
    assert not folder.exists()
    assert "env remove: there are no environments in " in run(capsys, "env", "remove", "mxnet", code=2)


# ---- --python


@pytest.fixture
def script(tmp_path: Path) -> Path:
    """What a person might point to: executable, but no interpreter of any framework."""
    path = tmp_path / "my python, 3.9"
    path.write_text("#!/bin/sh\nkill -SEGV $$\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    "written",
    [
        'python = "torch={0}, MXNet={1}"',
        'python = ["torch={0}", "mxnet={1}"]',
        'python = {{ torch = "{0}", mxnet = "{1}" }}',
        '[python]\ntorch = "{0}"\nmxnet = "{1}"',
        'python.torch = "{0}"\npython.mxnet = "{1}"',
    ],
)
def test_an_experiment_file_names_pythons_as_text_list_or_table(written: str, script: Path, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    path.write_text(written.format(sys.executable, script))
    assert read_experiment_file(path) == {"python": (("torch", sys.executable), ("mxnet", str(script)))}


def test_a_run_by_another_python_is_the_same_run(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    argv = ["plan", "-m", "mnist", "--device", "cpu", "--devices", "1"]
    assert run(capsys, *argv) == run(capsys, *argv, "--python", f"torch={script}", "--python", "mxnet=python3")


# ---- check


def rows(text: str) -> dict[str, str]:
    """What check says of each thing, its lines joined."""
    texts: dict[str, str] = {}
    name = ""
    for line in text.splitlines():
        name = line[:18].strip() or name
        texts[name] = f"{texts.get(name, '')} {line[18:].strip()}".strip()
    return texts


@pytest.mark.framework
def test_check_says_for_each_framework_where_it_is_or_how_to_get_it(
    data: Path, script: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that works, one that is nowhere, one whose Python dies, one whose environment is broken."""
    broken = fabricate("jax", ("jax",), python="3.11.0")
    (broken / "bin/python").unlink()
    (broken / "bin/python").symlink_to(sys.executable)
    (broken / "lib/python3.11/site-packages/jax/__init__.py").write_text("raise OSError('libjax.so: no such file')\n")
    (broken / "pyvenv.cfg").write_text(f"home = {Path(sys.executable).resolve().parent}\n")
    done = trainscale(data, "check", "--python", f"mxnet={script}", columns=80)
    assert done.stderr == ""
    assert max(map(len, done.stdout.splitlines())) <= 80
    texts = rows(done.stdout)
    assert set(FRAMEWORKS) <= set(texts)
    assert re.fullmatch(r"2\.\S+, (CPU only|sees \d+ GPUs?), this Python", texts["torch"])
    assert texts["mxnet"].startswith("missing: the Python of mxnet was ended by SIGSEGV looked in: given by --python (")
    if "environment jax" in texts["jax"]:  # where the tests' own Python has none
        assert "libjax.so: no such file" in texts["jax"]
        assert texts["jax"].endswith("get it with: trainscale env remove jax, then env create jax")
    if texts["tensorflow"].startswith("missing"):
        assert texts["tensorflow"].endswith("get it with: trainscale env create tensorflow")
    assert done.returncode == 0
