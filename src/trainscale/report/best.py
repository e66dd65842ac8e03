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
from .grid import Grid, escape, markdown
from .wording import device_count, join_names

# Schema history
#     1  first version
SCHEMA = 1
_NO_ENERGY = "Energy: no trial recorded it."
_ENERGY = (
    "Energy is that of the GPUs (NVML), or of the hosts' processors (RAPL), in the measured windows, without the rest"
    " of the hosts."
)
_MOST_NAMED = 8  # candidates of a tie that are named


def _with_spread(write: Callable[[float], str]) -> Callable[[Interval], str]:
    return lambda interval: f"{write(interval.mean)} {numbers.plus_minus(interval)}".rstrip()


_VALUES: dict[str, tuple[str, Callable[[Interval], str]]] = {
    EFFICIENCY: ("efficiency", numbers.efficiency),
    TIME: ("time to accuracy", _with_spread(numbers.duration)),
    MEMORY: ("memory", _with_spread(lambda value: numbers.size(round(value)))),
    COST: ("cost/million", _with_spread(numbers.significant)),
    SPEED: ("", lambda _: ""),
}


def best_grid(best: BestOfWork, question: Question) -> Grid:
    """Return the table of a network: a row for each device count that has an answer."""
    leaders = [answer.leader for answer in best.answers if answer.leader]
    unit = leaders[0].unit if leaders else "images"
    heading, write = _VALUES[question.by]
    columns: list[tuple[str, Callable[[Candidate], str]]] = [
        ("devices", lambda leader: numbers.integer(leader.devices)),
        ("best configuration", lambda leader: leader.name),
    ]
    if heading:
        columns.append((heading, lambda leader: write(leader.value)))
    columns.append((f"{unit}/s", lambda leader: numbers.rate(leader.samples_per_second.mean)))
    columns.append(("±", lambda leader: numbers.plus_minus(leader.samples_per_second)))
    if question.price and question.by != COST:
        columns.append(("cost/million", lambda leader: _cost(leader.cost_per_million)))
    if _has_energy(best):
        columns.append(("Wh/million", lambda leader: _cost(leader.energy_per_million)))
    columns.append(("repeats", lambda leader: numbers.integer(leader.repeats)))
    rows = tuple(tuple(cell(leader) for _, cell in columns) for leader in leaders)
    return Grid(best.title, tuple(name for name, _ in columns), rows, left=(1,))


def sentences(best: BestOfWork, question: Question) -> Iterator[str]:
    """Say for each device count how sure its answer is, what was left out, and what the last step costs."""
    for answer in best.answers:
        where = device_count(answer.devices)
        yield f"{where}: {_verdict(answer)}"
        if answer.leader and answer.leader.marks:
            yield f"{where}: {answer.leader.name}: {'; '.join(answer.leader.marks)}."
        yield from (f"{where}: left out: {out.name}: {out.reason}" for out in answer.left_out)
    leaders = [answer.leader for answer in best.answers if answer.leader]
    if best.steps:
        yield _step(best.steps[-1], leaders[0].unit)


def definition(question: Question) -> str:
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


def energy_note(all_best: Sequence[BestOfWork]) -> str:
    return _ENERGY if any(_has_energy(best) for best in all_best) else _NO_ENERGY


def _has_energy(best: BestOfWork) -> bool:
    return any(answer.leader and answer.leader.energy_per_million for answer in best.answers)


def best_text_markdown(all_best: Sequence[BestOfWork], question: Question) -> str:
    blocks = ["# Best configurations\n", f"{escape(definition(question))}\n"]
    for best in all_best:
        blocks.append(f"## {escape(best.title)}\n")
        if any(answer.leader for answer in best.answers):
            blocks.append(markdown(best_grid(best, question)))
        blocks.append("".join(f"- {escape(sentence)}\n" for sentence in sentences(best, question)))
    return "\n".join([*blocks, energy_note(all_best), ""])


def best_json(all_best: Sequence[BestOfWork], question: Question) -> str:
    document = {
        "schema": SCHEMA,
        "by": question.by,
        "price": str(question.price) if question.price else None,
        "accuracy": question.accuracy,
        "definition": definition(question),
        "energy": energy_note(all_best),
        "works": [_work(best) for best in all_best],
    }
    return json.dumps(_finite(document), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _verdict(answer: Answer) -> str:
    if answer.verdict == NONE:
        return "no configuration can be offered."
    if answer.verdict == ONLY and answer.left_out:
        return "no other configuration can be offered; those that were left out follow."
    if answer.verdict == ONLY:
        return "only one configuration was measured, so there is nothing to choose from."
    runner_up = answer.others[0]
    if answer.verdict == CLEAR:
        return f"{_lead(runner_up)} the runner-up, {runner_up.candidate.name}: more than noise."
    if answer.verdict == UNKNOWN:
        return f"{_lead(runner_up)} the runner-up, {runner_up.candidate.name}; too few repeats to tell it from noise."
    names = [f"{other.candidate.name} ({_marked(other)})" for other in answer.tied[:_MOST_NAMED]]
    further = len(answer.tied) - len(names)
    named = join_names([*names, *([f"{further} more"] if further > 0 else [])])
    unknown = f" For {len(answer.undecided)} more there are too few repeats to tell." if answer.undecided else ""
    return f"a tie. Noise does not separate the best from {named}.{unknown}"


def _marked(other: Rival) -> str:
    marks = f"; {'; '.join(other.candidate.marks)}" if other.candidate.marks else ""
    return f"{_times(other.lead)}{marks}"


def _lead(other: Rival) -> str:
    return f"{_times(other.lead)} as good as"


def _times(lead: Interval) -> str:
    """Write a lead: 1.12 (1.05–1.19) times."""
    limits = numbers.between(lead)
    return f"{numbers.significant(lead.mean, 3)}{f' ({limits})' if limits else ''} times"


def _step(step: Step, unit: str) -> str:
    where = f"from {numbers.integer(step.before)} to {device_count(step.after)}"
    if step.gained.mean <= 0:
        return f"The last step, {where}, gains nothing."
    gained = f"gains {numbers.rate(step.gained.mean)} {unit}/s"
    if step.factor.mean == 0:
        return f"The last step, {where}, {gained} and costs nothing more."
    cost = f", {_cost(step.cost_per_million)} per million" if step.cost_per_million else ""
    return (
        f"The last step, {where}, {gained}. Each of these costs {_cost(step.factor)} times what one cost before{cost}."
    )


def _cost(interval: Interval | None) -> str:
    """Write a cost with its limits: 1.62 (1.43–1.88), or «1.62 (at least 1.1)»."""
    if interval is None:
        return numbers.MISSING
    mean = numbers.significant(interval.mean, 3)
    if interval.low is None or interval.high is None:
        return mean
    if math.isinf(interval.high):
        return f"{mean} (at least {numbers.significant(interval.low, 3)})"
    return f"{mean} ({numbers.between(interval)})"


def _work(best: BestOfWork) -> JsonObject:
    return {
        "title": best.title,
        "answers": [
            {
                "devices": answer.devices,
                "verdict": answer.verdict,
                "leader": _candidate(answer.leader) if answer.leader else None,
                "others": [
                    {**_candidate(other.candidate), "lead": asdict(other.lead), "differs": other.differs}
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


def _candidate(candidate: Candidate) -> JsonObject:
    return {**asdict(candidate), "config": candidate.config.to_dict()}


def _finite(value: Any) -> Any:
    """Replace infinity, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
