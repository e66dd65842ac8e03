"""A run's directory gets all of its files, the same ones every time."""

from __future__ import annotations

import json
from pathlib import Path

from factories import curve, make_config, make_run, mxnet_records
from reported import write_outputs

MAIN = {"report.html", "report.md", "comparison_graph.svg", "images_per_sec.svg", "results.csv", "results.json"}


def contents(directory: Path) -> dict[str, bytes]:
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_all_files_are_written_and_named(tmp_path: Path) -> None:
    paths = write_outputs(tmp_path, make_run(), mxnet_records()).paths
    models = {"csv_mxnet/alexnet_b512.csv", "csv_mxnet/inceptionv3_b32.csv", "csv_mxnet/resnet152_b32.csv"}
    assert {str(path.relative_to(tmp_path)) for path in paths} == MAIN | models == set(contents(tmp_path))


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


def test_a_run_in_which_everything_failed_has_its_files(tmp_path: Path) -> None:
    write_outputs(tmp_path, make_run(), curve(make_config(), {1: None, 2: None}))
    assert set(contents(tmp_path)) == MAIN
    document = json.loads((tmp_path / "results.json").read_text())
    assert [point["status"] for point in document["series"][0]["points"]] == ["oom", "oom"]


def test_a_run_without_records_has_its_files(tmp_path: Path) -> None:
    write_outputs(tmp_path, make_run(), [])
    assert set(contents(tmp_path)) == MAIN


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
