"""Environments: their definitions, their states, and their creation by a real uv, without a network."""

import json
import os
import re
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from environments import define, fabricate, only_local_packages, write_wheel
from processes import program

from trainscale.cluster import environments
from trainscale.cluster.environments import DEFINITIONS, FACTS, Definition, create, find_package_index, read_environment
from trainscale.errors import InputError, TrainscaleError
from trainscale.worker.frameworks.catalog import FRAMEWORKS

FILES = [(definition, cuda) for definition in DEFINITIONS.values() for cuda in (False, True)]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    only_local_packages(monkeypatch, tmp_path)
    return tmp_path


def make(definition: Definition, cuda: bool | None = None, base: str | None = None) -> bool:
    """Return whether something was made."""
    return create(definition, cuda, False, base)


@pytest.mark.parametrize(("definition", "cuda"), FILES, ids=lambda value: getattr(value, "name", str(value)))
def test_every_environment_pins_numpy_and_all_that_its_frameworks_import(definition: Definition, cuda: bool) -> None:
    lines = definition.read_requirements(cuda)
    assert any(line.startswith("numpy==") for line in lines)
    for line in lines:
        assert re.match(r"[\w-]+(\[[\w,-]+\])?==[\d.]+(; python_version [<>]=? \"3\.\d+\")?$", line), line
        assert cuda or "cuda" not in line
    named = {re.sub(r"-(cpu|cu\d+)$", "", re.split(r"[\[=]", line)[0]) for line in lines}
    assert {module for name in definition.frameworks for module in FRAMEWORKS[name].imports} <= named


def test_the_messages_of_frameworks_name_their_environments_and_the_shared_one_agrees_with_the_single_ones() -> None:
    for framework in FRAMEWORKS.values():
        name = framework.install.removeprefix("trainscale env create ")
        assert framework.plugin or framework.name in DEFINITIONS[name].frameworks
    shared = set(DEFINITIONS["main"].read_requirements(cuda=False))
    for name in DEFINITIONS["main"].frameworks:
        assert set(DEFINITIONS[name].read_requirements(cuda=False)) <= shared, name


@pytest.mark.parametrize(
    ("value", "expected"), [("/somewhere", "/somewhere/trainscale/envs"), ("", None), ("relative", None)]
)
def test_the_folder_of_environments(value: str, expected: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", value)
    assert environments.find_environments_folder() == Path(expected or Path.home() / ".local/share/trainscale/envs")


def test_an_environment_is_used_if_it_is_complete_and_has_its_python(data: Path) -> None:
    def state(is_usable: bool) -> str:
        environment = read_environment("main")
        assert environment.is_usable is is_usable
        return environment.state

    assert state(is_usable=False) == environments.ABSENT
    assert environments.list_environments() == []
    folder = fabricate("main", ("torch", "keras"), packages={"torch": "2.13.0", "filelock": "1", "numpy": "2"})
    assert state(is_usable=True) == environments.READY
    assert read_environment("main").frameworks == ("torch", "keras-torch")
    assert read_environment("main").packages == {"torch": "2.13.0", "numpy": "2"}
    facts = json.loads((folder / FACTS).read_text())
    (folder / FACTS).write_text(json.dumps({**facts, "digest": "older"}))
    assert state(is_usable=True) == environments.OUTDATED
    for text in ('{"complete": false}', "{", "[]", ""):
        (folder / FACTS).write_text(text)
        assert state(is_usable=False) == environments.INCOMPLETE
        assert read_environment("main").frameworks == DEFINITIONS["main"].frameworks  # what it is for
    (folder / FACTS).write_text(json.dumps(facts))
    (folder / "bin/python").unlink()
    (folder / "bin/python").symlink_to("/no/such/python")
    assert state(is_usable=False) == environments.BROKEN


def test_what_is_not_ours_is_left_alone(data: Path) -> None:
    fabricate("theirs", ("mxnet",))
    fabricate("mxnet", ("mxnet",), python="3.11.0")
    assert [environment.name for environment in environments.list_environments()] == ["mxnet", "theirs"]
    assert read_environment("theirs").state == environments.OWN
    fabricate("main", ("torch",))
    assert not make(DEFINITIONS["main"])
    folder = environments.find_environments_folder() / "tiny"
    folder.mkdir(parents=True)
    (folder / "thesis.tex").write_text("precious")
    with pytest.raises(InputError, match="holds other files"):
        make(define(data / "files"))
    assert (folder / "thesis.tex").read_text() == "precious"


@pytest.mark.installs
def test_an_environment_is_made_then_found_complete_and_updated_when_its_requirements_change(
    data: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    definition = define(data / "files", write_wheel(data, "numpy", "1.0"))
    assert make(definition)
    assert "+ numpy==1.0" in capfd.readouterr().err, "uv's own output"
    environment = read_environment("tiny")
    assert (environment.state, environment.packages) == (environments.READY, {"numpy": "1.0"})
    assert environment.facts.bytes > 1_000_000
    assert environment.facts.python == ".".join(map(str, sys.version_info[:3]))
    done = subprocess.run(
        [environment.python, "-c", "import numpy; print(numpy.VERSION)"], capture_output=True, text=True
    )
    assert done.stdout == "1.0\n"
    assert list((environment.folder / "lib").glob("python*/site-packages/numpy/__pycache__/*.pyc"))
    # The same again
    assert not make(definition)
    assert not make(definition, base=sys.executable)
    # A newer trainscale
    newer = define(data / "files", write_wheel(data, "numpy", "2.0"))
    monkeypatch.setitem(DEFINITIONS, "tiny", newer)
    assert read_environment("tiny").state == environments.OUTDATED
    assert make(newer)
    updated = read_environment("tiny")
    assert (updated.state, updated.packages) == (environments.READY, {"numpy": "2.0"})
    # The other kind is made from nothing: the two kinds of a package are different packages
    (environment.folder / "old").touch()
    assert make(newer, cuda=True)
    facts = read_environment("tiny").facts
    assert facts.cuda is True
    assert not (environment.folder / "old").exists()
    assert not make(newer)  # and unasked it stays of its kind


@pytest.mark.installs
def test_after_a_failure_the_same_command_continues(data: Path, capfd: pytest.CaptureFixture[str]) -> None:
    wheel = write_wheel(data, "numpy", files=3)
    with pytest.raises(TrainscaleError) as caught:
        make(define(data / "files", wheel, "no-such-package==1.0"))
    assert str(caught.value).splitlines() == [
        "environment tiny could not be created: uv ended with exit code 1; its message is above",
        "  to continue: trainscale env create tiny",
    ]
    assert "No solution found" in capfd.readouterr().err
    assert read_environment("tiny").state == environments.INCOMPLETE
    definition = define(data / "files", wheel)
    assert make(definition)
    environment = read_environment("tiny")
    assert environment.state == environments.READY
    # For packages that the user adds
    subprocess.run([environment.python, "-m", "pip", "--version"], check=True, capture_output=True)
    # A half-installed package is installed again
    (site,) = environment.folder.glob("lib/python*/site-packages")
    (site / "numpy/part1.py").unlink()
    (environment.folder / FACTS).write_text(json.dumps({**asdict(environment.facts), "complete": False}))
    assert make(definition)
    assert (site / "numpy/part1.py").exists()


@pytest.mark.installs
def test_uv_updates_what_pip_made(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = define(data / "files", write_wheel(data, "numpy", "1.0"))
    folder = environments.find_environments_folder() / "tiny"
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/python", "-m", "pip", "install", "-q", "-r", first.find_requirements(cuda=False)]
    subprocess.run(pip, check=True)
    version = ".".join(map(str, sys.version_info[:3]))
    facts = {"complete": True, "trainscale": "0.1", "cuda": False, "base": sys.executable, "python": version}
    (folder / FACTS).write_text(json.dumps({**facts, "digest": first.compute_digest(cuda=False), "seconds": 3.5}))
    assert not make(first)
    (folder / "added by the user").touch()
    newer = define(data / "files", write_wheel(data, "numpy", "2.0"))
    monkeypatch.setitem(DEFINITIONS, "tiny", newer)
    assert read_environment("tiny").state == environments.OUTDATED
    assert make(newer)
    updated = read_environment("tiny")
    assert (updated.state, updated.packages["numpy"]) == (environments.READY, "2.0")
    assert (folder / "added by the user").exists()


@pytest.mark.installs
def test_settings_of_a_project_do_not_count(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (data / "pyproject.toml").write_text('[project]\nname = "mine"\n[tool.uv]\nconstraint-dependencies = ["numpy<1"]\n')
    monkeypatch.chdir(data)
    assert make(define(data / "files", write_wheel(data, "numpy")))


@pytest.mark.installs
def test_two_makings_at_once_give_one_environment(data: Path) -> None:
    definition = define(data / "files", write_wheel(data, "numpy"))
    outcomes = []
    threads = [threading.Thread(target=lambda: outcomes.append(make(definition))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == [False, True]
    assert read_environment("tiny").state == environments.READY


@pytest.mark.processes
@pytest.mark.parametrize(
    ("oldest", "newest", "message"),
    [
        ((3, 9), (3, 10), r"needs Python 3\.9 to 3\.10; .* is 3\.\d+\.\d+\n.*--base PYTHON"),
        ((3, 99), None, r"needs Python 3\.99 or newer"),
    ],
)
def test_a_python_that_the_packages_do_not_run_on_is_refused(
    oldest: tuple[int, int], newest: tuple[int, int] | None, message: str, data: Path
) -> None:
    define(data / "files")
    with pytest.raises(InputError, match=message):
        make(Definition("tiny", ("torch",), oldest, newest, data / "files"))
    assert read_environment("tiny").state == environments.ABSENT


@pytest.mark.processes
def test_a_base_that_does_not_run_is_told_with_the_remedy(data: Path) -> None:
    python = program(data, "python", "echo 'error while loading shared libraries' >&2\nexit 127")
    with pytest.raises(InputError, match=r"does not work: error while loading shared libraries\n  .*--base PYTHON"):
        make(define(data / "files"), base=str(python))


@pytest.mark.processes
def test_what_pip_is_configured_with_counts_unless_uv_is(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = data / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://mirror/simple\nextra-index-url =\n    https://a/simple\n    https://b/simple\n"
        "[install]\nindex-url = https://other/simple\ntrusted-host = other\n"
    )
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels /more-wheels")
    variables, options = find_package_index({"SSL_CERT_FILE": "/mine"})
    assert options == []
    assert variables == {
        "SSL_CERT_FILE": "/mine",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
        "UV_DEFAULT_INDEX": "https://other/simple",
        "UV_INDEX": "https://a/simple https://b/simple",
        "UV_FIND_LINKS": "/wheels,/more-wheels",
        "UV_INSECURE_HOST": "other",
    }
    own = {"UV_INDEX_URL": "https://mine/simple", "UV_INDEX_STRATEGY": "first-index", "UV_INSECURE_HOST": "mine"}
    own["SSL_CERT_FILE"] = "/mine"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert find_package_index(own) == (own, [])
    assert find_package_index({})[1] == ["--no-index"]
    python = program(data, "python-without-pip", "echo 'No module named pip' >&2\nexit 1")
    monkeypatch.setattr(sys, "executable", str(python))
    assert find_package_index({}) == ({"UV_INDEX_STRATEGY": "unsafe-best-match"}, [])


def test_removing_frees_the_folder_and_leaves_what_a_link_leads_to(data: Path) -> None:
    folder = fabricate("main", ("torch",), python="3.11.0")
    (folder / "large").write_bytes(b"x" * 1_000_000)
    assert environments.remove(read_environment("main")) >= 1_000_000
    assert environments.list_environments() == []
    assert [path.name for path in environments.find_environments_folder().iterdir()] == [".main.lock"]
    elsewhere = data / "elsewhere"
    fabricate("main", ("torch",)).rename(elsewhere)
    (environments.find_environments_folder() / "main").symlink_to(elsewhere)
    assert read_environment("main").state == environments.OWN
    assert environments.remove(read_environment("main")) == 0
    assert (elsewhere / "bin/python").exists()
    assert environments.list_environments() == []
    fabricate("main", ("torch",))
    with environments.lock("main"), pytest.raises(InputError, match="another trainscale is creating it now"):
        environments.remove(read_environment("main"))
    assert read_environment("main").is_usable
