"""The commands in the documentation are understood; its links and paths, and files that the source names, exist."""

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from doc_pages import DOCS, IDS, PAGES, ROOT, blocks
from this_machine import MACHINE, find_example_devices

from trainscale import cli
from trainscale.cluster.hosts import HostList, find_devices
from trainscale.launch.hosts import Cluster as AllReached
from trainscale.launch.launchers.base import Launcher
from trainscale.launch.launchers.local import LocalLauncher
from trainscale.spec.experiment import Experiment, read_experiment_file
from trainscale.worker.data.facts import KNOWN, PHOTOGRAPHS, DatasetFacts
from trainscale.worker.inspection.host import HostFacts

LINKING = [*PAGES, *(page for folder in ("bench", "examples", "results") for page in (ROOT / folder).rglob("*.md"))]


@pytest.fixture(autouse=True)
def paths_in_the_docs_are_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need not exist on this machine."""
    # In this order, because the import of the first module copies the function of the second.
    for module in ("cli.env", "spec.settings"):
        monkeypatch.setattr(f"trainscale.{module}.find_python", lambda text: text)
    monkeypatch.setattr(LocalLauncher, "find_hosts", lambda experiment, environment: HostList())


# Commands that would start a framework, ask a cluster, or look at this user's files: here only their parsers.
ASKS = ("check", "env", "cluster", "parse-log", "data", "watch")


class Reached(BaseException):
    """The command was understood, planned, and about to look for its framework."""


def commands() -> list[list[str]]:
    """All different ``trainscale`` commands in the docs, as words."""
    lines = [line for page in PAGES for block in blocks(page.read_text(), "sh") for line in block.splitlines()]
    argv_list = [tuple(shlex.split(line, comments=True)[1:]) for line in lines if line.startswith("trainscale ")]
    return [list(command) for command in dict.fromkeys(argv_list)]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the docs' commands name, on a machine of 16 cores and 8 GPUs."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for page in PAGES:
        for content in blocks(page.read_text(), "toml"):
            (tmp_path / content.splitlines()[0].removeprefix("# ")).write_text(content)
    monkeypatch.chdir(tmp_path)
    for name in ("nodes", "hosts"):
        (tmp_path / name).write_text("".join(f"10.0.1.{n} deeplearning-worker{n}\n" for n in range(1, 17)))
    (tmp_path / "nodes.ssh_config").touch()
    for module in ("cli.plan", "measure.measure"):
        monkeypatch.setattr(f"trainscale.{module}.connect_cluster", _reach)
    monkeypatch.setattr("trainscale.cli.checks.read_machine", lambda: MACHINE)
    photographs = DatasetFacts("imagenet", 1000, 3, 0, 1_281_167, 50_000, *PHOTOGRAPHS)
    monkeypatch.setattr("trainscale.spec.data.read_facts", lambda name, _: KNOWN.get(name, photographs))
    return tmp_path


def _reach(how: Launcher, experiment: Experiment, *_: object) -> AllReached:
    """Every host answers, and is such a machine."""
    hosts = [replace(host, facts=HostFacts(MACHINE)) for host in how.access.hosts]
    return AllReached(how, find_devices(hosts, experiment) if hosts else find_example_devices(experiment), MACHINE)


@pytest.mark.parametrize("argv", commands(), ids=" ".join)
def test_the_commands_in_the_docs_are_understood(
    argv: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reached(*_: object) -> None:
        raise Reached

    monkeypatch.setattr("trainscale.measure.measure.check_frameworks", reached)
    monkeypatch.setattr("trainscale.cli.checks.check_frameworks", reached)
    before = sorted(folder.rglob("*"))
    if argv[:2] == ["env", "create"]:
        monkeypatch.setattr("trainscale.cli.env.environments.create", reached)
        with pytest.raises(Reached):
            cli.main(argv)
    elif argv[0] in ASKS or {"slurm", "yarn", "ray"} & {*argv}:
        assert cli.main([*argv, "--no-such-flag"]) == 2
        assert "unknown flag" in capsys.readouterr().err
    elif argv[0] in ("run", "parity"):
        with pytest.raises(Reached):
            cli.main(argv)
    elif argv[0] == "compare":
        assert cli.main(argv) == 2
        assert "there is no such run" in capsys.readouterr().err
    elif argv[0] in ("report", "best", "explain", "export", "notebook", "predict", "study") or "--like" in argv:
        assert cli.main(argv) == 2
        assert "no run was recorded here" in capsys.readouterr().err
    elif argv[0] == "launch":  # what follows its own flags is a program's
        assert cli.main(["launch", "--no-such-flag", *argv[1:]]) == 2
        assert "unknown flag" in capsys.readouterr().err
    else:
        assert cli.main(argv) == 0
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_readme_names_every_command(command: str) -> None:
    assert re.search(rf"`trainscale {command}\b", (ROOT / "README.md").read_text())


def test_the_docs_have_commands_and_their_make_targets_exist() -> None:
    assert len(commands()) > 20
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert {"run", "test"} <= named <= targets


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_experiment_files_in_the_docs_are_valid(page: Path, tmp_path: Path) -> None:
    for content in blocks(page.read_text(), "toml"):
        path = tmp_path / "shown.toml"
        path.write_text(content)
        assert read_experiment_file(path)


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", LINKING, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), link
        assert not anchor or anchor in _anchors(there), link


def test_every_page_is_in_the_index() -> None:
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    linked = {Path(link).name for link in re.findall(r"\]\(([^)#\s]+\.md)", (DOCS / "index.md").read_text())}
    assert pages <= linked
    assert "docs/index.md" in (ROOT / "README.md").read_text()


def test_no_path_of_a_build_machine_is_told() -> None:
    pages = [*PAGES, *DOCS.rglob("*.svg")]
    for page in pages:
        roots = re.findall(r"(?<![\w.:/<…])/([A-Za-z][\w-]*)/", page.read_text())
        assert set(roots) <= {"proc", "sys", "dev", "path", "tmp", "etc", "opt", "usr", "shared", "bin"}, page.name


def test_the_licence_is_apache_2() -> None:
    licence = (ROOT / "LICENSE").read_text()
    assert "Apache License" in licence
    assert "Version 2.0, January 2004" in licence
    assert "END OF TERMS AND CONDITIONS" in licence


def test_the_changelog_has_this_version() -> None:
    import trainscale

    assert f"## [{trainscale.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


# ---- files that comments, docstrings and pages name

FILES = [path for path in ROOT.glob("[!.]*/**/*") if path.is_file() and "__pycache__" not in path.parts]
NAMES = {path.relative_to(ROOT).as_posix() for path in FILES if path.suffix in (".py", ".md", ".sh")}
ENDINGS = {name[start:] for name in NAMES for start in (0, *(match.end() for match in re.finditer("/", name)))}
OTHERS = {"parse_log.py", "my_training.py", "ray.py"}  # of other projects, and examples

# The folders of this project, under which a path in a page must exist; those of the package are named without it.
TOP = ("src", "docs", "tests", "bench", "examples")
PACKAGE = sorted(path.name for path in (ROOT / "src" / "trainscale").iterdir() if path.is_dir() and path.name[0] != "_")
FOLDERS = "|".join((*TOP, *PACKAGE))


def test_files_that_the_source_names_exist() -> None:
    pattern = r"(?<![\w/.{}-])(?:[\w-]+/)*[\w-]+\.(?:py|md)\b"
    named = {path: set(re.findall(pattern, path.read_text())) for path in sorted((ROOT / "src").rglob("*.py"))}
    missing = {path.name: names - OTHERS - ENDINGS for path, names in named.items()}
    assert {name: names for name, names in missing.items() if names} == {}


@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "bench" / "README.md"], ids=lambda page: page.relative_to(ROOT).as_posix()
)
def test_paths_that_a_page_names_exist(page: Path) -> None:
    """Paths such as `tests/lab`, `bench/overhead.py` or `launch/trial/state.py`. NAME in a path stands for any name."""
    pattern = rf"(?<![\w/.:{{}}~$-])((?:{FOLDERS})/[\w./-]*[\w/])(?!\w|…|/?\*|\{{)"
    named = [name for name in re.findall(pattern, page.read_text()) if not re.search("[A-Z]{3}", name)]
    package = ROOT / "src" / "trainscale"
    assert [name for name in named if not (ROOT / name).exists() and not (package / name).exists()] == []
