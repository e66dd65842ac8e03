"""Step times in the text format of Extra-P, which fits performance models: ``extrap --text FILE``.

Each series is a region, and the parameter is ``devices``. In Extra-P all regions of a file have the same points, so
series with other device counts go into files of their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from ..errors import InputError
from .base import Destination, Exporter, write_file
from .columns import TrialRow
from .stored_run import StoredRun

Regions = dict[str, dict[int, list[float]]]  # seconds of a step of every repeat, by title and devices


class ExtraPExporter(Exporter):
    name = "extra-p"
    description = "step times of all trials, in the text format of Extra-P"

    def export(self, runs: Sequence[StoredRun], destination: Destination) -> str:
        groups = _group_by_ladder(runs)
        texts = [_format(ladder, regions) for ladder, regions in groups.items()]
        if destination.output is None:
            if len(texts) > 1:
                raise InputError(
                    "--to extra-p: all series of an Extra-P file have the same device counts, and these have"
                    f" {len(texts)} different ladders; valid with -o FILE, which writes a file for each"
                )
            return texts[0]
        path = Path(destination.output)
        names = [path, *(path.with_stem(f"{path.stem}-{number}") for number in range(2, len(texts) + 1))]
        for name, text in zip(names, texts, strict=True):
            write_file(str(name), text)
        return "".join(f"{name}: {len(regions)} series\n" for name, regions in zip(names, groups.values(), strict=True))


def _group_by_ladder(runs: Sequence[StoredRun]) -> dict[tuple[int, ...], Regions]:
    """Return the series with a result, grouped by the device counts that they have; the longest ladder first."""
    regions: Regions = defaultdict(lambda: defaultdict(list))
    for run in runs:
        for row in run.rows:
            if row.samples_per_second and not row.short:
                title = f"{row.run}: {row.series}" if len(runs) > 1 else row.series
                regions[title][row.devices].append(_compute_step_seconds(row))
    if not regions:
        raise InputError("--to extra-p: no trial of these runs has a result")
    groups: defaultdict[tuple[int, ...], Regions] = defaultdict(dict)
    for title, points in regions.items():
        groups[tuple(sorted(points))][title] = points
    return dict(sorted(groups.items(), key=lambda item: (-len(item[0]), item[0])))


def _compute_step_seconds(row: TrialRow) -> float:
    return row.global_batch / (row.samples_per_second or 1.0)


def _format(ladder: Sequence[int], regions: Regions) -> str:
    """Return one file. Models of device-seconds predict better than models of plain step times."""
    lines = ["PARAMETER devices", f"POINTS {' '.join(map(str, ladder))}"]
    for title, points in regions.items():
        for metric, per_device in (("step_device_seconds", True), ("step_seconds", False)):
            lines += ["", f"REGION {title}", f"METRIC {metric}"]
            for devices in ladder:
                factor = devices if per_device else 1
                lines.append(f"DATA {' '.join(repr(seconds * factor) for seconds in points[devices])}")
    return "\n".join(lines) + "\n"
