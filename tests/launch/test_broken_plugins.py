"""Packages of third parties that are broken in every way: each is listed with its error, and stops nothing."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from command import trainscale
from packages import EXAMPLE, install, use, write_installed_package

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(EXAMPLE, tmp_path_factory.mktemp("example"))


PLUGIN_SOURCE = """
from dataclasses import dataclass
from trainscale.spec.settings import SettingGroup, setting
from trainscale.spec.settings import whole
from trainscale.launch.launchers.base import Launcher
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.worker.frameworks.catalog import Framework
from trainscale.worker.models import ModelInfo

NUMBER = 7

def framework(name, **changes):
    usual = dict(title="", imports=("json",), adapter="broken_plugins.things:Adapter", engines={"local": "it"},
                 precisions=("fp32",), layouts={"cpu": ("nchw",)})
    return Framework(name, **{**usual, **changes})

def model(name, builder="broken_plugins.things:build", **changes):
    return ModelInfo(name, name, builder, "broken", **changes)

def build(*arguments):
    raise SystemExit("built no more")

TORCH, FIELDS = framework("torch"), framework("fields", engines=("local",))
RELATIVE = framework("relative", adapter=".a:A")
ALEXNET, ALIAS, UNBUILDABLE = model("alexnet"), model("alias", aliases=("VGG",)), model("unbuildable")
NO_BUILDER = model("no-builder", "broken_plugins.things:no_such_function")

class Local(LocalLauncher):
    pass

class Abstract(Launcher):
    name = "abstract"

@dataclass(frozen=True)
class TakenFlag(SettingGroup):
    table, title = "taken", "taken"
    pace: int = setting(whole(1), "pace", "--lr")

class Taken(LocalLauncher):
    name = "taken"
    settings_type = TakenFlag

class Untyped(LocalLauncher):
    name = "untyped"
    settings_type = {"pace": 1}
"""
MISSING = "ModuleNotFoundError: No module named 'no_such_module'"
EXITS = "SystemExit: 3"
EVERY = {
    "needs-missing": ("broken_plugins.needs_missing:IT", MISSING),
    "exits": ("broken_plugins.exits:IT", EXITS),
    "fails": ("broken_plugins.fails:IT", "RuntimeError: two\nlines"),
    "nowhere": ("broken_plugins.nowhere:IT", "No module named 'broken_plugins.nowhere'"),
    "no-package": ("no_such_package.things:IT", "No module named 'no_such_package'"),
    "nothing": ("broken_plugins.things:NOTHING", "has no attribute 'NOTHING'"),
    "module": ("broken_plugins.things", "names a module; valid: module:name"),
}
FRAMEWORKS = {
    **EVERY,
    "number": ("broken_plugins.things:NUMBER", "is of type int, not Framework"),
    "torch": ("broken_plugins.things:TORCH", "'torch' is the name of a built-in"),
    "other": ("broken_plugins.things:FIELDS", "called 'other', what it names calls itself 'fields'"),
    "fields": ("broken_plugins.things:FIELDS", "engines must be a dictionary"),
    "relative": ("broken_plugins.things:RELATIVE", "adapter '.a:A' must be 'module:name', with the module's full name"),
}
MODELS = {
    **EVERY,
    "number": ("broken_plugins.things:NUMBER", "is of type int, not ModelInfo"),
    "alexnet": ("broken_plugins.things:ALEXNET", "'alexnet' is the name of a built-in"),
    "other": ("broken_plugins.things:UNBUILDABLE", "called 'other', what it names calls itself 'unbuildable'"),
    "alias": ("broken_plugins.things:ALIAS", "'VGG' is already a name of 'vgg16'"),
    "unbuildable": ("broken_plugins.things:UNBUILDABLE", "SystemExit: built no more"),
    "no-builder": ("broken_plugins.things:NO_BUILDER", "has no attribute 'no_such_function'"),
}
LAUNCHERS = {
    **EVERY,
    "number": ("broken_plugins.things:NUMBER", "is not a class derived from Launcher"),
    "local": ("broken_plugins.things:Local", "'local' is the name of a built-in"),
    "other": ("broken_plugins.things:Local", "called 'other', what it names calls itself 'local'"),
    "abstract": ("broken_plugins.things:Abstract", "lacks open"),
    "taken": ("broken_plugins.things:Taken", "TakenFlag declares --lr, which exists already"),
    "untyped": ("broken_plugins.things:Untyped", "is not a class derived from SettingGroup"),
}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    files = {
        "things.py": PLUGIN_SOURCE,
        "needs_missing.py": "import no_such_module",
        "exits.py": "import sys; sys.exit(3)",
        "fails.py": "raise RuntimeError('two\\nlines')",
    }
    groups = {"frameworks": FRAMEWORKS, "models": MODELS, "launchers": LAUNCHERS}
    entry_points = {f"trainscale.{group}": {n: ref for n, (ref, _) in every.items()} for group, every in groups.items()}
    return write_installed_package(tmp_path_factory.mktemp("broken"), "broken-plugins", files, entry_points)


@pytest.fixture(scope="module")
def listings(example: Path, broken: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the two listings print with good and broken ones installed; both must end well."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as monkeypatch:
        use(monkeypatch, broken, example)
        done = {command: trainscale(folder, command, columns=200) for command in ("frameworks", "models")}
    for result in done.values():
        assert result.returncode == 0, result.stderr
        assert result.stderr == ""
    return {command: result.stdout for command, result in done.items()}


def assert_listed(text: str, name: str, error: str) -> None:
    """A paragraph that names the plug-in and its package, and then the error."""
    (paragraph,) = (part for part in text.split("\n\n") if re.match(rf"(\w+ )?{name} \(plug-in", part))
    assert error in paragraph


@pytest.mark.parametrize(
    ("listing", "name", "error"),
    [("frameworks", name, error) for name, (_, error) in FRAMEWORKS.items()]
    + [("models", name, error) for name, (_, error) in MODELS.items()],
)
def test_a_broken_plugin_is_listed_with_its_error(
    listing: str, name: str, error: str, listings: dict[str, str]
) -> None:
    assert_listed(listings[listing], name, error)


def test_broken_ones_are_listed_with_their_package_beside_good_ones_and_built_ins(listings: dict[str, str]) -> None:
    for text in listings.values():
        assert "exits (plug-in of broken-plugins 1.0) cannot be used" in text
    assert re.search(r"^numpy +yes ", listings["frameworks"], re.MULTILINE)
    assert re.search(r"^torch +yes +yes ", listings["frameworks"], re.MULTILINE)
    assert re.search(r"^tiny .* 634 ", listings["models"], re.MULTILINE)
    assert re.search(r"^alexnet .* 61,100,840 ", listings["models"], re.MULTILINE)


LIST_PLUGINS = """
import json
from trainscale.launch import plugins
from trainscale.launch.launchers.target import LAUNCHERS
print(json.dumps([LAUNCHERS, {p.name: p.error for p in plugins.load_plugins() if p.kind == "launcher"}]))
"""


def test_broken_launchers_are_kept_with_their_errors_and_not_offered(
    example: Path, broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, broken, example)
    done = subprocess.run(
        [sys.executable, "-c", LIST_PLUGINS], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    offered, errors = json.loads(done.stdout)
    assert list(offered) == ["local", "ssh", "mpi", "slurm", "yarn", "ray", "nice"]
    assert errors.pop("nice") == ""
    assert set(errors) == set(LAUNCHERS)
    for name, error in errors.items():
        assert LAUNCHERS[name][1] in error


@pytest.mark.parametrize(
    "argv",
    [["--help"], ["run", "--help"], ["plan", "-m", "mnist:8", "--device", "cpu", "--devices", "1"]],
    ids=" ".join,
)
def test_broken_plugins_stop_no_command(
    argv: list[str], broken: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, broken)
    done = trainscale(tmp_path, *argv)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_a_package_whose_entry_points_cannot_be_read_hides_no_other(
    example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damaged = tmp_path / "site" / "damaged-1.0.dist-info"
    damaged.mkdir(parents=True)
    (damaged / "METADATA").write_text("Metadata-Version: 2.1\nName: damaged\nVersion: 1.0\n")
    (damaged / "entry_points.txt").write_text("[trainscale.models]\nno equals sign\n")
    use(monkeypatch, tmp_path / "site", example)
    done = trainscale(tmp_path, "models")
    assert done.returncode == 0, done.stderr
    assert_listed(done.stdout, "entry_points.txt", "cannot be read")
    assert "(plug-in of damaged 1.0)" in done.stdout
    assert re.search(r"^tiny ", done.stdout, re.MULTILINE)


def test_two_packages_may_not_add_the_same_name(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = (
        "from trainscale.worker.models import ModelInfo\n"
        "TINY = ModelInfo('tiny', 'Second', 'second_tiny:build', 'another')\n"
    )
    entry_points = {"trainscale.models": {"tiny": "second_tiny:TINY"}}
    second = write_installed_package(tmp_path / "site", "second-tiny", {"__init__.py": model}, entry_points)
    use(monkeypatch, example, second)
    done = trainscale(tmp_path, "models")
    assert done.returncode == 0, done.stderr
    assert_listed(done.stdout, "tiny", "'tiny' is taken by another plug-in, trainscale_example.models:TINY")
    assert re.search(r"^tiny .* 634 ", done.stdout, re.MULTILINE)
