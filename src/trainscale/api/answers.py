"""Questions about finished runs: what is best, which of two is faster."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..analyse.best.choose import BestOfWork, find_best
from ..analyse.best.criteria import CRITERIA, SPEED, Question
from ..analyse.best.points import RecordedRun
from ..analyse.columns import column
from ..analyse.comparison.compare import Comparison, compare_pairs
from ..analyse.comparison.matching import match_sides
from ..analyse.cost import parse_price
from ..analyse.statistics import Interval
from ..cli.compare import make_gate, read_despite
from ..cli.compared_runs import read_sides
from ..errors import explain_unknown
from ..runs import Run


@dataclass(frozen=True, kw_only=True)
class BestChoice:
    """The best configuration of a network on one device count."""

    work: str = column("network and scaling mode")
    devices: int = column("workers")
    configuration: str | None = column("the best that was measured; None if none can be offered")
    verdict: str = column("clear, tie, unknown (too few repeats), only (nothing else was measured) or none")
    value: Interval | None = column("by the criterion that was asked for")
    samples_per_second: Interval | None = column("throughput of the whole cluster", "samples/s")
    runner_up: str | None = column("the next best configuration")
    lead: Interval | None = column("how many times better the best is than the runner-up")


@dataclass(frozen=True, kw_only=True)
class BestChoices:
    """The best configurations of one or several runs."""

    by: str = column("the criterion: images/s, efficiency, time-to-accuracy, memory or cost")
    choices: tuple[BestChoice, ...] = column("one for each network and device count")
    text: str = field(repr=False, metadata={"meaning": "the same as Markdown", "unit": ""})
    _best: tuple[BestOfWork, ...] = field(repr=False, compare=False)
    _question: Question = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        from .answer_display import render_best

        return render_best(self._best, self._question)


@dataclass(frozen=True, kw_only=True)
class ComparisonPoint:
    """A device count that both runs have."""

    series: str = column("title of the series in B")
    devices: int = column("workers")
    ratio: Interval | None = column("throughput of B over that of A; None if a side has no result")
    verdict: str = column("faster, slower, same or unknown")


@dataclass(frozen=True, kw_only=True)
class RunComparison:
    """Two runs compared point by point: B against A."""

    verdict: str = column("faster, slower, mixed, same or unknown")
    outcome: str | None = column("of the gate: pass, fail or unknown; None without a gate")
    points: tuple[ComparisonPoint, ...] = column("the points that both have")
    text: str = field(repr=False, metadata={"meaning": "the same as Markdown", "unit": ""})
    _comparison: Comparison = field(repr=False, compare=False)

    def _repr_html_(self) -> str:
        from .answer_display import render_comparison

        return render_comparison(self._comparison)


def best(*runs: Run, by: str = SPEED, price: str | None = None, until_accuracy: float | None = None) -> BestChoices:
    """Find the best configuration for every network and device count, as ``trainscale best`` does.

    ``by`` is ``images/s``, ``efficiency``, ``time-to-accuracy``, ``memory`` or ``cost``; ``price`` is a text such as
    ``"2.5/device-hour"``. ``until_accuracy`` is the validation accuracy for ``by="time-to-accuracy"``.
    """
    from ..report.best import render_best_markdown

    if by not in CRITERIA:
        raise explain_unknown("criterion", by, CRITERIA)
    question = Question(by, None if price is None else parse_price(price), until_accuracy)
    recorded = [RecordedRun(run.info, run.records, run.parity) for run in runs]
    works = find_best(recorded, question)
    return BestChoices(
        by=by,
        choices=tuple(choice for work in works for choice in _make_choices(work)),
        text=render_best_markdown(works, question),
        _best=tuple(works),
        _question=question,
    )


def _make_choices(work: BestOfWork) -> list[BestChoice]:
    choices = []
    for answer in work.answers:
        leader, runner_up = answer.leader, answer.others[0] if answer.others else None
        choices.append(
            BestChoice(
                work=work.title,
                devices=answer.devices,
                configuration=leader.name if leader else None,
                verdict=answer.verdict,
                value=leader.value if leader else None,
                samples_per_second=leader.samples_per_second if leader else None,
                runner_up=runner_up.candidate.name if runner_up else None,
                lead=runner_up.lead if runner_up else None,
            )
        )
    return choices


def compare(
    a: Run | str | Path,
    b: Run | str | Path,
    *,
    threshold: float | str | None = None,
    at_least: float | str | None = None,
    despite: Sequence[str] = (),
    devices: Sequence[int] | None = None,
) -> RunComparison:
    """Say whether B is faster or slower than A, as ``trainscale compare`` does.

    A side is a run, or a text as the command takes it: a directory, a folder of runs, a ``results.json``,
    ``DIR:SERIES`` or ``published:ID``. ``threshold`` (0.02 or ``"2%"``) and ``at_least`` are gates. ``despite`` names
    what may differ. Raises ``InputError`` if the sides cannot be compared.
    """
    from ..report.comparison import render_comparison_md

    names = read_despite(",".join(despite))
    gate = make_gate(_convert_to_text(threshold), _convert_to_text(at_least))
    paths = [str(side.directory if isinstance(side, Run) else side) for side in (a, b)]
    all_a, all_b = read_sides(Namespace(a=paths[0], b=paths[1], series=[], reference=[], by=None))
    comparison = compare_pairs(match_sides(all_a, all_b, names), names, gate, devices)
    return RunComparison(
        verdict=comparison.verdict,
        outcome=comparison.outcome,
        points=tuple(
            ComparisonPoint(series=curve.b.title, devices=point.devices, ratio=point.ratio, verdict=point.verdict)
            for curve in comparison.curves
            for point in curve.points
        ),
        text=render_comparison_md(comparison),
        _comparison=comparison,
    )


def _convert_to_text(value: float | str | None) -> str | None:
    return None if value is None else str(value)
