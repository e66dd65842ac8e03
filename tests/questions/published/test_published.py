"""Published curves beside a run, and in words: the list, a curve, the nearest points, the place of a run."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from factories import make_run
from published_runs import gpu_run, make_curve, make_series
from reported import render_page
from rich.cells import cell_len

from trainscale.errors import InputError
from trainscale.questions.published.curves import (
    SENTENCES,
    WEAK_LABELLED_STRONG,
    Network,
    PublishedCurve,
    PublishedPoint,
    Source,
    find_curve,
    read_curves,
)
from trainscale.questions.published.near import (
    CPU,
    NeighbourComparison,
    Trait,
    compare_with_neighbours,
    describe_comparison,
    describe_work,
    is_same_network,
    list_neighbours,
    list_traits,
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
from trainscale.report.details import PageDetails
from trainscale.report.drawing import VegaSpec
from trainscale.report.options import Overlay
from trainscale.report.pages import render_report_md
from trainscale.runs import Run


def standing(*curves: PublishedCurve, run_of: str = "NVIDIA A100-SXM4-80GB", **changes: Any) -> NeighbourComparison:
    """Where 87.5 % on 8 GPUs stands."""
    series = make_series(**changes)
    return compare_with_neighbours(describe_work(series, gpu_run(run_of)), series.points[-1], curves)


def spread(*percentages: int) -> list[PublishedCurve]:
    return [make_curve(share / 100, f"c{share}") for share in percentages]


@pytest.mark.parametrize(
    ("published", "verdict", "places"),
    [
        ((90, 92, 94, 96, 98), "low", ("below all",)),
        ((80, 90, 92, 94, 96), "low", ("lowest quarter",)),
        ((80, 84, 88, 92, 96), "normal", ("middle half",)),
        ((70, 72, 74, 76, 90), "high", ("highest quarter",)),
        ((70, 72, 74, 76, 80), "high", ("above all",)),
        ((90,), "low", ("below all",)),
        ((80, 95), "normal", ("middle half",)),
    ],
)
def test_the_efficiency_has_a_place(published: tuple[int, ...], verdict: str, places: tuple[str, ...]) -> None:
    answer = standing(*spread(*published))
    assert (answer.verdict, answer.places) == (verdict, places)
    assert len(answer.compared) == len(published)


def test_an_interval_that_reaches_the_middle_half_is_normal() -> None:
    wide = make_series({1: 900.0, 8: 6300.0})
    point = replace(wide.points[-1], efficiency=replace(wide.points[-1].efficiency, mean=0.8, low=0.7, high=0.93))  # type: ignore[type-var]
    answer = compare_with_neighbours(describe_work(wide, gpu_run()), point, spread(75, 92, 94, 96, 98))
    assert (answer.verdict, answer.places) == ("normal", ("below all", "middle half"))


@pytest.mark.parametrize(
    ("changes", "too_far"),
    [
        ({"devices": 4}, ()),
        ({"devices": 32}, ("hosts", "devices")),
        ({"devices": 32, "devices_per_host": 32}, ("devices",)),
        ({"batch": 64}, ()),
        ({"batch": 32}, ("batch",)),
        ({"scaling": "strong"}, ("scaling",)),
        ({"scaling": None}, ("scaling",)),
        ({"strategy": "pipeline"}, ("strategy",)),
        ({"devices_per_host": 1}, ("hosts",)),
        ({"devices_per_host": None}, ()),
        ({"network": Network("a", "A", 11_000_000, 2_000_000_000)}, ("network",)),
        ({"network": Network("a", "A", 25_000_000, 3_000_000_000)}, ()),
        ({"network": Network("a", "A", None, None)}, ("network",)),
        ({"precision": "fp32", "framework": "mxnet", "data": "real", "device": "V100", "hardware": "V100"}, ()),
    ],
)
def test_what_differs_too_much_is_not_near(changes: dict[str, Any], too_far: tuple[str, ...]) -> None:
    (neighbour,) = standing(make_curve(0.9, **changes)).neighbours
    assert neighbour.too_far == too_far


def test_nothing_is_near_a_cpu() -> None:
    series = make_series({1: 10.0, 2: 19.0}, device="cpu", precision="fp32", batch=32)
    work = describe_work(series, gpu_run())
    answer = compare_with_neighbours(work, series.points[-1], read_curves())
    assert work.device == CPU
    assert (answer.verdict, answer.compared, answer.places) == (None, (), ())
    assert "hardware" in answer.neighbours[0].too_far


def test_a_curve_has_one_neighbour_that_of_the_nearest_possible_device_count() -> None:
    curve = make_curve(0.9)
    points = (*curve.points, replace(curve.points[1], devices=16, global_batch=256 * 16))
    (neighbour,) = standing(replace(curve, points=points)).neighbours
    assert neighbour.point.devices == 8
    from_two = replace(curve, points=tuple(replace(point, devices=point.devices * 2) for point in curve.points))
    assert standing(from_two, make_curve(1.3)).neighbours == (), "no 1-device point, and an impossible one"


def test_points_of_the_same_network_on_the_same_device_are_preferred_where_there_are_enough() -> None:
    same = spread(90, 91, 92, 93, 94)
    others = [make_curve(0.5, f"v{i}", device="V100", hardware="V100") for i in range(5)]
    alike = standing(*same, *others)
    assert (len(alike.compared), alike.agree_in, alike.verdict) == (5, ("network", "hardware"), "low")
    fewer = standing(*same[:4], *others)
    assert (len(fewer.compared), fewer.agree_in) == (9, ("network",))
    few = standing(*same[:2], others[0])
    assert (len(few.compared), few.agree_in) == (3, ())


def test_the_nearest_come_first_and_sources_are_counted() -> None:
    other = Source("Another", "https://example.org", 2020)
    curves = [
        make_curve(0.9, "frame", framework="mxnet", source=other),
        make_curve(0.9, "count", devices=4),
        make_curve(0.9, "same"),
        make_curve(0.9, "batch", batch=128),
    ]
    answer = standing(*curves)
    assert [neighbour.curve.id for neighbour in answer.neighbours] == ["same", "frame", "batch", "count"]
    assert (answer.sources, answer.efficiencies) == (2, pytest.approx([0.9] * 4))


def test_the_real_table_has_neighbours_for_a_common_run() -> None:
    series = make_series()
    answer = compare_with_neighbours(describe_work(series, gpu_run()), series.points[-1], read_curves())
    assert answer.agree_in == ("network", "hardware")
    assert len(answer.compared) >= 10
    assert {neighbour.curve.device for neighbour in answer.compared} == {"A100"}


# ---- what differs


@pytest.mark.parametrize(
    ("model", "changes", "is_same"),
    [
        ("resnet50", {}, True),
        ("ResNet50-v1.5", {}, True),
        ("torchvision:resnet50", {}, True),
        ("resnet50", {"image_size": 128}, False),
        ("resnet50", {"classes": 1001}, True),
        ("resnet34", {"parameters": 21_797_672}, False),
        ("my_package.nets:mine", {"parameters": 25_557_032}, True),
        ("my_package.nets:mine", {"parameters": 25_557_031}, False),
    ],
)
def test_a_network_is_the_same_by_its_name_and_its_work(model: str, changes: dict[str, Any], is_same: bool) -> None:
    work = describe_work(make_series(model=model, **changes), gpu_run())
    assert is_same_network(work, make_curve(0.9)) == is_same


@pytest.mark.parametrize(
    ("gpus", "device"),
    [(["NVIDIA A100-SXM4-80GB"] * 8, "A100"), (["Tesla V100-SXM2-16GB", "NVIDIA A100"], "A100 and V100"), ([], "GPU")],
)
def test_the_device_is_that_of_the_machine(gpus: list[str], device: str) -> None:
    assert describe_work(make_series(), make_run(machine={"cpu": "A CPU", "gpus": gpus})).device == device
    hosts = make_run(hosts={"a": {"gpus": gpus[:1]}, "b": {"gpus": gpus[1:2]}})
    assert describe_work(make_series(), hosts).device == device, "hosts of a cluster tell the device too"


def test_all_that_differs_is_listed() -> None:
    work = describe_work(make_series(), gpu_run())
    assert list_traits(work, find_curve("tensorflow2017-dgx1-inceptionv3-b64-real")) == (
        Trait("network", "ResNet-50", "InceptionV3"),
        Trait("hardware", "A100", "P100 (DGX-1)"),
        Trait("batch per device", "256", "64"),
        Trait("precision", "tf32", "fp32"),
        Trait("framework", "torch", "tensorflow"),
        Trait("strategy", "allreduce", "ps"),
        Trait("data", "synthetic", "real"),
    )


def test_what_agrees_or_is_not_stated_does_not_differ() -> None:
    curve = make_curve(0.9, data="", scaling=None)
    silent = replace(curve, points=tuple(replace(p, batch_per_device=None, global_batch=None) for p in curve.points))
    for other in (make_curve(0.9), silent):
        assert list_traits(describe_work(make_series(), gpu_run()), other) == ()


def test_batches_of_weak_and_strong_scaling_are_not_set_against_each_other() -> None:
    work = describe_work(make_series(scaling="strong", batch=512), gpu_run())
    assert list_traits(work, make_curve(0.9)) == (Trait("scaling", "strong", "weak"),)
    strong = find_curve("keras2017-resnet50-cifar10-mxnet-fixed64")
    assert Trait("batch over all devices", "512", "64") in list_traits(work, strong)


# ---- in words: the list and a curve

DOCS = Path(__file__).parents[3] / "docs" / "published.md"
MXNET = find_curve("mxnet2016-p2-resnet152-b32")


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


def test_the_answer_is_one_sentence() -> None:
    comparison = standing(*spread(80, 90, 92, 94, 96))
    assert describe_comparison(comparison) == (
        "ResNet-50 · torch · allreduce on 8 devices is low: its efficiency of 87.5\u202f±\u202f0.2\u202f% is in the"
        " lowest quarter of 5 near published points of ResNet-50 on A100 from 1 source"
        " (80–96\u202f%, median 92\u202f%)."
    )
    assert make_heading(comparison) == "The nearest published points: efficiency, devices, ID"
    assert list_neighbours(comparison)[0] == ("  80.0\u202f% at    8  c80", "differs in nothing that its source states")


def test_a_few_points_and_an_interval_that_spans_places_read_well() -> None:
    comparison = standing(make_curve(0.9, data="real"))
    text = describe_comparison(comparison)
    assert "is low: its efficiency of 87.5\u202f±\u202f0.2\u202f% is below all 1 near published point from 1" in text
    assert text.endswith("; so few points are weak evidence.")
    several = replace(comparison, places=("lowest quarter", "middle half"))
    assert "is in the lowest quarter or in the middle half of 1" in describe_comparison(several)


def test_where_nothing_is_near_the_sentence_says_why() -> None:
    comparison = standing(make_curve(0.9), device="cpu")
    assert "nothing published is near" in describe_comparison(comparison)
    assert "differs too much in hardware (no published point is of CPUs)" in describe_comparison(comparison)
    assert make_heading(comparison).startswith("The nearest published points, none of them near")
    assert list_neighbours(comparison) == [("  90.0\u202f% at    8  a", "differs in hardware: A100-80GB (DGX A100)")]


def test_a_long_list_is_cut_and_the_page_describes_every_field_of_the_json() -> None:
    comparison = standing(*(make_curve(0.9, f"c{i}", data="real") for i in range(15)))
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
    ((sentence, _, url),) = lay(find_curve("tensorflow2017-dgx1-resnet50-b64-synthetic")).sentences
    assert sentence == (
        "published:tensorflow2017-dgx1-resnet50-b64-synthetic differs from ResNet-50 · torch · allreduce in hardware:"
        " P100 (DGX-1), not A100; batch per device: 64, not 256; precision: fp32, not tf32; framework: tensorflow, not"
        " torch; strategy: ps, not allreduce. It has no intervals."
    )
    assert url.startswith("https://github.com/tensorflow/")


def test_flags_and_a_missing_baseline_are_in_the_sentence() -> None:
    curves = (find_curve("torchtitan2024-llama3-8b-fsdp"), find_curve("nvidia2020-gnmt-v100-16gb-dgx-1-amp"))
    lines = lay(*curves).sentences
    assert "It begins at 8 devices, so it has no speed-up over 1 device." in lines[0][0]
    assert f"Flag: {SENTENCES[WEAK_LABELLED_STRONG]}." in lines[1][0]


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
    page = render_page(gpu_run(), [series], overlay=overlay)
    assert page.count(curve.title) > 3
    assert f'<a href="{curve.source.url}">' in page
    assert "Beside published curves" not in render_page(gpu_run(), [series])
    runs = [Run.from_records(gpu_run(), (), all_series=[series])]
    text, without = (render_report_md(runs, shown, PageDetails()) for shown in (overlay, Overlay()))
    assert "\n## Beside published curves\n\n- " in text
    assert curve.source.url in text
    assert "Beside published curves" not in without


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
    ((sentence, _, _),) = overlay.sentences
    assert sentence.startswith(f"published:a differs from {alike.title} in data: real, not synthetic.")


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
