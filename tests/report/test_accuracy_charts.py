"""Accuracy over epochs and over time: every epoch a mark, training dashed, the target a line."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import altair as alt
import pytest
from factories import learning_config, learning_record, make_run
from reported import reported, write_outputs

from trainscale.analyse.series import Series, build_series
from trainscale.report.charts import draw_accuracy, draw_accuracy_over_time
from trainscale.report.drawing import to_svg
from trainscale.report.html import render_report_html

SVG = "{http://www.w3.org/2000/svg}"
CONFIG = learning_config(until_accuracy=0.8)


def two() -> list[Series]:
    return build_series([learning_record(CONFIG, devices, seconds=40.0 / devices) for devices in (1, 2)])


def data(spec: dict[str, Any], layer: dict[str, Any]) -> list[dict[str, Any]]:
    """Altair keeps data apart, by name."""
    rows_of_layer: list[dict[str, Any]] = spec["datasets"][layer["data"]["name"]]
    return rows_of_layer


def rows(spec: dict[str, Any], of: str) -> list[dict[str, Any]]:
    (lines,) = (layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    return [row for row in data(spec, lines) if row["of"] == of]


def test_every_epoch_of_every_point_is_a_mark_that_says_its_accuracy() -> None:
    svg = ElementTree.fromstring(to_svg(draw_accuracy(two()), standalone=True))
    descriptions = [title.text or "" for title in svg.iter(f"{SVG}title")]
    assert len(descriptions) == 8
    assert any(text.startswith("Epoch 3: validation 0.8000, training 0.8500") for text in descriptions)


def test_training_is_dashed_and_validation_is_not() -> None:
    spec = draw_accuracy(two())
    (lines,) = (layer for layer in spec["layer"] if layer["mark"]["type"] == "line")
    scale = lines["encoding"]["strokeDash"]["scale"]
    assert dict(zip(scale["domain"], scale["range"], strict=True)) == {"validation": [1, 0], "training": [5, 4]}
    assert [row["accuracy"] for row in rows(spec, "validation")][:4] == [0.5, 0.7, 0.8, 0.82]


def test_over_time_more_devices_are_to_the_left() -> None:
    places = [row["x"] for row in rows(draw_accuracy_over_time(two()), "validation")]
    assert places[:4] == [42 / 60, 82 / 60, 122 / 60, 162 / 60]
    assert places[4:] == [22 / 60, 42 / 60, 62 / 60, 82 / 60]


def test_a_target_is_a_line_with_its_number() -> None:
    spec = draw_accuracy(two())
    names = [row.get("name") for layer in spec["layer"] for row in data(spec, layer)]
    assert "0.8" in names


def test_a_short_training_has_a_tick_at_every_epoch_and_one_epoch_is_drawn() -> None:
    one_epoch = build_series([learning_record(valid=(0.3,))])
    for chart in (draw_accuracy, draw_accuracy_over_time):
        spec = chart(one_epoch)
        alt.LayerChart.validate(spec)  # by Vega-Lite's schema
        assert "NaN" not in to_svg(spec, standalone=False)


@pytest.fixture(scope="module")
def page() -> str:
    return render_report_html(reported(make_run(), two()))


def test_the_page_of_a_training_shows_accuracy_first_and_scaling_only_where_there_is_any(page: str) -> None:
    assert page.index('id="accuracy"') < page.index('id="time"') < page.index('id="speedup"')
    alone = render_report_html(reported(make_run(), build_series([learning_record()])))
    assert 'id="accuracy"' in alone
    assert 'id="speedup"' not in alone


def test_the_page_has_the_tables(page: str) -> None:
    for heading in (
        "What was learnt",
        "Images processed per sec",
        "System performance",
        "epoch time (sec)",
        "Machines",
    ):
        assert heading in page
    assert "How does Inception-BN 28 small learn cifar10?" in page


def test_the_picture_is_a_file_of_the_run(tmp_path: Path) -> None:
    paths = write_outputs(tmp_path, make_run(), [learning_record()]).paths
    assert tmp_path / "accuracy.svg" in paths
    ElementTree.fromstring((tmp_path / "accuracy.svg").read_text())
