"""The charts are valid SVG with true positions, and with words on every mark."""

import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from factories import curve, learning_config, learning_record, make_config, make_run, mxnet_records
from reported import render_page, write_outputs

from trainscale.analyse.series import Series, build_series
from trainscale.record.trial import TrialRecord
from trainscale.report.charts import draw_accuracy, draw_efficiency, draw_speedup, draw_throughput
from trainscale.report.drawing import VegaSpec, choose_styles, to_svg

SVG = "{http://www.w3.org/2000/svg}"
CURVE = curve(make_config(), {1: 10.0, 2: 19.0})


def parse(spec: VegaSpec) -> ElementTree.Element:
    return ElementTree.fromstring(to_svg(spec, standalone=True))


def speedup_svg(records: Sequence[TrialRecord]) -> ElementTree.Element:
    return parse(draw_speedup(build_series(records)))


def titles(svg: ElementTree.Element) -> list[str]:
    return [title.text or "" for title in svg.iter(f"{SVG}title")]


def texts(svg: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in svg.iter(f"{SVG}text")]


def data(spec: VegaSpec, layer: VegaSpec) -> list[dict[str, Any]]:
    """Altair keeps data apart, by name."""
    rows_of_layer: list[dict[str, Any]] = spec["datasets"][layer["data"]["name"]]
    return rows_of_layer


def test_both_axes_are_logarithmic_at_true_positions() -> None:
    svg = speedup_svg(curve(make_config(), {1: 100.0, 2: 200.0, 4: 400.0, 6: 600.0}))
    marks = [path for path in svg.iter(f"{SVG}path") if path.find(f"{SVG}title") is not None]
    places = [re.fullmatch(r"translate\(([-\d.]+),([-\d.]+)\)", path.get("transform", "")) for path in marks]
    (x1, y1), (x2, y2), (x4, y4), (x6, y6) = [(float(place[1]), float(place[2])) for place in places if place]
    assert x2 - x1 == pytest.approx(x4 - x2)
    assert (x6 - x4) / (x2 - x1) == pytest.approx(math.log2(6 / 4))
    assert y1 - y2 == pytest.approx(y2 - y4)
    assert (y4 - y6) / (y1 - y2) == pytest.approx(math.log2(6 / 4))


def test_every_point_says_its_speed_and_the_ideal_line_reaches_the_maximum() -> None:
    spec = draw_speedup(build_series(mxnet_records()))
    svg = parse(spec)
    assert len(titles(svg)) == 27
    assert "Speed-up: 3.88 · 117.90 images/s · 4 devices · Inception v3 · mxnet · ps:16" in titles(svg)
    assert data(spec, spec["layer"][0]) == [{"devices": 1, "value": 1}, {"devices": 256, "value": 256}]
    assert "Ideal" in texts(svg)


def test_ticks_are_at_the_device_counts_measured() -> None:
    spec = draw_speedup(build_series(curve(make_config(), {1: 10.0, 3: 20.0, 6: 30.0})))
    axes = [layer["encoding"]["x"]["axis"]["values"] for layer in spec["layer"]]
    assert axes == [[1, 3, 6]] * len(axes)


def test_what_is_missing_is_said() -> None:
    servers = curve(make_config(strategy="ps", servers=1), {1: 40.0, 2: 70.0})
    svg = speedup_svg([*curve(make_config(), {2: 100.0, 4: 190.0}), *servers])
    assert all("ps:1" in title for title in titles(svg))
    assert any("because there is no 1-device point" in text for text in texts(svg))
    failed = speedup_svg(curve(make_config(), {1: 100.0, 2: None}))
    assert any("2 devices: out of memory: CUDA out of memory" in title for title in titles(failed))
    assert "No point gave a result to draw." in texts(speedup_svg([]))


def test_intervals_are_drawn_where_they_exist() -> None:
    with_interval = build_series(curve(make_config(), {1: 10.0, 2: 19.0}, repeats=3, spread=0.02))
    assert "Bars" in str(draw_speedup(with_interval)["title"])
    assert "Bars" not in str(draw_speedup(build_series(CURVE))["title"])


def test_an_interval_that_reaches_below_zero_does_not_break_the_log_axis() -> None:
    series = build_series(curve(make_config(), {1: 10.0, 2: 19.0}, repeats=3, spread=0.5))
    point = series[0].points[0].samples_per_second
    assert point is not None
    assert point.low is not None
    assert point.low < 0
    svg = to_svg(draw_throughput(series), standalone=True)
    assert "NaN" not in svg
    assert "Infinity" not in svg


@pytest.mark.parametrize(
    "ladder",
    [
        {1: 38.0},
        {1: 38.0, 2: 60.0},
        {4: 38.0},
        {1: None},
        {1: None, 2: 60.0},
        {1: 38.0, 2: 20.0, 4: 5.0},
        {n: 10.0 * n**0.9 for n in range(1, 33)},
    ],
    ids=["one point", "two points", "no baseline", "all failed", "failed baseline", "slower", "dense"],
)
def test_every_ladder_gives_three_charts(ladder: dict[int, float | None]) -> None:
    series = build_series(curve(make_config(), ladder))
    for chart in (draw_speedup, draw_throughput, draw_efficiency):
        spec = chart(series)
        alt.LayerChart.validate(spec)  # by Vega-Lite's schema
        svg = to_svg(spec, standalone=False)
        ElementTree.fromstring(svg)
        assert "NaN" not in svg


def test_hostile_names_stay_text() -> None:
    hostile = 'x"><script>alert(1)</script>&\x1b[31m'
    tree = speedup_svg(curve(make_config(model=hostile), {1: 1.0, 2: None}))
    assert not list(tree.iter(f"{SVG}script"))
    assert any('x"><script>alert(1)</script>&' in title for title in titles(tree))


def test_a_picture_of_its_own_has_paper_and_ink_and_one_in_a_page_has_not() -> None:
    spec = draw_speedup(build_series(CURVE))
    alone, within = to_svg(spec, standalone=True), to_svg(spec, standalone=False)
    assert 'fill="white"' in alone.split("<g", 1)[0]
    assert 'color="#' in alone.split(">", 1)[0]
    assert 'fill="white"' not in within
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", alone)


def test_a_series_keeps_its_colour_in_every_chart() -> None:
    series = build_series([*curve(make_config(), {2: 9.0}), *curve(make_config(model="vgg16"), {1: 5.0, 2: 9.0})])
    colours = [
        next(layer["encoding"]["color"]["scale"] for layer in chart(series)["layer"] if "shape" in layer["encoding"])
        for chart in (draw_speedup, draw_throughput, draw_efficiency)
    ]
    assert colours[0] == colours[1] == colours[2]


def test_colours_and_shapes_repeat_only_after_many_series() -> None:
    series = build_series([record for n in range(1, 57) for record in curve(make_config(batch=n), {1: 9.0})])
    assert len(set(choose_styles(series))) == 56
    servers = [
        make_config(model=model, strategy="ps", servers=n) for n in range(1, 11) for model in ("alexnet", "vgg16")
    ]
    series = build_series([record for config in servers for record in curve(config, {1: 9.0})])
    assert len(set(choose_styles(series))) == len(series) == 20, "more ways to train than colours"


def test_with_more_series_than_colours_a_colour_is_a_framework_and_a_shape_a_network() -> None:
    frameworks, networks = ("torch", "jax", "mxnet", "tensorflow", "keras-jax"), ("alexnet", "vgg16")
    configs = [make_config(model=model, framework=name) for name in frameworks for model in networks]
    series = build_series([record for config in configs for record in curve(config, {1: 9.0})])
    styles = choose_styles(series)
    assert len(set(styles)) == len(series) == 10
    assert len({(line.config.framework, colour) for line, (colour, _) in zip(series, styles, strict=True)}) == 5
    assert len({(line.config.model, shape) for line, (_, shape) in zip(series, styles, strict=True)}) == 2


# ---- accuracy over epochs and over time: every epoch a mark, training dashed, the target a line

CONFIG = learning_config(until_accuracy=0.8)


def two() -> list[Series]:
    return build_series([learning_record(CONFIG, devices, seconds=40.0 / devices) for devices in (1, 2)])


def rows(spec: VegaSpec, of: str) -> list[dict[str, Any]]:
    (lines,) = (layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    return [row for row in data(spec, lines) if row["of"] == of]


def test_every_epoch_is_a_mark_training_is_dashed_and_the_target_is_a_line() -> None:
    spec = draw_accuracy(two())
    descriptions = titles(parse(spec))
    assert len(descriptions) == 8
    assert any(text.startswith("Epoch 3: validation 0.8000, training 0.8500") for text in descriptions)
    (lines,) = (layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    scale = lines["encoding"]["strokeDash"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {"validation": [1, 0], "training": [5, 4]}
    assert [row["accuracy"] for row in rows(spec, "validation")][:4] == [0.5, 0.7, 0.8, 0.82]
    assert "0.8" in [row.get("name") for layer in spec["layer"] for row in data(spec, layer)]


def test_over_time_more_devices_are_to_the_left() -> None:
    places = [row["x"] for row in rows(draw_accuracy(two(), over_time=True), "validation")]
    assert places[:4] == [42 / 60, 82 / 60, 122 / 60, 162 / 60]
    assert places[4:] == [22 / 60, 42 / 60, 62 / 60, 82 / 60]


def test_a_short_training_has_a_tick_at_every_epoch_and_one_epoch_is_drawn() -> None:
    one_epoch = build_series([learning_record(valid=(0.3,))])
    for over_time in (False, True):
        spec = draw_accuracy(one_epoch, over_time=over_time)
        alt.LayerChart.validate(spec)  # by Vega-Lite's schema
        assert "NaN" not in to_svg(spec, standalone=False)


def test_the_page_of_a_training_shows_accuracy_first_and_scaling_only_where_there_is_any() -> None:
    page = render_page(make_run(), two())
    assert page.index('id="accuracy"') < page.index('id="time"') < page.index('id="speedup"')
    assert "How does Inception-BN 28 small learn cifar10?" in page
    for heading in (
        "What was learnt",
        "Images processed per sec",
        "System performance",
        "epoch time (sec)",
        "Machines",
    ):
        assert heading in page
    alone = render_page(make_run(), build_series([learning_record()]))
    assert 'id="accuracy"' in alone
    assert 'id="speedup"' not in alone


def test_the_picture_is_a_file_of_the_run(tmp_path: Path) -> None:
    write_outputs(tmp_path, make_run(), [learning_record()])
    ElementTree.fromstring((tmp_path / "accuracy.svg").read_text())
