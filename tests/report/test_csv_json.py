"""The CSV files: the seeds' format, names that never clash nor lead elsewhere, results.csv; no cell is a formula."""

import csv
from pathlib import Path, PurePosixPath

import pytest
from factories import curve, make_config, make_run, mxnet_records

from trainscale.analyse.series import build_series
from trainscale.record.trial import TrialRecord
from trainscale.report.csv_json import (
    make_csv_cell,
    make_series_files,
    make_series_paths,
    make_slug,
    render_results_csv,
)
from trainscale.report.documents import escape
from trainscale.runs import Run
from trainscale.spec.config import Config, Trial


def names(*configs: Config) -> list[str]:
    return [f"{path}.csv" for path in make_series_paths(configs).values()]


def run_of(records: list[TrialRecord]) -> Run:
    return Run.from_records(make_run(), records)


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(text.splitlines()))


def test_the_published_curve_comes_out_as_the_seeds_wrote_it() -> None:
    files = make_series_files(build_series(mxnet_records()))
    assert files["csv_mxnet/inceptionv3_b32.csv"] == (
        "1,30.4\n2,59.61\n4,117.9\n8,233.39\n16,447.61\n32,882.57\n64,1761.24\n128,3416.2\n256,6660.98\n"
    )


@pytest.mark.parametrize(
    ("speeds", "files"),
    [
        ({1: 28.3171234, 2: None, 4: 110.0}, {"csv_torch/alexnet_b32.csv": "1,28.317\n4,110\n"}),
        ({1: 0.000123456}, {"csv_torch/alexnet_b32.csv": "1,0.000123\n"}),  # not rounded to zero
        ({1: None}, {}),
    ],
)
def test_a_point_without_a_result_has_no_line(speeds: dict[int, float | None], files: dict[str, str]) -> None:
    assert make_series_files(build_series(curve(make_config(), speeds))) == files


def test_names_get_a_suffix_only_where_they_would_clash() -> None:
    assert names(
        make_config(batch=512),
        make_config(batch=512, strategy="ps", servers=2),
        make_config(model="inceptionv3"),
        make_config(batch=512, framework="jax"),
    ) == [
        "csv_torch/alexnet_b512_allreduce.csv",
        "csv_torch/alexnet_b512_ps2.csv",
        "csv_torch/inceptionv3_b32.csv",
        "csv_jax/alexnet_b512.csv",
    ]


def test_the_suffix_says_what_differs() -> None:
    assert names(make_config(), make_config(precision="bf16", scaling="strong")) == [
        "csv_torch/alexnet_b32_weak_scaling_fp32.csv",
        "csv_torch/alexnet_b32_strong_scaling_bf16.csv",
    ]
    assert len(set(names(make_config(model="a:b"), make_config(model="a_b")))) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("torchvision:resnet50", "torchvision_resnet50"),
        ("my_pkg.mod:build", "my_pkg.mod_build"),
        ("../../etc/passwd", "etc_passwd"),
        ("a'; echo foo", "a_echo_foo"),
        ("ps-async:2", "ps-async2"),
        ("…", "model"),
    ],
)
def test_slugs_are_safe_file_names(text: str, expected: str) -> None:
    assert make_slug(text) == expected


def test_results_csv_has_a_row_for_every_point_with_its_scope() -> None:
    records = curve(make_config(), {1: 100.0, 2: 180.0, 4: None}, repeats=3, spread=0.01)
    on_one, on_two, on_four = rows(render_results_csv([run_of(records)]))
    assert float(on_two["images_per_second_cluster"]) == pytest.approx(180)
    assert float(on_two["images_per_second_per_device"]) == pytest.approx(90)
    assert float(on_two["speedup"]) == pytest.approx(1.8)
    assert float(on_two["efficiency_low"]) < 0.9 < float(on_two["efficiency_high"])
    counts = ("devices", "batch_per_device", "global_batch", "repeats")
    assert [on_two[name] for name in counts] == ["2", "32", "64", "3"]
    assert (on_two["framework"], on_two["strategy"], on_two["framework_version"]) == ("torch", "allreduce", "2.9.1")
    assert on_one["speedup_low"] == ""
    assert (on_four["status"], on_four["images_per_second_cluster"], on_four["speedup"]) == ("oom", "", "")
    assert on_four["reason"].startswith("CUDA out of memory")


def test_every_field_of_the_config_is_a_column_and_an_allocator_that_is_not_the_default() -> None:
    tuned, system = (curve(make_config(allocator=name), {1: 100.0}) for name in ("tuned", "system"))
    (row,) = rows(render_results_csv([run_of(tuned)]))
    assert set(make_config().to_dict()) - {"batch"} <= set(row)
    assert "allocator" not in row
    assert [row["allocator"] for row in rows(render_results_csv([run_of([*tuned, *system])]))] == ["tuned", "system"]
    assert render_results_csv([run_of([])]).count("\n") == 1, "a header"


# ---- names in a journal or of a plug-in cannot lead out of the folder of a run

HOSTILE = ["../../etc/passwd", "/etc/passwd", "..", ".", "a/../../b", "~root/x", "a\0b", "a\nb", "-rf", "C:\\x", ""]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_leads_nowhere_else(name: str, tmp_path: Path) -> None:
    assert PurePosixPath(make_slug(name)).parts == (make_slug(name),)
    assert not make_slug(name).startswith((".", "-", "~"))
    config = Config(name, name, 8, name, 28, 10, data=name)
    for path in make_series_paths([config]).values():
        assert (tmp_path / f"{path}.csv").resolve().is_relative_to(tmp_path)
        assert len(PurePosixPath(path).parts) == 2
    assert Trial(config, 2, 0).key.replace("-", "").isalnum(), "logs are named after a digest"


# ---- cells


@pytest.mark.parametrize("text", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1"])
def test_text_that_a_spreadsheet_would_compute_is_marked_as_text(text: str) -> None:
    assert make_csv_cell(text) == f"'{text}"


@pytest.mark.parametrize("value", ["resnet50", "node-1", "-1.5", "+2e3", -1.5, 0, True])
def test_everything_else_stays_as_it_is(value: object) -> None:
    assert make_csv_cell(value) is value
    assert make_csv_cell(None) == ""


def test_text_in_markdown_is_neither_markup_nor_a_link_nor_an_image() -> None:
    shown = escape("<img src=x> ![pixel](http://tracker.invalid/a.png)\n[here](javascript:alert(1))")
    assert "<" not in shown
    assert "](" not in shown
    assert "\n" not in shown
