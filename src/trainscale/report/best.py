"""The best configurations as tables, sentences and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from ..analyse.best.choose import CLEAR, NONE, ONLY, UNKNOWN, Answer, BestOfWork, Candidate, Rival
from ..analyse.best.criteria import COST, EFFICIENCY, MEMORY, SPEED, TIME, Question
from ..analyse.cost import Step
from ..analyse.statistics import Interval
from ..worker.type_aliases import JsonObject
from . import numbers
from .table import Grid, escape, render_markdown
from .wording import format_device_count, join_names

# Schema history
#     1  first version
SCHEMA = 1
_NO_ENERGY = "Energy: no trial recorded it."
_ENERGY = (
    "Energy is that of the GPUs (NVML), or of the hosts' processors (RAPL), in the measured windows, without the rest"
    " of the hosts."
)
_MOST_NAMED = 8  # candidates of a tie that are named


def _add_spread(write: Callable[[float], str]) -> Callable[[Interval], str]:
    return lambda interval: f"{write(interval.mean)} {numbers.format_plus_minus(interval)}".rstrip()


_VALUES: dict[str, tuple[str, Callable[[Interval], str]]] = {
    EFFICIENCY: ("efficiency", numbers.format_efficiency),
    TIME: ("time to accuracy", _add_spread(numbers.format_duration)),
    MEMORY: ("memory", _add_spread(lambda value: numbers.format_size(round(value)))),
    COST: ("cost/million", _add_spread(numbers.format_significant)),
    SPEED: ("", lambda _: ""),
}


def make_best_grid(best: BestOfWork, question: Question) -> Grid:
    """Return the table of a network: a row for each device count that has an answer."""
    leaders = [answer.leader for answer in best.answers if answer.leader]
    unit = leaders[0].unit if leaders else "images"
    heading, write = _VALUES[question.by]
    columns: list[tuple[str, Callable[[Candidate], str]]] = [
        ("devices", lambda leader: numbers.format_integer(leader.devices)),
        ("best configuration", lambda leader: leader.name),
    ]
    if heading:
        columns.append((heading, lambda leader: write(leader.value)))
    columns.append((f"{unit}/s", lambda leader: numbers.format_rate(leader.samples_per_second.mean)))
    columns.append(("±", lambda leader: numbers.format_plus_minus(leader.samples_per_second)))
    if question.price and question.by != COST:
        columns.append(("cost/million", lambda leader: _format_cost(leader.cost_per_million)))
    if _has_energy(best):
        columns.append(("Wh/million", lambda leader: _format_cost(leader.energy_per_million)))
    columns.append(("repeats", lambda leader: numbers.format_integer(leader.repeats)))
    rows = tuple(tuple(cell(leader) for _, cell in columns) for leader in leaders)
    return Grid(best.title, tuple(name for name, _ in columns), rows, left=(1,))


def list_sentences(best: BestOfWork, question: Question) -> Iterator[str]:
    """Say for each device count how sure its answer is, what was left out, and what the last step costs."""
    for answer in best.answers:
        where = format_device_count(answer.devices)
        yield f"{where}: {_describe_verdict(answer)}"
        if answer.leader and answer.leader.marks:
            yield f"{where}: {answer.leader.name}: {'; '.join(answer.leader.marks)}."
        yield from (f"{where}: left out: {out.name}: {out.reason}" for out in answer.left_out)
    leaders = [answer.leader for answer in best.answers if answer.leader]
    if best.steps:
        yield _describe_step(best.steps[-1], leaders[0].unit)


def explain_numbers(question: Question) -> str:
    """Explain the numbers of the tables in one paragraph."""
    meaning = {
        SPEED: "Best is the highest speed of the whole cluster.",
        EFFICIENCY: "Best is the highest efficiency: the speed-up over the configuration's own 1-device point, divided"
        " by the devices.",
        TIME: "Best is the shortest training to the accuracy.",
        MEMORY: "Best is the smallest peak of the rank that needs most memory, mean over repeats.",
        COST: "Best is the lowest cost of a million samples.",
    }[question.by]
    price = f" Costs are at {question.price}, in the currency of the price." if question.price else ""
    return (
        f"{meaning}{price} ± is half a 95 % interval over repeats. A lead counts as more than noise where its interval,"
        " at 95 % for all comparisons with the leader together, is above 1."
    )


def explain_energy(all_best: Sequence[BestOfWork]) -> str:
    return _ENERGY if any(_has_energy(best) for best in all_best) else _NO_ENERGY


def _has_energy(best: BestOfWork) -> bool:
    return any(answer.leader and answer.leader.energy_per_million for answer in best.answers)


def render_best_markdown(all_best: Sequence[BestOfWork], question: Question) -> str:
    blocks = ["# Best configurations\n", f"{escape(explain_numbers(question))}\n"]
    for best in all_best:
        blocks.append(f"## {escape(best.title)}\n")
        if any(answer.leader for answer in best.answers):
            blocks.append(render_markdown(make_best_grid(best, question)))
        blocks.append("".join(f"- {escape(sentence)}\n" for sentence in list_sentences(best, question)))
    return "\n".join([*blocks, explain_energy(all_best), ""])


def render_best_json(all_best: Sequence[BestOfWork], question: Question) -> str:
    document = {
        "schema": SCHEMA,
        "by": question.by,
        "price": str(question.price) if question.price else None,
        "accuracy": question.accuracy,
        "definition": explain_numbers(question),
        "energy": explain_energy(all_best),
        "works": [_encode_work(best) for best in all_best],
    }
    return json.dumps(_replace_infinity(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _describe_verdict(answer: Answer) -> str:
    if answer.verdict == NONE:
        return "no configuration can be offered."
    if answer.verdict == ONLY and answer.left_out:
        return "no other configuration can be offered; those that were left out follow."
    if answer.verdict == ONLY:
        return "only one configuration was measured, so there is nothing to choose from."
    lead, runner_up = _describe_lead(answer.others[0]), answer.others[0].candidate.name
    if answer.verdict == CLEAR:
        return f"{lead} the runner-up, {runner_up}: more than noise."
    if answer.verdict == UNKNOWN:
        return f"{lead} the runner-up, {runner_up}; too few repeats to tell it from noise."
    names = [f"{other.candidate.name} ({_describe_rival(other)})" for other in answer.tied[:_MOST_NAMED]]
    further = len(answer.tied) - len(names)
    named = join_names([*names, *([f"{further} more"] if further > 0 else [])])
    unknown = f" For {len(answer.undecided)} more there are too few repeats to tell." if answer.undecided else ""
    return f"a tie. Noise does not separate the best from {named}.{unknown}"


def _describe_rival(other: Rival) -> str:
    marks = f"; {'; '.join(other.candidate.marks)}" if other.candidate.marks else ""
    return f"{_format_times(other.lead)}{marks}"


def _describe_lead(other: Rival) -> str:
    return f"{_format_times(other.lead)} as good as"


def _format_times(lead: Interval) -> str:
    """Write a lead: 1.12 (1.05–1.19) times."""
    limits = numbers.format_limits(lead)
    return f"{numbers.format_significant(lead.mean, 3)}{f' ({limits})' if limits else ''} times"


def _describe_step(step: Step, unit: str) -> str:
    where = f"from {numbers.format_integer(step.before)} to {format_device_count(step.after)}"
    if step.gained.mean <= 0:
        return f"The last step, {where}, gains nothing."
    gained = f"gains {numbers.format_rate(step.gained.mean)} {unit}/s"
    if step.factor.mean == 0:
        return f"The last step, {where}, {gained} and costs nothing more."
    cost = f", {_format_cost(step.cost_per_million)} per million" if step.cost_per_million else ""
    factor = _format_cost(step.factor)
    return f"The last step, {where}, {gained}. Each of these costs {factor} times what one cost before{cost}."


def _format_cost(interval: Interval | None) -> str:
    """Write a cost with its limits: 1.62 (1.43–1.88), or «1.62 (at least 1.1)»."""
    if interval is None:
        return numbers.MISSING
    mean = numbers.format_significant(interval.mean, 3)
    if interval.low is None or interval.high is None:
        return mean
    if math.isinf(interval.high):
        return f"{mean} (at least {numbers.format_significant(interval.low, 3)})"
    return f"{mean} ({numbers.format_limits(interval)})"


def _encode_work(best: BestOfWork) -> JsonObject:
    return {
        "title": best.title,
        "answers": [
            {
                "devices": answer.devices,
                "verdict": answer.verdict,
                "leader": _encode_candidate(answer.leader) if answer.leader else None,
                "others": [
                    {**_encode_candidate(other.candidate), "lead": asdict(other.lead), "differs": other.differs}
                    for other in answer.others
                ],
                "left_out": [
                    {"name": out.name, "config": out.config.to_dict(), "reason": out.reason} for out in answer.left_out
                ],
            }
            for answer in best.answers
        ],
        "steps": [asdict(step) for step in best.steps],
    }


def _encode_candidate(candidate: Candidate) -> JsonObject:
    return {**asdict(candidate), "config": candidate.config.to_dict()}


def _replace_infinity(value: Any) -> Any:
    """Replace infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _replace_infinity(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_infinity(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
