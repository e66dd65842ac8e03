"""The memory of a point: the largest over ranks and repeats, and the largest sum."""

from __future__ import annotations

from typing import Any

from factories import make_rank, make_record

from trainscale.analyse.series import Point, build_series


def point(*repeats: list[dict[str, Any]]) -> Point:
    records = [
        make_record(
            devices=len(ranks),
            repeat=repeat,
            ranks=[make_rank(n, [0.1] * 3, 32, **values) for n, values in enumerate(ranks)],
        )
        for repeat, ranks in enumerate(repeats)
    ]
    (series,) = build_series(records)
    return series.points[0]


def test_the_largest_is_over_all_ranks_and_the_sum_is_of_one_repeat() -> None:
    names = ("device_peak_bytes", "nvml_peak_bytes", "host_peak_bytes")
    memory = point(
        [dict.fromkeys(names, 5), dict.fromkeys(names, 5)],
        [dict.fromkeys(names, 8), dict.fromkeys(names, 1)],
    )
    for name in names:
        assert (getattr(memory, name), getattr(memory, f"{name}_sum")) == (8, 10)


def test_a_sum_needs_every_ranks_figure() -> None:
    memory = point([{"nvml_peak_bytes": 5}, {"nvml_note": "no driver"}])
    assert (memory.nvml_peak_bytes, memory.nvml_peak_bytes_sum, memory.nvml_note) == (5, None, "no driver")


def test_what_nobody_counted_is_not_there() -> None:
    memory = point([{}, {}])
    assert (memory.device_peak_bytes, memory.device_peak_bytes_sum, memory.nvml_peak_bytes) == (None, None, None)
    assert (memory.nvml_note, memory.loaders_peak_bytes) == ("", None)


def test_loaders_are_told_apart_from_their_rank() -> None:
    memory = point([{"host_peak_bytes": 7, "loaders_peak_bytes": 3}, {"host_peak_bytes": 6, "loaders_peak_bytes": 4}])
    assert (memory.host_peak_bytes, memory.loaders_peak_bytes) == (7, 4)
