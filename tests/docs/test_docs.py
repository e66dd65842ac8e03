"""The documentation says what the code does: options, environments, frameworks, parity, counts and defaults."""

import re
from dataclasses import fields

import pytest
from doc_pages import PAGES, ROOT, coded, rows, text, under
from parsers import collect_parsers

from trainscale.cli import runscalabilitytest
from trainscale.cluster.environments import ABSENT, BROKEN, DEFINITIONS, INCOMPLETE, OUTDATED, OWN, READY
from trainscale.spec.choices import CPU, GPUS
from trainscale.spec.groups import collect_settings
from trainscale.spec.settings import Setting
from trainscale.worker import models
from trainscale.worker.frameworks.catalog import FRAMEWORKS, STRATEGIES, Framework

SETTINGS = collect_settings()
OWN_FRAMEWORKS = [framework for framework in FRAMEWORKS.values() if framework.plugin is None]


def find_option(key: str) -> str:
    """Return the entry of a setting in the list of options, as one line."""
    (entry,) = re.findall(rf"^- `{key}` \(.*(?:\n  .*)*", text("options.md"), re.MULTILINE)
    return " ".join(entry.split())


@pytest.mark.parametrize("field", SETTINGS.values(), ids=SETTINGS)
def test_every_setting_has_an_entry_with_its_key_flags_and_default(field: Setting) -> None:
    entry, _, default = find_option(field.key).partition(" Default: ")
    assert set(field.flags) <= coded(entry.partition(": ")[0])
    default = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", default).replace("`", "")  # without links and code marks
    assert default == (field.default_phrase or "none")


@pytest.mark.parametrize("command", ["run", "watch", "study", "completion", "export"])
def test_every_flag_of_a_command_is_described(command: str) -> None:
    flags = {name for action in collect_parsers()[command].actions for name in action.option_strings}
    assert flags | {"--help", "--version"} <= coded(text("options.md")) | coded(text("study.md"))


def test_no_page_names_a_flag_that_does_not_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        runscalabilitytest.main(["--help"])
    known = set(re.findall(r"--[a-z][a-z_-]*", capsys.readouterr().out)) | {"--help", "--version"}
    known |= {flag for parser in collect_parsers().values() for a in parser.actions for flag in a.option_strings}
    others = {"--max-device", "--strict", "--constraint"}  # wrong on purpose, mypy's, sbatch's
    programs = [path for folder in ("bench", "tests/chaos", "tests/fuzz") for path in (ROOT / folder).glob("*.py")]
    for program in programs:
        others |= set(re.findall(r'add(?:_argument)?\(\s*"(--[a-z][a-z-]*)"', program.read_text()))
    script = (ROOT / "examples/mnist.py").read_text()  # its flags are in docs/mnist.md
    others |= {f"--{name}" for name in re.findall(r'^    add\("(\w+)"', script, re.MULTILINE)}
    for page in PAGES:
        spans = [span for span in re.findall(r"`([^`\n]+)`", page.read_text()) if not span.startswith("pip")]
        named = {flag for span in spans for flag in re.findall(r"(?<![\w-])--[a-z][a-z_-]*", span)}
        assert named <= known | others, page.name


@pytest.mark.parametrize("name", DEFINITIONS)
def test_every_environment_has_a_row_with_its_frameworks_and_versions(name: str) -> None:
    (row,) = (row for row in rows(text("environments.md")) if row[0] == f"`{name}`")
    assert set(DEFINITIONS[name].frameworks) <= coded(row[1])
    pins = [line.split(";")[0] for line in DEFINITIONS[name].read_requirements(cuda=False)]
    versions = dict(pin.split("==") for pin in pins)
    for version in re.findall(r"\d+\.\d+\.\d+", row[2].partition("(")[0]):
        assert version in versions.values() or version == "1.23.5", version


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("environments.md", {READY, OUTDATED, INCOMPLETE, BROKEN, OWN, ABSENT}),
        ("running.md", set(STRATEGIES)),
        ("models.md", set(models.KINDS)),
    ],
)
def test_every_state_strategy_and_kind_of_layer_is_explained(page: str, names: set[str]) -> None:
    assert names <= coded(text(page))


@pytest.mark.parametrize("framework", OWN_FRAMEWORKS, ids=lambda framework: framework.name)
def test_the_tables_of_strategies_layouts_and_precisions_are_those_of_the_code(framework: Framework) -> None:
    head, _, *body = rows(under(text("running.md"), "### Which framework offers what"))
    assert head == ["framework", *(f"`{name}`" for name in STRATEGIES)]
    (row,) = (row for row in body if row[0] == f"`{framework.name}`")
    assert row[1:] == [framework.engines.get(name, "–") for name in STRATEGIES]
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
    assert coded(row[1]) == set(framework.engines)
    assert framework.name in coded(find_option("frameworks"))
    sharing = rows(under(text("running.md"), "### GPUs"))
    (row,) = (row for row in sharing if framework.name in coded(row[0]))
    assert coded(row[1]) & set(framework.engines) == set(framework.shares_gpus) & set(framework.engines)
    described = [
        row for row in rows(under(text("method.md"), "## How each framework runs")) if framework.name in coded(row[0])
    ]
    assert described


def test_the_tolerances_of_parity_are_those_of_the_code() -> None:
    from trainscale.measure.parity import ParityNumbers, compare

    weights = {"before/a": [1.0], "first/a": [1.5], "after/a": [2.0]}
    others = {"dropout/a": [0.5, 2.0, 0.5, 1e5], "pixels": [0.0, 0.0]}
    numbers = ParityNumbers(1, 1, {"logits/0": [1.0], "losses": [1.0], **weights, **others})
    checks = compare((numbers, numbers), (numbers, numbers))
    table = [row for row in rows(under(text("method.md"), "## The same work")) if len(row) == 4]
    assert [(row[0], float(row[2])) for row in table[2:]] == [(check.name, check.tolerance) for check in checks]


def test_the_sizes_of_a_parity_check_are_those_of_the_code() -> None:
    from trainscale.launch.tasks import BATCH, PARITY_SECONDS, STEPS
    from trainscale.measure.expectations import KEEP_SECONDS
    from trainscale.measure.parity import _AT_ONCE
    from trainscale.worker.inspection.parity import _FOLD

    section = " ".join(under(text("method.md"), "## The same work").split())
    assert f"### Weights as {_FOLD:,} numbers" in section
    assert f"the same {BATCH} images" in section
    assert (STEPS, _AT_ONCE, PARITY_SECONDS / 60, KEEP_SECONDS / 86400) == (3, 2, 20, 90)
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


@pytest.mark.parametrize("name", models.list_names())
def test_every_model_is_listed_with_its_exact_counts(name: str) -> None:
    graph, info = models.build(name), models.MODELS[name]
    row = next(row for row in rows(text("models.md")) if row[0] == f"`{name}`")
    channels, size = graph.input_shape[0], graph.image_size
    assert row[1:3] == [f"{channels}×{size}×{size}", str(graph.classes)]
    assert row[3] == f"{graph.parameter_count:,}"
    assert row[4:6] == [f"{4 * graph.parameter_count / 1e6:.1f}", f"{graph.macs / 1e9:.3f}"]
    assert coded(row[7]) == set(info.aliases)
    smallest = int(row[6])
    assert models.build(name, smallest)
    if smallest > 1:
        with pytest.raises(models.ShapeError):
            models.build(name, smallest - 1)


def test_the_table_of_defaults_is_that_of_the_code() -> None:
    head, _, *body = rows(text("models.md").partition("## Default batches")[2].partition("\n## ")[0])
    columns = (*GPUS, CPU)
    assert head == ["model", *(row.device for row in columns)]
    batches = {f"`{name}`": [str(row.choose_batch(name)) for row in columns] for name in models.list_names()}
    batches["any other"] = [str(row.other_batch) for row in columns]
    assert {name: row[1:] for row in body for name in row[0].split(", ")} == batches
