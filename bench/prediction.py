"""How good are predictions of `trainscale predict`? Every published curve is continued to points that are known.

    python bench/prediction.py

For each kind of scaling and distance, the table has the errors of the law that is used, and of what one would compute
by hand: that the efficiency of the largest measured point stays. Then it counts how many of the known points lie in the
interval of the prediction, where the errors that make the interval come from the other sources only: curves of one
source have much in common.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import median

from trainscale.analyse.statistics import CONFIDENCE
from trainscale.questions.predict import LEAST_POINTS, MOST_TIMES, ErrorRange, compute_unit, continue_curve
from trainscale.questions.published.curves import PublishedCurve, read_curves
from trainscale.spec.config import STRONG, WEAK

MIXED = "mixed"


@dataclass(frozen=True)
class Case:
    """A published point that is predicted from the first ``points`` of its curve."""

    curve: PublishedCurve
    points: int
    devices: int
    error: float  # logarithm of predicted / published
    unit: float

    @property
    def score(self) -> float:
        return self.error / self.unit


@cache
def collect_cases() -> tuple[Case, ...]:
    """Return a case for every published point that may be predicted, within its host boundary."""
    cases = []
    for curve in read_curves():
        points = [(point.devices, curve.compute_speedup(point)) for point in curve.points]
        per_host = curve.devices_per_host
        for count in range(LEAST_POINTS, len(points)):
            given, most = points[:count], points[count - 1][0]
            for devices, speed in points[count:]:
                crosses_first_host = per_host is not None and most <= per_host < devices
                if devices <= MOST_TIMES * most and not crosses_first_host:
                    error = math.log(continue_curve(given, devices) / speed)
                    cases.append(Case(curve, count, devices, error, compute_unit(given, devices)))
    return tuple(cases)


def find_error_range(cases: Sequence[Case]) -> ErrorRange:
    """Return the range that contains the score of one more such case with 95 % confidence."""
    scores = sorted(case.score for case in cases)
    # If a new case is like the n others, its place among them is equally likely to be any of n + 1.
    outside = int((len(scores) + 1) * (1 - CONFIDENCE) / 2)
    assert outside >= 1, "there are too few cases to leave any out"
    return ErrorRange(scores[outside - 1], scores[-outside], len(scores))


def main() -> None:
    print(
        "| scaling | devices, of the measured | cases | sources | error: median, 90th percentile"
        " | by constant efficiency | in the interval | median interval |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for title, distance, cases in _groups():
        errors, by_hand = [abs(case.error) for case in cases], [abs(_error_by_hand(case)) for case in cases]
        ranges = [(case, _range_of_others(case)) for case in cases]
        inside = sum(scores.low <= case.score <= scores.high for case, scores in ranges)
        below = median(1 - math.exp(-max(0.0, scores.high) * case.unit) for case, scores in ranges)
        above = median(math.exp(max(0.0, -scores.low) * case.unit) - 1 for case, scores in ranges)
        print(
            f"| {title} | {distance} | {len(cases)} | {_sources(cases)} | {_errors(errors)} | {_errors(by_hand)} |"
            f" {inside} ({inside / len(cases):.0%}) | −{below:.0%} … +{above:.0%} |"
        )
    print(f"\nPUBLISHED_ERRORS of questions/predict.py: {find_error_range(collect_cases())}")


def _groups() -> Iterator[tuple[str, str, list[Case]]]:
    for title, scalings in (("weak", (WEAK,)), ("strong", (STRONG,)), ("all", (WEAK, STRONG, MIXED, None))):
        for distance, most in (("up to twice", 2), ("up to four times", 4)):
            cases = [case for case in collect_cases() if most / 2 < _times(case) <= most]
            yield title, distance, [case for case in cases if case.curve.scaling in scalings]


def _times(case: Case) -> float:
    return case.devices / case.curve.points[case.points - 1].devices


def _range_of_others(case: Case) -> ErrorRange:
    """Return the range of scores of all sources but the case's own."""
    return find_error_range([other for other in collect_cases() if other.curve.source != case.curve.source])


def _error_by_hand(case: Case) -> float:
    curve, given = case.curve, case.curve.points[case.points - 1]
    point = next(point for point in curve.points if point.devices == case.devices)
    return math.log(curve.compute_efficiency(given) / curve.compute_efficiency(point))


def _sources(cases: Sequence[Case]) -> int:
    return len({case.curve.source for case in cases})


def _errors(values: Sequence[float]) -> str:
    return f"{median(values):.1%}, {sorted(values)[int(0.9 * len(values))]:.0%}"


if __name__ == "__main__":
    main()
