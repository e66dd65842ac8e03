"""Every chart of a page becomes a file in the formats that are asked for."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from factories import curve, learning_record, make_config, make_run
from reported import write_outputs

from trainscale.errors import InputError
from trainscale.report.options import ReportOptions, read_formats

CHARTS = {"comparison_graph", "images_per_sec", "efficiency", "memory", "time_parts", "step_times_1"}


def test_every_chart_is_written_in_every_format(tmp_path: Path) -> None:
    records = curve(make_config(), {1: 100.0, 2: 180.0}, repeats=3, spread=0.01)
    write_outputs(tmp_path, make_run(), records, options=ReportOptions(formats=("png", "pdf", "svg")))
    for kind, signature in (("png", b"\x89PNG\r\n"), ("pdf", b"%PDF-"), ("svg", b"<svg ")):
        files = {path.stem: path.read_bytes() for path in tmp_path.glob(f"*.{kind}")}
        assert set(files) == CHARTS
        assert all(content.startswith(signature) for content in files.values()), kind


def test_a_picture_has_ink_on_white_and_twice_the_pixels_of_the_chart(tmp_path: Path) -> None:
    records = curve(make_config(), {1: 100.0, 2: 180.0})
    write_outputs(tmp_path, make_run(), records, options=ReportOptions(formats=("png",)))
    width, height = struct.unpack(">II", (tmp_path / "comparison_graph.png").read_bytes()[16:24])
    assert width > 2 * 720
    assert height > 2 * 420
    svg = (tmp_path / "comparison_graph.svg").read_text()
    assert 'fill="white"' in svg


def test_charts_of_a_training_are_among_them(tmp_path: Path) -> None:
    write_outputs(tmp_path, make_run(), [learning_record()], options=ReportOptions(formats=("png",)))
    assert {"accuracy.png", "accuracy_over_time.png"} <= {path.name for path in tmp_path.glob("*.png")}


def test_without_formats_only_the_main_charts_are_files(tmp_path: Path) -> None:
    write_outputs(tmp_path, make_run(), curve(make_config(), {1: 100.0}))
    assert {path.name for path in tmp_path.iterdir() if path.suffix in (".svg", ".png", ".pdf")} == {
        "comparison_graph.svg",
        "images_per_sec.svg",
    }


def test_a_list_of_formats_is_read_and_a_wrong_one_is_refused() -> None:
    assert read_formats("PNG, pdf,png", "--format") == ("png", "pdf")
    for text in ("gif", "png,gif", ""):
        with pytest.raises(InputError, match="valid: png, pdf, svg"):
            read_formats(text, "--format")
