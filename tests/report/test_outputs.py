"""A run has all of its files, the same ones every time; charts in the formats that are asked for; the older files."""

import json
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from factories import curve, learning_record, make_config, make_run, mxnet_records
from reported import write_outputs

from trainscale import cli
from trainscale.analyse.series import build_series
from trainscale.errors import InputError
from trainscale.report.options import ReportOptions, read_formats
from trainscale.report.outputs import list_summary_lines, make_original_files

MAIN = {"report.html", "report.md", "comparison_graph.svg", "images_per_sec.svg", "results.csv", "results.json"}


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_all_files_are_written_and_named(tmp_path: Path) -> None:
    assert write_outputs(tmp_path, make_run(), mxnet_records()) == ""
    models = {"csv_mxnet/alexnet_b512.csv", "csv_mxnet/inceptionv3_b32.csv", "csv_mxnet/resnet152_b32.csv"}
    assert set(contents(tmp_path)) == MAIN | models


def test_writing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    records = curve(make_config(), {1: 10.0, 2: 19.0, 4: None}, repeats=3, spread=0.01)
    write_outputs(tmp_path, make_run(), records)
    first = contents(tmp_path)
    write_outputs(tmp_path, make_run(), records)
    assert contents(tmp_path) == first


def test_a_name_that_is_no_longer_right_is_removed_and_nothing_else(tmp_path: Path) -> None:
    records = curve(make_config(), {1: 10.0})
    write_outputs(tmp_path, make_run(), records)
    (tmp_path / "csv_torch" / "notes.txt").write_text("mine")
    (tmp_path / "csv_mine").mkdir()
    (tmp_path / "csv_mine" / "alexnet_b32.csv").write_text("1,1\n")
    write_outputs(tmp_path, make_run(), [*records, *curve(make_config(strategy="local"), {1: 11.0})])
    assert set(contents(tmp_path)) - MAIN == {
        "csv_torch/alexnet_b32_allreduce.csv",
        "csv_torch/alexnet_b32_local.csv",
        "csv_torch/notes.txt",
        "csv_mine/alexnet_b32.csv",
    }


def test_a_run_in_which_everything_failed_or_nothing_was_recorded_has_its_files(tmp_path: Path) -> None:
    for records in ([], curve(make_config(), {1: None, 2: None})):
        write_outputs(tmp_path, make_run(), records)
        assert set(contents(tmp_path)) == MAIN
    document = json.loads((tmp_path / "results.json").read_text())
    assert [point["status"] for point in document["series"][0]["points"]] == ["oom", "oom"]


def test_results_json_has_units_definitions_and_the_run(tmp_path: Path) -> None:
    run = make_run(odd={"path": Path("/tmp"), "nan": float("nan")})
    write_outputs(tmp_path, run, curve(make_config(), {1: 10.0, 2: 19.0, 4: None}, repeats=3, spread=0.01))
    document = json.loads((tmp_path / "results.json").read_text())
    assert document["schema"] == 1
    assert document["run"]["spec"] == run.spec
    assert document["run"]["provenance"]["odd"] == {"path": "/tmp", "nan": None}
    assert {"±", "jitter", "efficiency", "speed-up"} <= set(document["definitions"])
    on_one, on_two, on_four = document["series"][0]["points"]
    assert on_two["images_per_second_cluster"]["low"] < 19.0 < on_two["images_per_second_cluster"]["high"]
    assert on_one["speedup"] == {"mean": 1.0, "low": None, "high": None}
    assert on_four["images_per_second_cluster"] is None
    assert on_four["failures"][0]["tail"] == ["step 3", "RuntimeError: CUDA out of memory"]
    assert document["series"][0]["versions"]["torch"] == "2.9.1"


# ---- every chart of a page becomes a file in the formats that are asked for

CHARTS = {"comparison_graph", "images_per_sec", "efficiency", "memory", "time_parts", "step_times_1"}


def test_every_chart_is_written_in_every_format(tmp_path: Path) -> None:
    records = curve(make_config(), {1: 100.0, 2: 180.0}, repeats=3, spread=0.01)
    write_outputs(tmp_path, make_run(), records, options=ReportOptions(formats=("png", "pdf", "svg")))
    for kind, signature in (("png", b"\x89PNG\r\n"), ("pdf", b"%PDF-"), ("svg", b"<svg ")):
        files = {path.stem: path.read_bytes() for path in tmp_path.glob(f"*.{kind}")}
        assert set(files) == CHARTS
        assert all(content.startswith(signature) for content in files.values()), kind
    width, height = struct.unpack(">II", (tmp_path / "comparison_graph.png").read_bytes()[16:24])
    assert width > 2 * 720, "a picture has twice the pixels of the chart"
    assert height > 2 * 420
    assert 'fill="white"' in (tmp_path / "comparison_graph.svg").read_text()
    write_outputs(tmp_path / "training", make_run(), [learning_record()], options=ReportOptions(formats=("png",)))
    assert {"accuracy.png", "accuracy_over_time.png"} <= {path.name for path in (tmp_path / "training").glob("*.png")}


def test_a_list_of_formats_is_read_and_a_wrong_one_is_refused() -> None:
    assert read_formats("PNG, pdf,png", "--format") == ("png", "pdf")
    for text in ("gif", "png,gif", ""):
        with pytest.raises(InputError, match="valid: png, pdf, svg"):
            read_formats(text, "--format")


# ---- the files and last lines of the older scripts

TYPED = {"resnet152": "resnet"}


def test_the_published_curves_come_out_under_the_names_that_a_person_typed() -> None:
    files = make_original_files(build_series(mxnet_records()), TYPED)
    names = ("alexnet_b512", "inceptionv3_b32", "resnet_b32")
    assert set(files) == {
        *(f"logs/{name}.csv" for name in names),
        *(f"logs/{name}.svg" for name in names),
        *(f"csv_mxnet/{name}.csv" for name in names),
        "comparison_graph.svg",
    }
    assert files["logs/resnet_b32.csv"].startswith("1,20.08\n2,38.76\n4,77.01\n")
    assert files["logs/resnet_b32.csv"] == files["csv_mxnet/resnet_b32.csv"]
    titles = ("AlexNet", "Inception v3", "ResNet-152")
    assert [title in files["logs/alexnet_b512.svg"] for title in titles] == [True, False, False]
    assert all(title in files["comparison_graph.svg"] for title in titles)
    assert "images/s" in files["logs/alexnet_b512.svg"]


def test_frameworks_share_no_file_and_names_that_are_the_same_as_files_are_told_apart() -> None:
    records = [record for name in ("mxnet", "torch") for record in curve(make_config(framework=name), {1: 5.0})]
    assert [name for name in make_original_files(build_series(records), {}) if name.endswith(".csv")] == [
        "logs/alexnet_b32_mxnet.csv",
        "csv_mxnet/alexnet_b32.csv",
        "logs/alexnet_b32_torch.csv",
        "csv_torch/alexnet_b32.csv",
    ]
    records = [record for name in ("a.b:c", "a.b_c") for record in curve(make_config(model=name), {1: 5.0})]
    files = make_original_files(build_series(records), {})
    assert len([name for name in files if name.startswith("logs/") and name.endswith(".csv")]) == 2


def test_the_last_lines_are_those_of_the_older_scripts() -> None:
    series = build_series(curve(make_config(device="cuda"), {1: 10.0, 2: 19.0, 4: 35.0}))
    files = make_original_files(series, {})
    assert list_summary_lines(series, list(files)) == [
        "Summary:",
        "Completed tests on 1, 2, 4 GPUs",
        "Data available in:",
        "csv_torch/alexnet_b32.csv",
        "logs/alexnet_b32.csv",
        "Data plotted in graph: comparison_graph.svg",
    ]


def test_a_point_that_failed_is_said_and_never_a_zero() -> None:
    lines = list_summary_lines(build_series(curve(make_config(), {1: 10.0, 2: None})), [])
    assert "Completed tests on 1 CPU devices" in lines
    assert lines[-1].startswith("Failed: AlexNet · torch · allreduce on 2 devices: ")
    assert "out of memory" in lines[-1]
    nothing = build_series(curve(make_config(), {1: None}))
    assert make_original_files(nothing, {}) == {}
    assert "Completed" not in "\n".join(list_summary_lines(nothing, []))


# ---- a broken installation is found before anything is measured


@pytest.mark.parametrize("library", ["altair", "vl_convert", "scipy.special"])
def test_a_run_names_a_library_that_cannot_be_imported_before_it_measures_or_writes_anything(
    library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, library, None)  # what import does with a module that is not there
    output = tmp_path / "run"
    assert cli.main(["run", "--models", "mnist:8", "--devices", "1", "--output", str(output)]) == 1
    error = capsys.readouterr().err
    assert re.search(rf"the library {library} cannot be imported .*; nothing was measured", error)
    assert "Traceback" not in error
    assert not output.exists()


@pytest.mark.processes
def test_where_memory_did_not_suffice_the_limit_is_named(tmp_path: Path) -> None:
    """The libraries need some 500 MB of addresses, so one of them cannot be loaded."""
    command = f"ulimit -v 300000; exec {sys.executable} -m trainscale run --models mnist:8 --output {tmp_path}/run"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == 1
    assert "limited to 292 MiB of addresses, which may not suffice: ulimit -v unlimited" in done.stderr
    assert "install trainscale again" not in done.stderr
