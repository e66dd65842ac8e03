"""Published curves for people and programs: the list, a curve, the place of a run, a curve beside a run."""

from __future__ import annotations

import json
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
from published_runs import gpu_run, make_curve, make_series
from reported import reported
from rich.cells import cell_len

from trainscale.errors import InputError
from trainscale.questions.published.curves import (
    SENTENCES,
    WEAK_LABELLED_STRONG,
    PublishedCurve,
    PublishedPoint,
    find_curve,
    read_curves,
)
from trainscale.questions.published.near import (
    NeighbourComparison,
    compare_with_neighbours,
    describe_comparison,
    describe_work,
    list_neighbours,
    make_heading,
    render_like_json,
)
from trainscale.questions.published.text import (
    describe,
    make_curve_grid,
    make_curve_series,
    make_list_grid,
    overlay_curves,
    render_published_json,
    write_curve_chart,
)
from trainscale.report.charts import FULL, list_charts
from trainscale.report.drawing import VegaSpec
from trainscale.report.html import render_report_html
from trainscale.report.markdown import render_report_md
from trainscale.report.options import Overlay

DOCS = Path(__file__).parents[3] / "docs" / "published.md"
MXNET = find_curve("mxnet2016-p2-resnet152-b32")


# ---- the list and a curve


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_an_id_is_never_cut(width: int) -> None:
    grid = make_list_grid(read_curves(), width)
    assert [row[0].split()[0] for row in grid.rows] == [curve.id for curve in read_curves()]
    widths = [max(map(cell_len, cells)) + 2 for cells in zip(grid.header, *grid.rows, strict=True)]
    assert sum(widths) <= max(width, 80)


def test_a_wide_list_has_all_columns_and_marks_flags() -> None:
    grid = make_list_grid([MXNET, find_curve("mxnet2015-distributed-cifar10-b128")], 200)
    assert grid.rows[0] == ("mxnet2016-p2-resnet152-b32", "1–256", "90\u202f%", "ResNet-152", "K80", "weak", "fp32")
    assert grid.rows[1][0] == "mxnet2015-distributed-cifar10-b128 ⚑"
    assert grid.note.startswith("2 curves of 2 sources.")


def test_a_curve_is_a_table_with_efficiencies_and_no_empty_column() -> None:
    grid = make_curve_grid(MXNET)
    assert grid.header == ("devices", "hosts", "batch", "global", "images/s", "speed-up", "efficiency", "")
    assert grid.rows[-1] == ("256", "16", "32", "8,192", "4,630", "230.60×", "90.1\u202f%", "━" * 9)
    assert make_curve_grid(find_curve("chainermn2017-resnet50")).header == ("devices", "speed-up", "efficiency", "")


def test_source_flags_and_derived_figures_are_told() -> None:
    facts = dict(describe(find_curve("mxnet2015-distributed-cifar10-b128")))
    assert facts["URL"].startswith("https://github.com/apache/mxnet/")
    assert facts["10 devices"] == "11 s for an epoch of 60,000 images"
    assert "derived" in facts
    assert facts["⚑ flag"].startswith("an efficiency above 115\u202f% cannot be")
    mislabelled = dict(describe(find_curve("nvidia2021-resnet50-pytorch-a100-80gb-amp")))
    assert mislabelled["scaling"] == "weak, by the batches; the source calls it strong"
    assert mislabelled["⚑ flag"] == SENTENCES[WEAK_LABELLED_STRONG]


def test_the_json_has_every_field_and_the_page_describes_it() -> None:
    coded = set(re.findall(r"`([^`\n]+)`", DOCS.read_text()))
    document = json.loads(render_published_json([MXNET]))
    (curve,) = document["curves"]
    assert {field.name for field in fields(PublishedCurve)} | {"title"} == set(curve)
    assert {field.name for field in fields(PublishedPoint)} | {"hosts", "speedup"} == set(curve["points"][0])
    assert {*document, *curve, *curve["points"][0], *curve["source"], *curve["network"], "sentence"} <= coded
    assert curve["points"][-1]["efficiency"] == pytest.approx(4630.42 / 20.08 / 256)


@pytest.mark.parametrize(
    ("name", "title"), [(MXNET.id, "Speed-up"), ("torchtitan2024-llama3-8b-fsdp", "Tokens per second")]
)
def test_a_curve_is_drawn_into_a_file(name: str, title: str, tmp_path: Path) -> None:
    write_curve_chart(find_curve(name), tmp_path / "curve.svg")
    assert title in (tmp_path / "curve.svg").read_text()
    write_curve_chart(find_curve(name), tmp_path / "curve.png")
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")


# ---- am I normal?


def place(*curves: PublishedCurve, **changes: str) -> NeighbourComparison:
    series = make_series(**changes)
    return compare_with_neighbours(describe_work(series, gpu_run()), series.points[-1], curves)


def test_the_answer_is_one_sentence() -> None:
    comparison = place(*(make_curve(share / 100, f"c{share}") for share in (80, 90, 92, 94, 96)))
    assert describe_comparison(comparison) == (
        "ResNet-50 · torch · allreduce on 8 devices is low: its efficiency of 87.5\u202f±\u202f0.2\u202f% is in the"
        " lowest quarter of 5 near published points of ResNet-50 on A100 from 1 source"
        " (80–96\u202f%, median 92\u202f%)."
    )
    assert make_heading(comparison) == "The nearest published points: efficiency, devices, ID"
    assert list_neighbours(comparison)[0] == ("  80.0\u202f% at    8  c80", "differs in nothing that its source states")


def test_a_few_points_and_an_interval_that_spans_places_read_well() -> None:
    comparison = place(make_curve(0.9, data="real"))
    text = describe_comparison(comparison)
    assert "is low: its efficiency of 87.5\u202f±\u202f0.2\u202f% is below all 1 near published point from 1" in text
    assert text.endswith("; so few points are weak evidence.")
    several = replace(comparison, places=("lowest quarter", "middle half"))
    assert "is in the lowest quarter or in the middle half of 1" in describe_comparison(several)


def test_where_nothing_is_near_the_sentence_says_why() -> None:
    comparison = place(make_curve(0.9), device="cpu")
    assert "nothing published is near" in describe_comparison(comparison)
    assert "differs too much in hardware (no published point is of CPUs)" in describe_comparison(comparison)
    assert make_heading(comparison).startswith("The nearest published points, none of them near")
    assert list_neighbours(comparison) == [("  90.0\u202f% at    8  a", "differs in hardware: A100-80GB (DGX A100)")]


def test_a_long_list_is_cut_and_the_page_describes_every_field_of_the_json() -> None:
    comparison = place(*(make_curve(0.9, f"c{i}", data="real") for i in range(15)))
    assert len(list_neighbours(comparison)) == 12
    assert "(3 more: --json has all)" in make_heading(comparison)
    coded = set(re.findall(r"`([^`\n]+)`", DOCS.read_text()))
    document = json.loads(render_like_json([comparison]))
    (series,) = document["series"]
    point = series["points"][0]
    assert len(series["points"]) == 15
    assert {*document, *series, *series["efficiency"], *point, *point["differences"][0], *series["places"]} <= coded


# ---- beside a run


def lay(*curves: PublishedCurve, normalise: str = "speedup") -> Overlay:
    return overlay_curves([(gpu_run(), [make_series()])], curves, normalise)


def draw_throughput(overlay: Overlay) -> VegaSpec:
    (chart,) = [chart for chart in list_charts([make_series()], overlay) if chart.name == "images"]
    return chart.draw(FULL)


def test_a_sentence_says_what_differs() -> None:
    (line,) = lay(find_curve("tensorflow2017-dgx1-resnet50-b64-synthetic")).sentences
    assert line.sentence == (
        "published:tensorflow2017-dgx1-resnet50-b64-synthetic differs from ResNet-50 · torch · allreduce in hardware:"
        " P100 (DGX-1), not A100; batch per device: 64, not 256; precision: fp32, not tf32; framework: tensorflow, not"
        " torch; strategy: ps, not allreduce. It has no intervals."
    )
    assert line.url.startswith("https://github.com/tensorflow/")


def test_flags_and_a_missing_baseline_are_in_the_sentence() -> None:
    curves = (find_curve("torchtitan2024-llama3-8b-fsdp"), find_curve("nvidia2020-gnmt-v100-16gb-dgx-1-amp"))
    lines = lay(*curves).sentences
    assert "It begins at 8 devices, so it has no speed-up over 1 device." in lines[0].sentence
    assert f"Flag: {SENTENCES[WEAK_LABELLED_STRONG]}." in lines[1].sentence


@pytest.mark.parametrize(
    ("normalise", "is_shown", "title"),
    [
        ("speedup", False, "Images per second against devices"),
        ("absolute", True, "Images per second against devices"),
        ("per-device", True, "Images per second and device against devices"),
    ],
)
def test_the_reader_chooses_how_curves_are_normalised(normalise: str, is_shown: bool, title: str) -> None:
    curve = make_curve(0.9)
    points = tuple(replace(p, batch_per_device=None, global_batch=None) for p in curve.points)
    spec = json.dumps(draw_throughput(lay(replace(curve, points=points), normalise=normalise)), ensure_ascii=False)
    assert title in spec
    assert (curve.title in spec) == is_shown
    assert ('"Batch": "not stated"' in spec) == is_shown, "not 0"
    assert ('"value": 900.0, "low": null, "high": null' in spec) == (normalise == "per-device")


def test_the_page_and_the_text_have_the_curve_and_its_source() -> None:
    curve, series = make_curve(0.9, data="real"), make_series()
    overlay = overlay_curves([(gpu_run(), [series])], [curve])
    page = render_report_html(reported(gpu_run(), [series]), overlay=overlay)
    assert page.count(curve.title) > 3
    assert f'<a href="{curve.source.url}">' in page
    assert "Beside published curves" not in render_report_html(reported(gpu_run(), [series]))
    assert "\n## Beside published curves\n\n- " in render_report_md(reported(gpu_run(), [series]), overlay)
    assert curve.source.url in render_report_md(reported(gpu_run(), [series]), overlay)
    assert "Beside published curves" not in render_report_md(reported(gpu_run(), [series]))


# ---- curves as series


def test_a_curve_becomes_a_series_without_intervals() -> None:
    series = make_curve_series(find_curve("mxnet2016-p2-alexnet-b512"))
    last = series.points[-1]
    assert series.title == "AlexNet · mxnet · K80 · published 2016"
    assert (last.devices, last.hosts, last.batch_per_device, last.global_batch) == (256, 16, 512, 512 * 256)
    assert last.samples_per_second is not None
    assert (last.samples_per_second.mean, last.samples_per_second.low) == (61938.36, None)
    assert last.speedup is not None
    assert last.speedup.mean == pytest.approx(61938.36 / 457.07)


def test_a_curve_may_have_no_speedup_or_no_speed() -> None:
    series = make_curve_series(find_curve("torchtitan2024-llama3-8b-fsdp"))
    assert not series.has_baseline
    assert [point.devices for point in series.good] == [8, 128]
    with pytest.raises(InputError, match="vgg16: its source states an efficiency but no speeds"):
        make_curve_series(find_curve("horovod2018-512-vgg16"))


def test_a_curve_is_laid_beside_the_series_that_is_most_like_it() -> None:
    unlike, alike = make_series(model="alexnet", precision="fp32"), make_series()
    overlay = overlay_curves([(gpu_run(), [unlike, alike])], [make_curve(0.9, data="real")])
    (line,) = overlay.sentences
    assert line.sentence.startswith(f"published:a differs from {alike.title} in data: real, not synthetic.")


def test_titles_stay_different_and_a_curve_is_there_once() -> None:
    curves = [make_curve(0.9, "first"), make_curve(0.8, "second")]
    overlay = overlay_curves([(gpu_run(), [make_series()])], [*curves, curves[0]])
    assert [series.title for series in overlay.series] == [curves[0].title, "published:second"]


@pytest.mark.parametrize("normalise", ["absolute", "per-device"])
def test_other_units_are_not_in_one_chart_of_throughput(normalise: str) -> None:
    tokens = replace(make_curve(0.9), unit="tokens")
    with pytest.raises(InputError, match=f"--normalise {normalise}: published:a counts tokens, the run images"):
        overlay_curves([(gpu_run(), [make_series()])], [tokens], normalise)
    assert overlay_curves([(gpu_run(), [make_series()])], [tokens]).series
