"""A third party's package: the one in examples/ is installed with pip and does what the docs show; one that is broken
in every way is listed with its errors, and stops nothing.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command import Command, trainscale
from lab_runs import list_trials
from packages import EXAMPLE, install, use, write_installed_package
from processes import program, until
from small_sets import write_cifar10

pytestmark = pytest.mark.processes

NAMES = ("numpy", "torch")  # the example's framework, and one to compare it with
DOCS = (Path(__file__).parents[2] / "docs" / "extending.md").read_text()
OWN_PACKAGE = DOCS.partition("## From your own package")[2].partition("\n## ")[0]
COMMANDS = [shlex.split(line)[1:] for line in re.findall(r"^\$ (.+)$", OWN_PACKAGE, re.MULTILINE)]


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(EXAMPLE, tmp_path_factory.mktemp("example"))


@pytest.fixture
def with_example(example: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use(monkeypatch, example)


# ---- the example


def test_its_model_and_its_framework_are_listed_with_counts_and_strategies(with_example: None, tmp_path: Path) -> None:
    done = trainscale(tmp_path, "models")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^tiny +3×32² +10 +634 ", done.stdout, re.MULTILINE)
    assert "cannot be used" not in done.stdout
    done = trainscale(tmp_path, "frameworks")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^numpy +yes +– +– +– +– +yes", done.stdout, re.MULTILINE)
    assert "trainscale_example.frameworks:NUMPY" in done.stdout
    assert "cannot be used" not in done.stdout


def test_listing_it_imports_no_framework(with_example: None, tmp_path: Path) -> None:
    script = "import sys, trainscale.cli as cli; cli.main(['frameworks']); print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "False"


@pytest.fixture
def bare_python(tmp_path: Path) -> str:
    """An interpreter with PyTorch in which the example is not installed: a framework's environment is like this."""
    return str(program(tmp_path, "bare-python", f'unset PYTHONPATH\nexec {shlex.quote(sys.executable)} "$@"'))


@pytest.mark.framework
def test_the_command_in_the_docs_compares_its_framework_with_pytorch_on_its_model_by_its_launcher(
    with_example: None, bare_python: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))  # so that parity is computed, not remembered
    (argv,) = (argv for argv in COMMANDS if argv[0] == "run")
    assert {"numpy,torch", "tiny:8", "nice"} <= set(argv)
    command = Command(tmp_path, *argv, "-o", "out", "--python", f"torch={bare_python}")
    wanted = min(19, os.getpriority(os.PRIO_PROCESS, 0) + 10)
    seen: set[int | None] = set()

    def a_nice_rank_or_the_end() -> bool:
        seen.update(niceness(pid) for pid in command.ranks())
        return wanted in seen or command.popen.poll() is not None

    until(a_nice_rank_or_the_end, "a rank of low priority", 240)
    done = command.finish()
    assert done.returncode == 0, done.stderr
    assert "parity: all frameworks train the same tiny" in done.stdout
    series = json.loads((tmp_path / "out" / "results.json").read_text())["series"]
    configs = [line["config"] for line in series]
    assert [(config["framework"], config["model"]) for config in configs] == [(name, "tiny") for name in NAMES]
    assert all(line["points"][0]["status"] == "ok" for line in series)
    verdicts = json.loads((tmp_path / "out" / "parity.json").read_text())["verdicts"]
    assert {verdict["framework"]: verdict["state"] for verdict in verdicts} == dict.fromkeys(NAMES, "proven")
    assert all(verdict["checks"] for verdict in verdicts)
    assert wanted in seen
    assert command.left() == []


SHOW = "import os; print('niceness', os.getpriority(os.PRIO_PROCESS, 0))"


def show_niceness(folder: Path, *arguments: str) -> int:
    done = trainscale(folder, "launch", "-n", "1", "--launcher", "nice", *arguments, sys.executable, "-c", SHOW)
    assert done.returncode == 0, done.stdout + done.stderr
    return int(re.findall(r"niceness (-?\d+)", done.stdout)[0])


def test_the_setting_of_its_launcher_has_a_group_in_the_help(with_example: None, tmp_path: Path) -> None:
    for command in ("run", "plan", "check", "launch"):
        text = trainscale(tmp_path, command, "--help").stdout
        group = text.partition("\nnice:\n")[2].partition("\n\n")[0]
        assert "--niceness" in group
        assert "(default: 10)" in " ".join(group.split())


def test_the_setting_of_its_launcher_reaches_the_launcher(with_example: None, tmp_path: Path) -> None:
    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert show_niceness(tmp_path) == min(19, own + 10)
    assert show_niceness(tmp_path, "--niceness", "7") == min(19, own + 7)
    done = trainscale(tmp_path, "launch", "-n", "1", "--launcher", "nice", "--niceness", "much", "true")
    assert done.returncode == 2
    assert "--niceness: 'much' is not valid" in done.stderr


EXPERIMENT = """models = ["tiny:4"]
frameworks = ["numpy"]
strategies = ["local"]
launcher = "nice"
devices = [1]
steps = 2
warmup = 2
repeats = 1
"""


@pytest.mark.parametrize("setting", ["[nice]\nniceness = 7\n", "niceness = 7\n"], ids=["in a table", "beside others"])
def test_the_setting_of_its_launcher_may_stand_in_an_experiment_file(
    setting: str, with_example: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT + setting)
    program(tmp_path, "nice", f'printf "%s\\n" "$*" >> "{tmp_path}/arguments"\nexec {shutil.which("nice")} "$@"')
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done = trainscale(tmp_path, "run", "experiment.toml", "-o", "out")
    assert done.returncode == 0, done.stdout + done.stderr
    commands = (tmp_path / "arguments").read_text().splitlines()
    assert any(command.endswith(" keeper") for command in commands)
    assert all(command.startswith("-n 7 ") for command in commands)


def niceness(pid: int) -> int | None:
    try:
        return os.getpriority(os.PRIO_PROCESS, pid)
    except ProcessLookupError:
        return None


@pytest.mark.framework
def test_its_framework_trains_on_two_devices_that_exchange_nothing(with_example: None, tmp_path: Path) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one core only")
    done = trainscale(
        tmp_path, "run", "--frameworks", "numpy", "-m", "tiny:4", "--strategies", "independent",
        "--devices", "2", "--device", "cpu", "--cores-per-device", "1", "--warmup", "2", "--steps", "3",
        "--repeats", "1", "-o", "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = list_trials(tmp_path)
    assert len(trial["ranks"]) == 2


@pytest.mark.framework
def test_its_framework_learns_from_real_images(with_example: None, tmp_path: Path) -> None:
    images = write_cifar10(tmp_path / "images")
    done = trainscale(
        tmp_path, "run", "--frameworks", "numpy", "-m", "tiny:20", "--data", f"cifar10:{images}", "--epochs", "6",
        "--learning-rate", "0.05", "--devices", "1", "--device", "cpu", "--strategies", "local", "-o", "out",
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (trial,) = list_trials(tmp_path)
    assert [epoch["valid_samples"] for epoch in trial["epochs"]] == [103] * 6
    assert trial["epochs"][5]["train_loss"] < trial["epochs"][0]["train_loss"]
    assert trial["epochs"][5]["valid_accuracy"] > 0.5


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--strategies", "allreduce"], "numpy has no strategy 'allreduce'; it has local, independent"),
        (["--layout", "nhwc"], "numpy has no layout 'nhwc' on cpu; it has nchw"),
        (["-m", "tinny"], "did you mean 'tiny'"),
        (["--devices", "1", "--launcher", "nic"], "unknown launcher 'nic'; did you mean 'nice'?"),
    ],
)
def test_what_it_does_not_offer_is_refused_like_any_other(
    argv: list[str], message: str, with_example: None, tmp_path: Path
) -> None:
    model = [] if "-m" in argv else ["-m", "tiny"]
    done = trainscale(tmp_path, "run", "--frameworks", "numpy", *model, "--device", "cpu", *argv)
    assert done.returncode == 2
    assert message in done.stderr


# ---- what the docs show of it


def test_the_docs_show_the_entry_points_and_the_code_as_they_are_and_the_commands_that_are_tested_here() -> None:
    assert [argv[0] for argv in COMMANDS] == ["install", "models", "frameworks", "run"]
    (shown,) = re.findall(r"^```ini\n(.*?)^```", OWN_PACKAGE, re.MULTILINE | re.DOTALL)
    assert "trainscale.launchers" in shown
    assert shown.strip() in (EXAMPLE / "pyproject.toml").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", OWN_PACKAGE, re.MULTILINE | re.DOTALL)
    code = "\n".join(path.read_text() for path in EXAMPLE.rglob("*.py"))
    assert len(blocks) >= 3
    for block in blocks:
        for part in block.strip().split("\n\n\n"):
            assert part in code


# ---- broken packages

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
