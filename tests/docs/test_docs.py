"""The documentation says what the code does: options, columns, fields, counts, defaults, links and commands."""

from __future__ import annotations

import csv
import json
import re
import shlex
import shutil
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from trainscale import cli
from trainscale.cli import runscalabilitytest
from trainscale.cluster.devices import UsableHost as DeviceHost
from trainscale.cluster.devices import find_devices
from trainscale.cluster.environments import (
    ABSENT,
    BROKEN,
    DEFINITIONS,
    INCOMPLETE,
    OUTDATED,
    OWN,
    READY,
    requirement_lines,
)
from trainscale.launch.inspection.cluster import Cluster as AllReached
from trainscale.launch.launchers.catalog import launcher_groups
from trainscale.launch.launchers.target import Target
from trainscale.record.run import RunInfo
from trainscale.record.trial import OK, OUT_OF_MEMORY, Failure, RankSample, TrialRecord
from trainscale.spec.config import Config, Trial
from trainscale.spec.defaults import CPU, GIB, GPUS
from trainscale.spec.experiment import Experiment, read_experiment_file
from trainscale.spec.groups import collect_settings
from trainscale.spec.settings import Setting
from trainscale.worker import models
from trainscale.worker.config import OMITTED_DEFAULTS
from trainscale.worker.data.facts import KNOWN, PHOTOGRAPHS, DatasetFacts
from trainscale.worker.frameworks.catalog import FRAMEWORKS, STRATEGIES, Framework
from trainscale.worker.inspection.machine import Gpu, Machine

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(DOCS.rglob("*.md"))]
IDS = [str(page.relative_to(ROOT)) for page in PAGES]
CONFIG = Config("torch", "alexnet", 8, "allreduce", 224, 1000)
SETTINGS = collect_settings(launcher_groups())
OWN_FRAMEWORKS = [framework for framework in FRAMEWORKS.values() if framework.plugin is None]


def text(name: str) -> str:
    return (DOCS / name).read_text()


def rows(page: str) -> list[list[str]]:
    """The cells of every row of every table of a page."""
    lines = [line.strip() for line in page.splitlines() if line.strip().startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def coded(page: str) -> set[str]:
    """Everything set as code, and each word of it."""
    spans = re.findall(r"`([^`\n]+)`", page)
    return {*spans, *(word for span in spans for word in span.split())}


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)


# ---- options


@pytest.mark.parametrize("field", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_has_a_row_with_its_key_flags_and_default(field: Setting) -> None:
    (row,) = (row for row in rows(text("options.md")) if row[0] == f"`{field.key}`")
    assert set(field.flags) <= coded(row[1])
    default = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", row[3]).replace("`", "")  # without links and code marks
    assert default == (field.default_phrase or "none")


@pytest.mark.parametrize("flag", ["-o", "--output", "--fresh", "--retry-failed", "--debug", "--help", "--version"])
def test_every_flag_that_is_no_setting_is_described(flag: str) -> None:
    assert flag in coded(text("options.md"))


def test_no_page_names_a_flag_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    helps = [[name] for name in cli.COMMANDS if name not in ("env", "cluster", "data")]
    verbs = [["cluster", verb] for verb in ("up", "status", "hosts", "ssh", "down")]
    for argv in (*helps, ["env", "create"], ["data", "get"], *verbs):
        with pytest.raises(SystemExit):
            cli.main([*argv, "--help"])
    with pytest.raises(SystemExit):
        runscalabilitytest.main(["--help"])
    known = set(re.findall(r"--[a-z][a-z_-]*", capsys.readouterr().out)) | {"--help", "--version"}
    others = {"--max-device", "--strict", "--device", "--paired"}  # wrong on purpose, mypy's, bench/overhead.py's
    others |= {"--comparisons", "--measure", "--recorded"}  # bench/compare.py's
    script = (ROOT / "examples/mnist.py").read_text()  # its flags are in docs/mnist.md
    others |= {f"--{name}" for name in re.findall(r'^    add\("(\w+)"', script, re.MULTILINE)}
    for page in PAGES:
        spans = [span for span in re.findall(r"`([^`\n]+)`", page.read_text()) if not span.startswith("pip")]
        named = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-z][a-z_-]*", span)}
        assert named <= known | others, page.name


@pytest.fixture(autouse=True)
def paths_in_the_docs_are_examples(monkeypatch: pytest.MonkeyPatch) -> None:
    """They need not exist on this machine."""
    for module in ("spec.value_types", "cli.env"):
        monkeypatch.setattr(f"trainscale.{module}.find_python", lambda text: text)
    monkeypatch.setattr("trainscale.launch.launchers.local._check_pythons", lambda _: None)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_environment_has_a_row_with_its_frameworks_and_versions(name: str) -> None:
    (row,) = (row for row in rows(text("environments.md")) if row[0] == f"`{name}`")
    assert set(DEFINITIONS[name].frameworks) <= coded(row[1])
    pins = [line.split(";")[0] for line in requirement_lines(DEFINITIONS[name].requirements(cuda=False))]
    versions = dict(pin.split("==") for pin in pins)
    for version in re.findall(r"\d+\.\d+\.\d+", row[2].partition("(")[0]):
        assert version in versions.values() or version == "1.23.5", version


def test_every_state_of_an_environment_is_explained() -> None:
    assert {READY, OUTDATED, INCOMPLETE, BROKEN, OWN, ABSENT} <= coded(text("environments.md"))


def test_every_strategy_is_explained() -> None:
    assert {f"`{name}`" for name in STRATEGIES} <= {row[0] for row in rows(text("running.md"))}


# ---- frameworks


def under(page: str, heading: str) -> str:
    """From a heading to the next of its level or above."""
    level = heading.partition(" ")[0]
    start = page.index(f"\n{heading}\n")
    end = re.search(rf"^#{{1,{len(level)}}} ", page[start + len(heading) + 2 :], re.MULTILINE)
    return page[start : start + len(heading) + 2 + end.start()] if end else page[start:]


@pytest.mark.parametrize("framework", OWN_FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_table_of_strategies_is_that_of_the_code(framework: Framework) -> None:
    head, _, *body = rows(under(text("running.md"), "### Which framework offers what"))
    assert head == ["framework", *(f"`{name}`" for name in STRATEGIES)]
    (row,) = (row for row in body if row[0] == f"`{framework.name}`")
    assert row[1:] == [framework.engines.get(name, "–") for name in STRATEGIES]


@pytest.mark.parametrize("framework", OWN_FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_table_of_layouts_and_precisions_is_that_of_the_code(framework: Framework) -> None:
    table = rows(under(text("running.md"), "### NCHW or NHWC"))
    (row,) = (row for row in table if row[0] == f"`{framework.name}`")
    listed = [re.findall(r"`([^`]+)`", cell) for cell in row]
    assert listed[1:4] == [list(n) for n in (framework.layouts["cpu"], framework.layouts["cuda"], framework.precisions)]
    assert (row[4] != "–") == framework.compiles
    assert listed[5] == [f"{name}:NAME" for name in framework.libraries]


@pytest.mark.parametrize("framework", OWN_FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_pages_name_every_framework_with_its_strategies(framework: Framework) -> None:
    readme = rows(under((ROOT / "README.md").read_text(), "## Frameworks"))
    (row,) = (row for row in readme if framework.name in coded(row[0]))
    assert coded(row[1]) == set(framework.strategies)
    (option,) = (row for row in rows(text("options.md")) if row[0] == "`frameworks`")
    assert framework.name in coded(option[4])
    sharing = rows(under(text("running.md"), "### GPUs"))
    (row,) = (row for row in sharing if framework.name in coded(row[0]))
    assert coded(row[1]) & set(framework.strategies) == set(framework.shares_gpus) & set(framework.strategies)
    described = [
        row for row in rows(under(text("method.md"), "## How each framework runs")) if framework.name in coded(row[0])
    ]
    assert described


# ---- parity


def test_the_tolerances_of_parity_are_those_of_the_code() -> None:
    from trainscale.analyse.parity import ParityNumbers, compare

    weights = {"before/a": [1.0], "first/a": [1.5], "after/a": [2.0]}
    others = {"dropout/a": [0.5, 2.0, 0.5, 1e5], "pixels": [0.0, 0.0]}
    numbers = ParityNumbers(1, 1, {"logits/0": [1.0], "losses": [1.0], **weights, **others})
    checks = compare((numbers, numbers), (numbers, numbers))
    table = [row for row in rows(under(text("method.md"), "## The same work")) if len(row) == 5]
    assert [(row[0], float(row[2])) for row in table[2:]] == [(check.name, check.tolerance) for check in checks]


def test_the_sizes_of_a_parity_check_are_those_of_the_code() -> None:
    from trainscale.launch.inspection.parity import _SECONDS, BATCH, STEPS
    from trainscale.run.number_cache import KEEP_SECONDS
    from trainscale.run.parity import _AT_ONCE
    from trainscale.worker.inspection.parity import _FOLD

    section = " ".join(under(text("method.md"), "## The same work").split())
    assert f"### Weights as {_FOLD:,} numbers" in section
    assert f"the same {BATCH} images" in section
    assert (STEPS, _AT_ONCE, _SECONDS / 60, KEEP_SECONDS / 86400) == (3, 2, 20, 90)
    for phrase in ("three steps", "Two processes compute at a time", "at most 20 minutes", "90 days"):
        assert phrase in section


def test_every_field_of_parity_json_is_described() -> None:
    from trainscale.record.parity import FAILED, PROVEN, UNPROVEN, Check, Verdict

    described = coded(under(text("results.md"), "## parity.json"))
    assert {"schema", "verdicts", *(f.name for f in (*fields(Verdict), *fields(Check)))} <= described
    assert {PROVEN, FAILED, UNPROVEN} <= described


def test_the_marks_of_titles_are_explained() -> None:
    from trainscale.analyse.series import _TITLE_MARKS

    marks = {mark.removeprefix(" · ") for mark in _TITLE_MARKS.values() if mark}
    explained = under(text("results.md"), "## Titles and their marks")
    assert marks <= {row[0].strip("`") for row in rows(explained)}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_experiment_files_in_the_docs_are_valid(page: Path, tmp_path: Path) -> None:
    for content in blocks(page.read_text(), "toml"):
        path = tmp_path / "shown.toml"
        path.write_text(content)
        assert read_experiment_file(path, launcher_groups())


# ---- models and defaults


@pytest.mark.parametrize("name", models.names())
def test_every_model_is_listed_with_its_exact_counts(name: str) -> None:
    graph, info = models.build(name), models.MODELS[name]
    row = next(row for row in rows(text("models.md")) if row[0] == f"`{name}`")
    channels, size = graph.input_shape[0], graph.image_size
    assert row[1:3] == [f"{channels}×{size}×{size}", str(graph.classes)]
    assert row[3] == f"{graph.parameter_count:,}"
    assert row[4:6] == [f"{graph.gradient_bytes / 1e6:.1f}", f"{graph.macs / 1e9:.3f}"]
    assert coded(row[7]) == set(info.aliases)
    smallest = int(row[6])
    assert models.build(name, smallest)
    if smallest > 1:
        with pytest.raises(models.ShapeError):
            models.build(name, smallest - 1)


def test_every_layer_kind_is_named() -> None:
    assert set(models.KINDS) <= coded(text("models.md"))


def test_the_table_of_defaults_is_that_of_the_code() -> None:
    head, _, *body = rows(text("defaults.md"))
    columns = (*GPUS, CPU)
    assert head == ["model", *(row.device for row in columns)]
    batches = {f"`{name}`": [str(row.batch(name)) for row in columns] for name in models.names()}
    assert {row[0]: row[1:] for row in body} == {**batches, "any other": [str(row.other_batch) for row in columns]}


# ---- results


def record(**changes: Any) -> TrialRecord:
    rank = RankSample(rank=0, host="host", samples=80, window_seconds=1.0, step_seconds=(0.1,) * 10)
    values = {"trial": Trial(CONFIG, 1, 0), "status": OK, "started": "", "seconds": 2.0, "ranks": (rank,)}
    return TrialRecord(**{**values, **changes})


def test_every_column_of_results_csv_is_described() -> None:
    from trainscale.report.csv_files import results_csv

    (columns,) = csv.reader(results_csv([]).splitlines())
    section = text("results.md").partition("## results.csv")[2].partition("\n## ")[0]
    described = [name for row in rows(section) for name in re.findall(r"`([^`]+)`", row[0])]
    assert sorted(described) == sorted(columns)


def test_every_field_of_results_json_is_described() -> None:
    from trainscale.analyse.series import build_series
    from trainscale.report.json_file import results_json

    document = json.loads(results_json(RunInfo({}), build_series([record()])))
    (series,) = document["series"]
    (point,) = series["points"]
    section = text("results.md").partition("## results.json")[2].partition("\n## ")[0]
    assert {*document, *series, *point, *point["images_per_second_cluster"]} <= coded(section)


def test_every_field_of_the_journal_is_described() -> None:
    failed = record(status=OUT_OF_MEMORY, failure=Failure(OUT_OF_MEMORY, "too large"))
    line = json.loads(json.dumps(failed.to_dict()))
    section = text("results.md").partition("## trials.jsonl")[2].partition("\n## ")[0]
    assert {*line, *line["config"], *line["ranks"][0], *line["failure"]} <= coded(section)
    later = set(OMITTED_DEFAULTS)
    assert {field.name for field in fields(Config)} == {*line["config"], *later}
    assert later <= coded(section)


def test_every_field_of_run_json_is_described() -> None:
    from trainscale.record.provenance import collect_provenance
    from trainscale.run.identity import make_spec
    from trainscale.spec.plan import make_plan

    experiment = Experiment()
    plan = make_plan(experiment, _supply(experiment))
    run = RunInfo(make_spec(plan), collect_provenance(["run"], MACHINE, {}))
    section = text("results.md").partition("## run.json")[2].partition("\n## ")[0]
    keys = {*run.to_dict(), *run.spec, "ladder", *run.provenance}
    assert keys - {"load at start"} <= coded(section)
    assert "`load at start`" in section


def test_every_status_is_described() -> None:
    from trainscale.record import trial

    statuses = {trial.OK, trial.OUT_OF_MEMORY, trial.CRASH, trial.TIMEOUT, trial.HANG, trial.LOST, trial.REFUSED}
    statuses |= {trial.MISSING, trial.SKIPPED}
    section = text("results.md").partition("## Statuses")[2].partition("\n## ")[0]
    assert {row[0].strip("`") for row in rows(section)} >= statuses


# ---- commands

EIGHT_GPUS = tuple(Gpu(index, "NVIDIA A100-SXM4-80GB", 80 * GIB, "570") for index in range(8))
MACHINE = Machine("host", "a CPU", tuple(range(16)), 1, 64 * GIB, 60 * GIB, EIGHT_GPUS, "", 0.0, 0.0)


def _supply(experiment: Experiment) -> Any:
    from trainscale.cluster.devices import find_local_devices

    return find_local_devices(MACHINE, experiment)


class Reached(BaseException):
    """The command was understood, planned, and about to look for its framework."""


def commands() -> list[list[str]]:
    """All different ``trainscale`` commands in the docs, as words."""
    lines = [line for page in PAGES for block in blocks(page.read_text(), "sh") for line in block.splitlines()]
    argv_list = [tuple(shlex.split(line, comments=True)[1:]) for line in lines if line.startswith("trainscale ")]
    return [list(command) for command in dict.fromkeys(argv_list)]


def test_there_are_commands_to_try() -> None:
    assert len(commands()) > 20


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
    for command in ("plan", "run"):
        monkeypatch.setattr(f"trainscale.cli.{command}.connect_cluster", _reach)
    monkeypatch.setattr("trainscale.cli.parity.read_machine", lambda: MACHINE)
    photographs = DatasetFacts("imagenet", 1000, 3, 0, 1_281_167, 50_000, *PHOTOGRAPHS)
    monkeypatch.setattr("trainscale.spec.data.read_facts", lambda name, _: KNOWN.get(name, photographs))
    return tmp_path


def _reach(place: Target, experiment: Experiment, *_: object) -> AllReached:
    """Every host answers, and is such a machine."""
    how = place.make_launcher()
    hosts = [DeviceHost(MACHINE, host.name, host.address) for host in place.access.hosts]
    return AllReached(how, find_devices(hosts, experiment) if hosts else _supply(experiment), MACHINE)


@pytest.mark.parametrize("argv", commands(), ids=" ".join)
def test_the_commands_in_the_docs_are_understood(
    argv: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def reached(*_: object) -> None:
        raise Reached

    monkeypatch.setattr("trainscale.cli.run.check_frameworks", reached)
    monkeypatch.setattr("trainscale.cli.parity.check_frameworks", reached)
    before = sorted(folder.rglob("*"))
    if {"slurm", "yarn", "ray"} & {*argv}:  # would ask the cluster: here only its parser
        assert cli.main([*argv, "--no-such-flag"]) == 2
        assert "unknown flag" in capsys.readouterr().err
    elif argv[0] in ("run", "parity"):
        with pytest.raises(Reached):
            cli.main(argv)
    elif argv[0] == "compare":
        assert cli.main(argv) == 2
        assert "there is no such run" in capsys.readouterr().err
    elif argv[0] in ("report", "best", "explain"):
        assert cli.main(argv) == 2
        assert "no run was recorded here" in capsys.readouterr().err
    elif argv[:2] == ["env", "create"]:
        monkeypatch.setattr("trainscale.cli.env.create", reached)
        with pytest.raises(Reached):
            cli.main(argv)
    elif argv[0] == "launch":  # what follows its own flags is a program's
        assert cli.main(["launch", "--no-such-flag", *argv[1:]]) == 2
        assert "unknown flag" in capsys.readouterr().err
    elif argv[0] in (
        "check",
        "env",
        "cluster",
        "parse-log",
        "data",
    ):  # would start the framework, or look at this user's: here only its parser
        assert cli.main([*argv, "--no-such-flag"]) == 2
        assert "unknown flag" in capsys.readouterr().err
    else:
        assert cli.main(argv) == 0
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_readme_names_every_command(command: str) -> None:
    assert re.search(rf"`trainscale {command}\b", (ROOT / "README.md").read_text())


def test_the_make_targets_of_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"(?:`|^)make ([a-z-]+)", page.read_text(), re.MULTILINE)}
    assert {"run", "test"} <= named <= targets


# ---- links and paths


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_relative_links_lead_somewhere(page: Path) -> None:
    for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if "://" in link:
            continue
        target, _, anchor = link.partition("#")
        there = (page.parent / target).resolve() if target else page
        assert there.exists(), link
        assert not anchor or anchor in _anchors(there), link


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_code_that_the_docs_name_exists(page: Path) -> None:
    """Files of the package, written `folder/file.py`, and folders of the repository."""
    package = ROOT / "src" / "trainscale"
    for name in re.findall(r"`((?:[\w.-]+/)+[\w.-]+\.py)`", page.read_text()):
        if not name.startswith("my_package/") and "NAME" not in name:
            assert (package / name).exists() or (ROOT / name).exists(), name


def test_every_page_is_in_the_index_and_in_the_readme() -> None:
    pages = {page.name for page in DOCS.glob("*.md")} - {"index.md"}
    for home in (DOCS / "index.md", ROOT / "README.md"):
        linked = {Path(link).name for link in re.findall(r"\]\(([^)#\s]+\.md)", home.read_text())}
        assert pages <= linked, home.name


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
