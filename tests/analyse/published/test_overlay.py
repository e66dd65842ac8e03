"""Published curves as series, for the charts of a run."""

from __future__ import annotations

from dataclasses import replace

import pytest
from published_runs import gpu_run, make_curve, make_series

from trainscale.analyse.published.overlay import make_curve_series, overlay_curves
from trainscale.errors import InputError
from trainscale.published.table import find_curve


def test_a_curve_becomes_a_series_without_intervals() -> None:
    series = make_curve_series(find_curve("mxnet2016-p2-alexnet-b512"))
    last = series.points[-1]
    assert series.title == "AlexNet · mxnet · K80 · published 2016"
    assert (last.devices, last.hosts, last.batch_per_device, last.global_batch) == (256, 16, 512, 512 * 256)
    assert last.samples_per_second is not None
    assert (last.samples_per_second.mean, last.samples_per_second.low) == (61938.36, None)
    assert last.speedup is not None
    assert last.speedup.mean == pytest.approx(61938.36 / 457.07)


def test_a_curve_that_begins_at_8_devices_has_no_speedup() -> None:
    series = make_curve_series(find_curve("torchtitan2024-llama3-8b-fsdp"))
    assert not series.has_baseline
    assert [point.devices for point in series.good] == [8, 128]


def test_a_curve_without_speeds_cannot_be_drawn() -> None:
    with pytest.raises(InputError, match="vgg16: its source states an efficiency but no speeds"):
        make_curve_series(find_curve("horovod2018-512-vgg16"))


def test_a_curve_is_laid_beside_the_series_that_is_most_like_it() -> None:
    unlike, alike = make_series(model="alexnet", precision="fp32"), make_series()
    overlay = overlay_curves([(gpu_run(), [unlike, alike])], [make_curve(0.9, data="real")])
    (laid,) = overlay.curves
    assert laid.own is not None
    assert laid.own.title == alike.title
    assert [trait.name for trait in laid.traits] == ["data"]


def test_titles_stay_different_and_a_curve_is_there_once() -> None:
    curves = [make_curve(0.9, "first"), make_curve(0.8, "second")]
    overlay = overlay_curves([(gpu_run(), [make_series()])], [*curves, curves[0]])
    assert [series.title for series in overlay.series] == [curves[0].title, "published:second"]


@pytest.mark.parametrize("normalise", ["absolute", "per-device"])
def test_other_units_are_not_in_one_chart_of_throughput(normalise: str) -> None:
    tokens = replace(make_curve(0.9), unit="tokens")
    with pytest.raises(InputError, match=f"--normalise {normalise}: published:a counts tokens, the run images"):
        overlay_curves([(gpu_run(), [make_series()])], [tokens], normalise)
    assert overlay_curves([(gpu_run(), [make_series()])], [tokens]).curves
