"""Exporters by name, those of plug-ins, what is said where a package is missing, lines for JUBE, and recipes."""

import io
import re
import sys
from contextlib import redirect_stdout
from pathlib import Path
from xml.etree import ElementTree

import pytest
from factories import curve, make_config, make_record
from packages import use, write_installed_package
from stored_runs import ALLREDUCE, two_series, write_run

from trainscale.errors import InputError, TrainscaleError
from trainscale.export.base import EXPORTERS, Destination, Exporter, load_exporter
from trainscale.export.tables import list_summary_lines
from trainscale.launch import plugins
from trainscale.runs import Run

PAGE = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
COUNTING = """
from trainscale.export.base import Exporter
class Counting(Exporter):
    name, description = "counting", "counts trials"
    def export(self, runs, destination):
        return f"{sum(len(run.rows) for run in runs)} for {destination.project}\\n"
def function(): pass
"""


@pytest.fixture
def with_plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entries = {
        "counting": "my_exporters.exporters:Counting",
        "csv": "my_exporters.exporters:Counting",
        "function": "my_exporters.exporters:function",
        "missing": "my_exporters.nowhere:Missing",
    }
    folder = write_installed_package(
        tmp_path / "site", "my-exporters", {"exporters.py": COUNTING}, {"trainscale.exporters": entries}
    )
    monkeypatch.syspath_prepend(str(folder))
    use(monkeypatch, folder)
    plugins.load_plugins.cache_clear()
    monkeypatch.setattr("trainscale.export.base.load_plugins", plugins.load_plugins.__wrapped__)


@pytest.mark.parametrize("name", EXPORTERS)
def test_every_exporter_has_the_name_that_people_type(name: str) -> None:
    exporter = load_exporter(name)
    assert isinstance(exporter, Exporter)
    assert exporter.name == name
    assert exporter.description


@pytest.mark.usefixtures("with_plugins")
def test_a_package_adds_an_exporter_by_an_entry_point(tmp_path: Path) -> None:
    run = Run.open(write_run(tmp_path / "run", [make_record()]))
    assert load_exporter("counting").export([run], Destination(project="ours")) == "1 for ours\n"


@pytest.mark.usefixtures("with_plugins")
def test_a_plugin_cannot_replace_a_built_in_exporter() -> None:
    assert type(load_exporter("csv")).__name__ == "CsvExporter"


@pytest.mark.usefixtures("with_plugins")
@pytest.mark.parametrize(
    ("name", "reason"),
    [("missing", "cannot be used: ModuleNotFoundError"), ("function", "is not a class that implements Exporter")],
)
def test_a_broken_exporter_of_a_plugin_is_named_when_it_is_used(name: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        load_exporter(name)


@pytest.mark.parametrize(("name", "output"), [("mlflow", "http://127.0.0.1:9"), ("wandb", "."), ("parquet", "x")])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    name: str, output: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("mlflow", "wandb", "pyarrow", "pyarrow.parquet"):
        monkeypatch.setitem(sys.modules, module, None)
    run = Run.open(write_run(tmp_path / "run", [make_record()]))
    package = "pyarrow" if name == "parquet" else name
    with pytest.raises(TrainscaleError, match=f"--to {name} needs the package {package}(?s:.*)pip install {package}$"):
        load_exporter(name).export([run], Destination(output))


@pytest.mark.parametrize(
    ("name", "output", "message"),
    [("mlflow", None, "no server is named"), ("wandb", "nowhere", "there is no such directory")],
)
def test_an_exporter_needs_a_place(
    name: str, output: str | None, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    run = Run.open(write_run(tmp_path / "run", [make_record()]))
    with pytest.raises(InputError, match=message):
        load_exporter(name).export([run], Destination(output))


# ---- lines for ReFrame and JUBE


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run.open(write_run(tmp_path / "first", two_series()))


def test_summary_lines_have_a_key_a_number_and_a_unit(run: Run) -> None:
    lines = list(list_summary_lines(run))
    assert lines[:6] == [
        "trials: 18 trials",
        "failed_trials: 3 trials",
        "torch_alexnet_b32_allreduce.n1.images_per_second: 100 images/s",
        "torch_alexnet_b32_allreduce.n1.step_time: 320 ms",
        "torch_alexnet_b32_allreduce.n1.speedup: 1 times",
        "torch_alexnet_b32_allreduce.n1.efficiency: 100 %",
    ]
    assert "torch_alexnet_b32_allreduce.n2.efficiency: 95 %" in lines
    assert not any("ps1.n4" in line for line in lines)


def test_the_patterns_for_jube_in_the_docs_read_the_lines(run: Run) -> None:
    """JUBE replaces its variables by these expressions and searches the output."""
    variables = {"$jube_pat_int": r"([+-]?\d+)", "$jube_pat_fp": r"([+-]?\d*\.?\d+(?:[eE][-+]?\d+)?)"}
    (block,) = re.findall(r"```xml\n(<patternset.*?</patternset>)", PAGE, re.DOTALL)
    lines = "\n".join(list_summary_lines(run))
    values = {}
    for pattern in ElementTree.fromstring(block):
        expression = pattern.text or ""
        for name, text in variables.items():
            expression = expression.replace(name, text)
        values[pattern.get("name")] = re.findall(expression, lines)
    assert values == {"failed": ["3"], "speed2": ["190", "150"], "efficiency2": ["95", "75"]}


def test_no_key_is_there_twice_and_none_needs_quoting(tmp_path: Path) -> None:
    configs = [make_config(model=model, strategy=s) for model in ("a:b", "a_b") for s in ("allreduce", "local")]
    run = Run.open(write_run(tmp_path / "run", [make_record(config) for config in configs]))
    lines = list(list_summary_lines(run))
    matches = [re.fullmatch(r"([\w.-]+): (\S+) (\S+)", line) for line in lines]
    assert all(matches)
    assert len({match[1] for match in matches if match}) == len(lines) == 2 + 4 * 4


# ---- recipes of docs/export.md


def follow_recipe(folder: Path, heading: str, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the lines that a recipe prints for the trials of two runs: one with three points, one with one."""
    runs = [write_run(folder / "first", curve(ALLREDUCE, {1: 100, 2: 200, 4: 320}, 2))]
    runs.append(write_run(folder / "second", curve(make_config(model="vgg16"), {1: 50})))
    table = load_exporter("csv").export([Run.open(run) for run in runs], Destination())
    (folder / "trials.csv").write_text(table)
    monkeypatch.chdir(folder)
    (recipe,) = re.findall(
        r"```python\n(.*?)```", PAGE.partition(f"\n## {heading}")[2].partition("\n## ")[0], re.DOTALL
    )
    with redirect_stdout(io.StringIO()) as printed:
        exec(compile(recipe, heading, "exec"), {})
    return printed.getvalue().splitlines()


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_recipe_for_prometheus_gives_a_gauge_of_every_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head, *samples = follow_recipe(tmp_path, "Prometheus", monkeypatch)
    assert head == "# TYPE trainscale_samples_per_second gauge"
    pattern = r'trainscale_samples_per_second\{run="(.*)",series="(.*)",devices="(\d)"\} (.*)'
    values = [match.groups() for line in samples if (match := re.fullmatch(pattern, line))]
    speeds = [(run, devices, round(float(value))) for run, _, devices, value in values]
    assert speeds == [("first", "1", 100), ("first", "2", 200), ("first", "4", 320), ("second", "1", 50)]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_the_recipe_for_extra_p_has_all_repeats_of_every_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = follow_recipe(tmp_path, "Extra-P", monkeypatch)
    title = "AlexNet · torch · allreduce"
    assert lines[:5] == ["PARAMETER devices", "POINTS 1 2 4", "", f"REGION {title}", "METRIC step_device_seconds"]
    data = [list(map(float, line.split()[1:])) for line in lines[5:]]
    assert data == [pytest.approx([seconds] * 2) for seconds in (0.32, 0.64, 1.6)]


def test_the_recipe_for_reframe_is_python() -> None:
    (recipe,) = re.findall(r"```python\n(import reframe.*?)```", PAGE, re.DOTALL)
    compile(recipe, "check.py", "exec")
