"""Two sides compared point by point, with a verdict for each curve and an outcome of the gate.

What differs between the sides is not compared, unless the change was meant (``--despite``). With m points, intervals
have the confidence 1 - 0.05/m (Bonferroni), so all verdicts are right at once with a probability of 95 %. Where other
programs used a machine, an interval must be so far from 1, or the bound of the gate, that they do not explain it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from ...analyse.series import column
from ...analyse.statistics import CONFIDENCE, Estimate, Interval, count_repeats, ratio
from ...errors import InputError, explain_unknown
from ...record.decoding import remove_unprintable
from ...record.parity import PROVEN, REFUTED, UNPROVEN
from ...report.documents import load_template
from ...spec.config import Config
from ...spec.settings import share
from .sides import (
    BY_BUDGET,
    EFFICIENCY,
    UNCHECKED,
    Side,
    compare_with_published,
    join_counts,
    list_titles,
    read_sides,
    select_series,
)

if TYPE_CHECKING:
    from ...runs import Run

FASTER, SLOWER, MIXED, SAME, UNKNOWN = "faster", "slower", "mixed", "same", "unknown"
PASS, FAIL = "pass", "fail"  # of a gate, besides UNKNOWN
THRESHOLD, AT_LEAST = "threshold", "at least"
DEFAULT_MARGIN = 0.02  # two runs are the same if all intervals lie within this; teams alert at 2 %


# The names that --despite takes, and the fields of a config that each of them covers.
FIELDS: dict[str, tuple[str, ...]] = {
    "model": ("model", "image_size", "classes", "channels"),
    "batch": ("batch", "scaling"),
    "framework": ("framework",),
    "strategy": ("strategy", "servers", "server_placement", "servers_per_host"),
    "device": ("device", "cores_per_device", "ranks_per_gpu"),
    "hosts": ("placement",),
    "precision": ("precision",),
    "layout": ("layout",),
    "compile": ("compile",),
    "data": ("data", "augment", "loaders"),
    "training": (
        "epochs", "until_accuracy", "learning_rate", "momentum", "weight_decay", "schedule", "warmup_epochs",
        "deterministic",
    ),
    "allocator": ("allocator",),
}  # fmt: skip
NAMES = (*FIELDS, "measurement", "parity", "witness", "versions", "machine")
_NONE = "none"
# Frameworks say more or less of their versions: 13.0 and 13, 91900 and 9.19.0.56.
_CUDA_LIBRARIES = ("cuda", "cudnn", "nccl")

Pair = tuple[Side, Side]


@dataclass(frozen=True)
class Difference:
    name: str  # that --despite takes
    field: str
    a: str
    b: str
    needed: str = ""  # to compare them: both may lack it

    @property
    def is_unproven(self) -> bool:
        return self.a == self.b


@dataclass(frozen=True)
class Gate:
    """A demand on every ratio: it is at least ``bound``."""

    kind: str
    bound: float


@dataclass(frozen=True, kw_only=True)
class ComparisonPoint:
    """A device count that both sides have."""

    series: str = column("title of the series in B")
    devices: int = column("workers")
    ratio: Interval | None = column("throughput of B over that of A; None if a side has no result")
    verdict: str = column("faster, slower, same or unknown")
    outcome: str | None = column("of the gate; None without a gate, or if A has no result", default=None)
    efficiency_ratio: Interval | None = column("the same of the efficiencies", default=None)
    a: Estimate | None = column("what A has; None without a result", default=None)
    b: Estimate | None = column("what B has; None without a result", default=None)
    repeats_for_verdict: int | None = column("on each side, to decide the verdict; None if unclear", default=None)
    repeats_for_gate: int | None = column("on each side, to decide the outcome; None if unclear", default=None)
    is_hidden: bool = column("whether only other programs on the machine prevent a verdict", default=False)

    @property
    def is_lost(self) -> bool:
        """Whether only A has a result."""
        return self.a is not None and self.b is None


@dataclass(frozen=True)
class Curve:
    """Two series and the points that both have."""

    a: Side
    b: Side
    points: tuple[ComparisonPoint, ...]
    verdict: str
    within: float | None  # how far the intervals reach from 1 at most
    differences: tuple[Difference, ...]  # that the person allowed
    only_a: tuple[int, ...]  # device counts of one side alone
    only_b: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Two runs compared point by point: B against A."""

    verdict: str = column("faster, slower, mixed, same or unknown")
    outcome: str | None = column("of the gate: pass, fail or unknown; None without a gate", default=None)
    curves: tuple[Curve, ...] = column("the pairs of series, each with its verdict")
    confidence: float = column("of a single interval; that of all together is 0.95")
    margin: float = column("how far from 1 a ratio may be that counts as the same")
    gate: Gate | None = column("what was demanded", default=None)

    @property
    def points(self) -> tuple[ComparisonPoint, ...]:
        """The points that both have."""
        return tuple(point for curve in self.curves for point in curve.points)

    @cached_property
    def text(self) -> str:
        """The same as Markdown."""
        from .text import render_markdown

        return render_markdown(self)

    @property
    def has_interval(self) -> bool:
        """Whether any point has enough repeats on both sides for an interval, or has lost its result."""
        return any(point.ratio is None or point.ratio.low is not None for point in self.points)

    def _repr_markdown_(self) -> str:
        return self.text


def compare_runs(
    a: Run | str | Path,
    b: Run | str | Path | None = None,
    *,
    threshold: float | str | None = None,
    at_least: float | str | None = None,
    despite: Sequence[str] = (),
    devices: Collection[int] | None = None,
    series: Sequence[str] = (),
    by: str | None = None,
    on_damage: Callable[[str], None] | None = None,
) -> RunComparison:
    """Compare A with B. Without B, ``series`` are two series of one run."""
    from ..published.curves import PREFIX, find_curve

    gate = None
    if threshold is not None:
        gate = Gate(THRESHOLD, 1 - _read_share(threshold, "--threshold", 0.99))
    elif at_least is not None:
        gate = Gate(AT_LEAST, _read_share(at_least, "--at-least", 10.0))
    for name in despite:
        if name not in NAMES:
            raise explain_unknown("name", name, NAMES, "--despite")
    if len(series) > 2:
        raise InputError(f"--series: given {len(series)} times; valid: once or twice")
    runs = [run for run in (a, b) if run is not None]
    published = [text for text in runs if isinstance(text, str) and text.startswith(PREFIX)]
    if by and not published:
        raise InputError("--by: valid with a published curve, published:ID; runs are compared by speed")
    if published:
        name = published[0]
        curve, quantity = find_curve(name), by or EFFICIENCY
        others = [run for run in runs if run not in published]
        if len(others) != 1:
            raise InputError(f"{name}: valid together with one run, as in: trainscale compare {name} DIR")
        sides = _select(read_sides(others[0], on_damage)[1], series)
        if len(sides) > 1:
            problem = f"{name}: {sides[0].source} has several series; name one with --series"
            raise InputError(f"{problem}{list_titles(sides, 'its series: ')}")
        return compare_pairs([compare_with_published(curve, sides[0], quantity)], despite, gate, devices)

    path_a, all_a = read_sides(runs[0], on_damage)
    path_b, all_b = read_sides(runs[1], on_damage) if len(runs) > 1 else (path_a, all_a)
    if len(runs) == 1 and len(series) < 2:
        raise InputError(
            "one run was given; valid: two runs, or one and two of its series (--series)"
            f"{list_titles(all_a, 'its series: ')}"
        )
    all_a, all_b = _select(all_a, series[:1]), _select(all_b, series[-1:])
    common = {side.config for side in all_a} & {side.config for side in all_b}
    if common and path_a.resolve() == path_b.resolve():
        titles = list_titles(read_sides(path_a, on_damage)[1], "its series: ")
        raise InputError(
            f"A and B have the same series of {runs[0]}; valid: two runs, or two series of one run{titles}"
        )
    return compare_pairs(match_sides(all_a, all_b, despite), despite, gate, devices)


def _select(sides: list[Side], names: Sequence[str]) -> list[Side]:
    return [select_series(sides, name) for name in names] or sides


def _read_share(value: float | str, flag: str, most: float) -> float:
    try:
        return float(share(most).parse(value))
    except ValueError as error:
        raise InputError(f"{flag}: {error}") from None


# ---- verdicts


def compare_pairs(
    pairs: Sequence[Pair],
    despite: Collection[str] = (),
    gate: Gate | None = None,
    devices: Collection[int] | None = None,
) -> RunComparison:
    """Compare series with their counterparts."""
    allowed = [check_sides(a, b, despite) for a, b in pairs]
    common = [(a, b, count) for a, b in pairs for count in list_common_devices(a, b)]
    measured = [count for a, b, count in common if a.values[count] and b.values[count]]
    looked_at = sum(1 for count in measured if devices is None or count in devices)
    if not looked_at and devices is not None and measured:
        wanted = join_counts(devices)
        raise InputError(f"--devices {wanted}: not measured in both; valid: {join_counts(measured)}")
    if not looked_at:
        raise InputError("no device count has a result in both A and B, so there is nothing to compare")
    confidence = 1 - (1 - CONFIDENCE) / looked_at
    margin = round(1 - gate.bound, 12) if gate and gate.kind == THRESHOLD else DEFAULT_MARGIN
    curves = []
    for (a, b), differences in zip(pairs, allowed, strict=True):
        both, only_a, only_b = (
            tuple(sorted(count for count in counts if devices is None or count in devices))
            for counts in (list_common_devices(a, b), a.points.keys() - b.points, b.points.keys() - a.points)
        )
        points = tuple(_compare_point(a, b, count, confidence, margin, gate) for count in both)
        ratios = [point.ratio for point in points if point.ratio]
        ends = [end for interval in ratios for end in (interval.low, interval.high) if end is not None]
        within = max((abs(end - 1) for end in ends), default=None)
        verdict = combine_verdicts(point.verdict for point in points if point.ratio)
        curves.append(Curve(a, b, points, verdict, within, differences, only_a, only_b))
    outcome = None
    if gate:  # a point that B has not measured has not passed
        outcomes = {point.outcome for curve in curves for point in curve.points}
        is_unknown = UNKNOWN in outcomes or any(curve.only_a for curve in curves)
        outcome = FAIL if FAIL in outcomes else UNKNOWN if is_unknown else PASS
    return RunComparison(
        verdict=combine_verdicts(curve.verdict for curve in curves),
        outcome=outcome,
        curves=tuple(curves),
        confidence=confidence,
        margin=margin,
        gate=gate,
    )


def combine_verdicts(verdicts: Iterable[str]) -> str:
    """A proven difference counts more than an unknown one."""
    all_verdicts = set(verdicts)
    if MIXED in all_verdicts or {FASTER, SLOWER} <= all_verdicts:
        return MIXED
    if all_verdicts == {SAME}:
        return SAME
    return next((verdict for verdict in (SLOWER, FASTER) if verdict in all_verdicts), UNKNOWN)


def _compare_point(
    a: Side, b: Side, devices: int, confidence: float, margin: float, gate: Gate | None
) -> ComparisonPoint:
    ours, theirs = a.values[devices], b.values[devices]
    if ours is None or theirs is None:
        outcome = FAIL if gate and ours else None
        return ComparisonPoint(
            series=b.title, devices=devices, ratio=None, verdict=UNKNOWN, outcome=outcome, a=ours, b=theirs
        )

    def decide(interval: Interval) -> tuple[str, str | None]:
        bound, low, high = gate.bound if gate else 0.0, interval.low, interval.high
        if low is None or high is None:
            return UNKNOWN, UNKNOWN if gate else None
        is_same = 1 - margin <= low and high <= 1 + margin
        verdict = FASTER if low > 1 else SLOWER if high < 1 else SAME if is_same else UNKNOWN
        return verdict, (PASS if low > bound else FAIL if high < bound else UNKNOWN) if gate else None

    interval = ratio([theirs], [ours], confidence)
    undisturbed = interval
    if interval.low is not None and interval.high is not None:  # as on idle machines
        lost_a, lost_b = a.estimate_lost_share(devices), b.estimate_lost_share(devices)
        high = interval.high / (1 - lost_b) if lost_b < 1 else math.inf
        undisturbed = Interval(interval.mean, interval.low * (1 - lost_a) * (1 - b.baseline_lost), high)
    verdict, outcome = decide(undisturbed)
    is_hidden = (verdict, outcome) != decide(interval)
    for_verdict = for_gate = None
    if verdict == UNKNOWN and not is_hidden:
        # 1 must lie outside, or the interval within the margin, whichever needs fewer repeats.
        difference = abs(math.log(interval.mean))
        reach = max(difference, math.log1p(margin) - difference)
        for_verdict = count_repeats(ours, theirs, reach, confidence)
    if gate and outcome == UNKNOWN and not is_hidden:
        for_gate = count_repeats(ours, theirs, abs(math.log(interval.mean / gate.bound)), confidence)
    efficiency_ratio = None
    baselines = a.values.get(1), b.values.get(1)
    if devices > 1 and baselines[0] and baselines[1] and None not in (ours.repeats, theirs.repeats):
        efficiency_ratio = ratio([theirs, baselines[0]], [ours, baselines[1]], confidence)
    return ComparisonPoint(
        series=b.title,
        devices=devices,
        ratio=interval,
        verdict=verdict,
        outcome=outcome,
        efficiency_ratio=efficiency_ratio,
        a=ours,
        b=theirs,
        repeats_for_verdict=for_verdict,
        repeats_for_gate=for_gate,
        is_hidden=is_hidden,
    )


# ---- in what two sides differ, and which series belong together


def find_differences(a: Side, b: Side) -> tuple[Difference, ...]:
    common = list_common_devices(a, b)
    differences = compare_configs(a.config, b.config)
    for count in common:
        ours, theirs = str(a.points[count].hosts), str(b.points[count].hosts)
        if ours != theirs:
            differences.append(Difference("hosts", f"hosts of {count} devices", ours, theirs))
            break
    # One framework trains one network unless a check doubts a side; two do if both are proven.
    is_one_framework = a.config.framework == b.config.framework
    parities = {a.parity, b.parity}
    if (len(parities) > 1 and parities - {PROVEN, UNCHECKED}) if is_one_framework else parities != {PROVEN}:
        needed = "two frameworks are compared if both are proven to train the same network"
        differences.append(Difference("parity", "parity", a.parity, b.parity, needed))
    # A side that did not do its work, or has not proven it while the other has, is not compared.
    worst = []
    for side in (a, b):
        points = [side.points[count] for count in common]
        states = {point.witness or UNCHECKED for point in points if side.values[point.devices]}
        states |= {failure.kind for point in points for failure in point.failures}
        worst.append(next((state for state in (REFUTED, UNPROVEN, UNCHECKED) if state in states), PROVEN))
    ours, theirs = worst
    if ours != theirs or ours == REFUTED:
        differences.append(Difference("witness", "witness", ours, theirs, "a refuted trial did not do its work"))
    for name in ("measurement", "versions", "machine"):
        of_a, of_b = getattr(a, name), getattr(b, name)
        # Of two frameworks, only the packages that both have are compared.
        only_common = name == "machine" or (name == "versions" and not is_one_framework)
        if not of_a or not of_b:  # a side may have recorded nothing
            continue
        for key in dict.fromkeys((*of_a, *of_b)):
            ours, theirs = of_a.get(key, _NONE), of_b.get(key, _NONE)
            if only_common and not (key in of_a and key in of_b):
                continue
            # The steps of a run with a time budget are not fixed.
            is_same = ours == theirs or _is_same_version(key, ours, theirs)
            if not is_same and BY_BUDGET not in (ours, theirs):
                differences.append(Difference(name, key, ours, theirs))
    return tuple(sorted(differences, key=lambda difference: NAMES.index(difference.name)))


def compare_configs(a: Config, b: Config) -> list[Difference]:
    def write(value: object) -> str:
        if isinstance(value, bool):
            return "yes" if value else "no"
        return _NONE if value is None else str(value)

    return [
        Difference(name, field, write(getattr(a, field)), write(getattr(b, field)))
        for name, fields in FIELDS.items()
        for field in fields
        if getattr(a, field) != getattr(b, field)
    ]


def list_common_devices(a: Side, b: Side) -> list[int]:
    return sorted(a.points.keys() & b.points.keys())


def _is_same_version(name: str, a: str, b: str) -> bool:
    if name not in _CUDA_LIBRARIES or _NONE in (a, b):
        return False

    def split(version: str) -> list[str]:
        # Until version 0.1, cuDNN's was recorded as its header has it: 91900, 8902.
        if name == "cudnn" and version.isascii() and version.isdigit() and len(version) > 3:
            major, rest = divmod(int(version), 10_000 if int(version) >= 90_000 else 1_000)
            return [str(major), str(rest // 100), str(rest % 100)]
        return version.split(".")

    return all(first == second for first, second in zip(split(a), split(b), strict=False))


def match_sides(all_a: Sequence[Side], all_b: Sequence[Side], despite: Collection[str]) -> list[Pair]:
    """Pair series that differ at most in what ``despite`` names."""
    if len(all_a) == len(all_b) == 1:
        return [(all_a[0], all_b[0])]
    pairs = []
    for a in all_a:
        alike = [b for b in all_b if {each.name for each in compare_configs(a.config, b.config)} <= {*despite}]
        same = [b for b in alike if b.config == a.config] or alike
        _check_single(same, a)
        pairs += [(a, b) for b in same]
    for b in {b.config: b for _, b in pairs}.values():
        _check_single([a for a, other in pairs if other is b], b)
    every = [(a, b) for a in all_a for b in all_b]
    return pairs or [min(every, key=lambda pair: len(compare_configs(pair[0].config, pair[1].config)))]


def _check_single(counterparts: Sequence[Side], side: Side) -> None:
    if len(counterparts) > 1:
        source = counterparts[0].source
        raise InputError(
            f"{source}: {len(counterparts)} series may be the counterpart of {side.title!r}; name one of them as"
            f" {source}:SERIES or with --series{list_titles(counterparts)}"
        )


def check_sides(a: Side, b: Side, despite: Collection[str]) -> tuple[Difference, ...]:
    """Return the differences; only ``despite`` may be among them."""
    differences = find_differences(a, b)
    if not list_common_devices(a, b):
        of_a, of_b = (f"{side.title!r}, has {join_counts(side.points)}" for side in (a, b))
        raise InputError(f"no device count was measured in both: A, {of_a}; B, {of_b}")
    forbidden = [difference for difference in differences if difference.name not in despite]
    if not forbidden:
        return differences
    names = {*despite, *(difference.name for difference in forbidden)}
    template = load_template(__package__, "refusal.j2", (("printable", remove_unprintable),))
    text = template.render(a=a, b=b, forbidden=forbidden, names=[name for name in NAMES if name in names])
    raise InputError(text.rstrip())
