"""Questions about finished runs: what is best."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..analyse.best.choose import BestOfWork, find_best
from ..analyse.best.criteria import CRITERIA, SPEED, Question
from ..analyse.best.points import RecordedRun
from ..analyse.columns import column
from ..analyse.cost import parse_price
from ..analyse.statistics import Interval
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
