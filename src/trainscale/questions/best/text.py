"""The best configurations in words, as text, Markdown and JSON."""

import math
from collections.abc import Callable

from ...analyse.statistics import Interval
from ...report import numbers, wording
from ...report.documents import (
    Grid,
    Section,
    encode_json,
    escape,
    load_template,
    pick,
    print_sections,
    split_paragraphs,
)
from ...worker.type_aliases import JsonObject
from .best import COST, EFFICIENCY, MEMORY, SPEED, TIME, BestChoice, BestChoices, Candidate, Question

# Schema history
#     1  first version
SCHEMA = 1
_MOST_NAMED = 8  # candidates of a tie that are named


def _add_spread(write: Callable[[float], str]) -> Callable[[Interval], str]:
    return lambda interval: f"{write(interval.mean)} {numbers.format_plus_minus(interval)}".rstrip()


_VALUES: dict[str, tuple[str, Callable[[Interval], str]]] = {
    EFFICIENCY: ("efficiency", numbers.format_efficiency),
    TIME: ("time to accuracy", _add_spread(numbers.format_duration)),
    MEMORY: ("memory", _add_spread(lambda value: numbers.format_size(round(value)))),
    COST: ("cost/million", _add_spread(numbers.format_number)),
}
_MEANINGS = {
    SPEED: "Best is the highest speed of the whole cluster.",
    EFFICIENCY: "Best is the highest efficiency: the speed-up over its own 1-device point, divided by the devices.",
    TIME: "Best is the shortest training to the accuracy.",
    MEMORY: "Best is the smallest peak of the rank that needs most memory, mean over repeats.",
    COST: "Best is the lowest cost of a million samples.",
}


# ---- tables and sentences


def make_sections(best: BestChoices) -> list[Section]:
    question, sections = best.question, []
    heading, write = _VALUES.get(question.by, ("", None))
    cost = "cost/million" if question.price and question.by != COST else ""
    for work in best.works:
        rows = [
            (
                numbers.format_integer(leader.devices),
                leader.name,
                write(leader.value) if write and leader.value else numbers.MISSING,
                numbers.format_number(leader.samples_per_second.mean),
                numbers.format_plus_minus(leader.samples_per_second),
                _format_cost(leader.cost_per_million),
                _format_cost(leader.energy_per_million),
                numbers.format_integer(len(leader.good)),
            )
            for leader in work.leaders
        ]
        grid = None
        if rows:
            energy = "Wh/million" if any(leader.energy_per_million for leader in work.leaders) else ""
            unit = f"{work.leaders[0].unit}/s"
            header = ("devices", "best configuration", heading, unit, "±", cost, energy, "repeats")
            shown = [index for index, name in enumerate(header) if name]
            grid = Grid(work.title, header, tuple(rows), left=(1,)).select(shown)
        template = load_template(__package__, "sentences.j2")
        text = template.render(work=work, name_tied=_name_tied, cost=_format_cost)
        sections.append(Section(work.title, split_paragraphs(text), grid))
    return sections


def _name_tied(choice: BestChoice) -> str:
    tied = [other for other in choice.others if other.differs is False]
    names = []
    for other in tied[:_MOST_NAMED]:
        details = [f"{numbers.format_with_limits(other.lead)} times", *other.candidate.marks]
        names.append(f"{other.candidate.name} ({'; '.join(details)})")
    if more := len(tied) - len(names):
        names.append(f"{more} more")
    return wording.join_names(names)


def explain_numbers(question: Question) -> str:
    price = f" Costs are at {question.price}, in the currency of the price." if question.price else ""
    return (
        f"{_MEANINGS[question.by]}{price} ± is half a 95 % interval over repeats. A lead counts as more than noise"
        " where its interval, at 95 % for all comparisons with the leader together, is above 1."
    )


def explain_energy(best: BestChoices) -> str:
    if not any(leader.energy_per_million for work in best.works for leader in work.leaders):
        return "Energy: no trial recorded it."
    return "Energy is that of the GPUs (NVML) or processors (RAPL) in the measured windows, not of whole hosts."


def _format_cost(interval: Interval | None) -> str:
    """Write a cost with its limits: 1.62 (1.43–1.88), or 1.62 (at least 1.1)."""
    if interval is None:
        return numbers.MISSING
    if interval.high is not None and math.isinf(interval.high):
        mean, low = (numbers.format_number(value, 3) for value in (interval.mean, interval.low))
        return f"{mean} (at least {low})"
    return numbers.format_with_limits(interval)


# ---- documents


def print_text(best: BestChoices) -> None:
    print_sections(make_sections(best), f"{explain_numbers(best.question)} {explain_energy(best)}")


def render_markdown(best: BestChoices) -> str:
    blocks = ["# Best configurations\n", f"{escape(explain_numbers(best.question))}\n"]
    for section in make_sections(best):
        blocks.append(f"## {escape(section.heading)}\n")
        if section.grid:
            blocks.append(section.grid.to_markdown())
        blocks.append("".join(f"- {escape(sentence)}\n" for sentence in section.paragraphs))
    return "\n".join([*blocks, explain_energy(best), ""])


def render_json(best: BestChoices) -> str:
    question = best.question
    works = []
    for work in best.works:
        answers = [
            {
                **pick(choice, "devices verdict"),
                "leader": _encode_candidate(choice.leader) if choice.leader else None,
                "others": [
                    {**_encode_candidate(other.candidate), **pick(other, "lead differs")} for other in choice.others
                ],
                "left_out": [pick(candidate, "name config reason") for candidate in choice.left_out],
            }
            for choice in work.choices
        ]
        works.append({"title": work.title, "answers": answers, "steps": work.steps})
    document = {
        "schema": SCHEMA,
        "by": question.by,
        "price": str(question.price) if question.price else None,
        "accuracy": question.accuracy,
        "definition": explain_numbers(question),
        "energy": explain_energy(best),
        "works": works,
    }
    return encode_json(document)


def _encode_candidate(candidate: Candidate) -> JsonObject:
    names = "name config devices hosts value samples_per_second unit cost_per_million energy_per_million marks"
    return {**pick(candidate, names), "repeats": len(candidate.good)}
