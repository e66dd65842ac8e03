"""The files and last lines of the older scripts."""

from __future__ import annotations

from factories import curve, make_config, mxnet_records

from trainscale.analyse.series import build_series
from trainscale.report.outputs import list_summary_lines, make_original_files

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


def test_a_models_graph_shows_it_alone_and_the_comparison_shows_all() -> None:
    files = make_original_files(build_series(mxnet_records()), TYPED)
    titles = ("AlexNet", "Inception v3", "ResNet-152")
    assert [title in files["logs/alexnet_b512.svg"] for title in titles] == [True, False, False]
    assert all(title in files["comparison_graph.svg"] for title in titles)
    assert "images/s" in files["logs/alexnet_b512.svg"]


def test_frameworks_share_no_file() -> None:
    records = [record for name in ("mxnet", "torch") for record in curve(make_config(framework=name), {1: 5.0})]
    files = make_original_files(build_series(records), {})
    assert [name for name in files if name.endswith(".csv")] == [
        "logs/alexnet_b32_mxnet.csv",
        "csv_mxnet/alexnet_b32.csv",
        "logs/alexnet_b32_torch.csv",
        "csv_torch/alexnet_b32.csv",
    ]


def test_names_that_are_the_same_as_files_are_told_apart() -> None:
    records = [record for name in ("a.b:c", "a.b_c") for record in curve(make_config(model=name), {1: 5.0})]
    files = make_original_files(build_series(records), {})
    assert len([name for name in files if name.startswith("logs/") and name.endswith(".csv")]) == 2


def test_without_any_result_there_are_no_files() -> None:
    series = build_series(curve(make_config(), {1: None}))
    assert make_original_files(series, {}) == {}
    assert "Completed" not in "\n".join(list_summary_lines(series, []))


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
    series = build_series(curve(make_config(), {1: 10.0, 2: None}))
    lines = list_summary_lines(series, [])
    assert "Completed tests on 1 CPU devices" in lines
    assert lines[-1].startswith("Failed: AlexNet · torch · allreduce on 2 devices: ")
    assert "out of memory" in lines[-1]
