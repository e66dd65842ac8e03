"""Charts are drawn in a process of their own. Where it cannot draw, there are all tables, and a reason."""

import os
import signal
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from command import SUPPORT
from factories import curve, make_config, make_run
from reported import write_outputs

from trainscale.report import drawing
from trainscale.report.charts import draw_speedup
from trainscale.report.drawing import (
    ChartsUnavailable,
    begin_drawing,
    call_vl_convert,
    end_drawing,
    load_vega_bundle,
    to_svg,
)

PROCESSES = pytest.mark.processes
EMPTY = {"mark": "point", "data": {"values": []}}
RECORDS = curve(make_config(), {1: 10.0, 2: 19.0}, repeats=3, spread=0.01)
# As in a shell after ulimit -v 40000000.
LIMITED = """
import resource, sys
sys.path[:0] = sys.argv[2:]
from factories import curve, make_config, make_run
from pathlib import Path
from reported import write_outputs
resource.setrlimit(resource.RLIMIT_AS, (40_960_000_000, 40_960_000_000))
records = curve(make_config(), {1: 10.0, 2: 19.0}, repeats=3, spread=0.01)
print(write_outputs(Path(sys.argv[1]), make_run(), records))
"""


@pytest.fixture
def own_process() -> None:
    """This test has a process of its own, because it ends it."""
    end_drawing()
    begin_drawing()


def pid() -> int:
    return drawing._start_process()[0].pid


@PROCESSES
def test_one_process_draws_all_charts(own_process: None) -> None:
    first = pid()
    assert call_vl_convert("vegalite_to_svg", EMPTY).startswith("<svg ")
    begin_drawing()
    svg = "<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>"
    assert call_vl_convert("svg_to_pdf", svg).startswith(b"%PDF")
    assert pid() == first


@PROCESSES
def test_a_chart_that_is_wrong_is_named_in_the_reason_and_the_next_report_has_charts_again(own_process: None) -> None:
    with pytest.raises(ChartsUnavailable, match="the process that draws them ended with exit code 1: TypeError"):
        call_vl_convert("vegalite_to_svg", {"mark": 1})
    begin_drawing()
    assert call_vl_convert("vegalite_to_svg", EMPTY).startswith("<svg ")


@PROCESSES
def test_where_it_dies_the_tables_are_there_and_the_next_report_has_charts_again(
    own_process: None, tmp_path: Path
) -> None:
    write_outputs(tmp_path, make_run(), RECORDS)
    whole = {path.name for path in tmp_path.iterdir()}
    os.kill(pid(), signal.SIGKILL)
    with pytest.raises(ChartsUnavailable, match="the process that draws them was ended by SIGKILL"):
        call_vl_convert("vegalite_to_svg", EMPTY)
    with pytest.raises(ChartsUnavailable):
        to_svg(draw_speedup([]), standalone=True)
    write_outputs(tmp_path, make_run(), RECORDS)
    assert {path.name for path in tmp_path.iterdir()} == whole


@PROCESSES
def test_with_few_addresses_there_are_all_tables_and_the_reason_why_charts_are_missing(tmp_path: Path) -> None:
    (tmp_path / "comparison_graph.svg").write_text("of an earlier report")
    folders = [str(SUPPORT), str(SUPPORT.parent / "analyse")]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(tmp_path), *folders], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (reason,) = done.stdout.splitlines()
    assert "the process that draws them was ended by SIG" in reason
    assert "Fatal process out of memory" in reason
    assert "its addresses are limited to 38 GiB (ulimit -v), and it needs more" in reason
    tables = {"report.html", "report.md", "results.csv", "results.json", "csv_torch"}
    assert {path.name for path in tmp_path.iterdir()} == tables
    page = (tmp_path / "report.html").read_text()
    assert "There is no picture of this chart: the process that draws them was ended by SIG" in page


@PROCESSES
def test_it_ends_with_this_process() -> None:
    program = (
        "from trainscale.report import drawing\n"
        "drawing.call_vl_convert('vegalite_to_svg', {'mark': 'point', 'data': {'values': []}})\n"
        "print(drawing._start_process()[0].pid)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


# ---- the JavaScript of Vega is made once and kept in the user's cache


@pytest.fixture
def bundles(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The snippets for which a bundle was made."""
    snippets: list[str] = []

    def make_bundle(_: str, snippet: str) -> str:
        snippets.append(snippet)
        return f"vega(); {snippet} '</script>'"

    monkeypatch.setattr(drawing, "call_vl_convert", make_bundle)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return snippets


def test_the_bundle_is_made_once_for_each_version_of_vl_convert(
    bundles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = load_vega_bundle()
    assert load_vega_bundle() == first == "vega(); window.vegaEmbed = vegaEmbed; '<\\/script>'"
    assert len(bundles) == 1
    (kept,) = (path for path in tmp_path.rglob("*") if path.is_file())
    assert kept.name == f"{metadata.version('vl-convert-python')}.js"
    monkeypatch.setattr(metadata, "version", lambda _: "0.0.1")
    load_vega_bundle()
    assert len(bundles) == 2


def test_a_cache_that_cannot_be_used_is_no_obstacle(
    bundles: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert load_vega_bundle()
